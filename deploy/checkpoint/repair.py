"""A repair as it is told: what would be changed, key by key, and for which server. The rules are `host/remedy.py`'s."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.checkpoint import versions
from deploy.checkpoint.facts import Facts
from deploy.host import remedy
from deploy.host.remedy import Plan


def plan(facts: Facts, target: Mapping[str, Any] | None, engine: str, version: str | None) -> Plan:
    """What would repair a checkpoint, beside its target's config.json; without a version, for every one."""
    meant = versions.of(version)
    return remedy.plan(facts, target, engine, (*meant.release, 0, 0)[:3] if meant else ())


def rows(what: Plan) -> Iterator[tuple[str, str, str]]:
    """(where, old, new) of everything that would be changed."""
    for file, names in what.rename.items():
        yield from ((file, old, new) for old, new in names.items())
    for file, patches in what.patch.items():
        yield from (
            (file, f"{name}: {one.what.partition(' -> ')[0]}", one.what.partition(" -> ")[2])
            for name, one in patches.items()
        )
    for setting in what.settings:
        yield "config.json", _said(setting.key, setting.old), _said(setting.key, setting.new)


def _said(key: tuple[str, ...], value: tuple[Any, ...]) -> str:
    return f"{'.'.join(key)}: {json.dumps(value[0])}" if value else "-"
