"""Which programs a host has that the tool uses there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deploy.facts import About, Fact, Program, Question

# What for, in words that end "without it ...".
PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("setsid", "nohup"), "no server outlives our connection"),
        "timeout": "nothing that we start is sure to end",
        **dict.fromkeys(("readlink", "find", "tail", "head", "mv", "ln", "cp"), "runs cannot be kept apart"),
        "rsync": "nothing can be pushed to it",
    }
)

Tools = Mapping[str, str | None]  # {name: its path}; None: it is not there


def _questions(_: About) -> dict[str, Question]:
    return {"tools": Program("tools", tuple(PROGRAMS))}


FACT: Fact[Tools] = Fact("tools", _questions, lambda answers: dict(answers["tools"].read()))
