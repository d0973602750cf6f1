"""Where a server's compilers keep what they have built, and whether they can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import About, Fact, Program, Question
from deploy.facts.disks import Disk
from deploy.host.cache_folders import CACHES


@dataclass(frozen=True)
class Cache:
    """One folder, which need not be there yet."""

    variable: str  # by which it can be moved
    said: bool  # that variable is set
    size: int  # bytes on the disk
    files: int
    whole: bool  # False: there are more than were counted
    disk: Disk  # the folder, and what holds it


Caches = tuple[Cache, ...]


def parse(told: Iterable[Mapping[str, Any]]) -> Caches:
    """From what `deploy.host.caches` says."""
    return tuple(Cache(**{**one, "disk": Disk(**one["disk"])}) for one in told)


def _questions(about: About) -> dict[str, Question]:
    wanted = {"HOME", "USER", *(variable for variable, _, _ in CACHES)}
    return {"caches": Program("caches", tuple(f"{name}={value}" for name, value in about.env if name in wanted))}


FACT: Fact[Caches] = Fact("caches", _questions, lambda answers: parse(answers["caches"].read()))
