"""A repair as it is told: what would be changed, key by key, and for which server. The rules are `host/remedy.py`'s."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from deploy.checkpoint.facts import Facts
from deploy.errors import ConfigError
from deploy.host import remedy
from deploy.host.remedy import Plan

ENGINES = ("sglang", "vllm")


def plan(facts: Facts, target: Mapping[str, Any] | None, engine: str, version: str | None) -> Plan:
    """What would repair a checkpoint, beside its target's config.json; without a version, for every one."""
    text = (target or {}).get("text_config")
    told = {**target, **text} if target and isinstance(text, dict) else target
    release = (*Version(version).release, 0, 0)[:3] if version else ()
    return remedy.plan(facts, told, engine, release)


def server(text: str | None) -> tuple[str, str | None]:
    """(engine, version) of NAME or NAME==VERSION; SGLang of any version where nothing is said."""
    name, _, version = (text or "sglang").partition("==")
    if name not in ENGINES:
        raise ConfigError(
            f"{text}: no repair is for {name}", remedy=f"say --for sglang==0.5.8; known: {', '.join(ENGINES)}"
        )
    try:
        return name, str(Version(version)) if version else None
    except InvalidVersion as error:
        raise ConfigError(f"{text}: {version} is no version", remedy="say --for sglang==0.5.8") from error


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
