"""The files on a host that set NCCL's variables beside the environment: ~/.nccl.conf and /etc/nccl.conf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import About, Answer, Fact, Program, Question

NAMED = "NCCL_CONF_FILE"


@dataclass(frozen=True)
class NcclConf:
    """What they say; a file that this user may not read is none for this user's server either."""

    variables: Mapping[str, tuple[str, str]]  # {variable: (value, the file that says it)}; the first file counts


def parse(answer: Mapping[str, Any]) -> NcclConf:
    """From what `deploy.host.nccl_conf` tells."""
    found: dict[str, tuple[str, str]] = {}
    for path, said in answer["files"].items():
        for name, value in reversed(said or ()):  # of a variable that stands twice in a file, the first line counts
            found[name] = found[name] if name in found and found[name][1] != path else (value, path)
    return NcclConf(found)


def _questions(about: About) -> dict[str, Question]:
    named = dict(about.env).get(NAMED)
    return {"files": Program("nccl_conf", (named,) if named else ())}


def _parse(answers: Mapping[str, Answer]) -> NcclConf:
    return parse(answers["files"].read())


FACT: Fact[NcclConf] = Fact("nccl_conf", _questions, _parse)
