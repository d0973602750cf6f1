"""How command lines call programs of Python: as a module, as a console script, through an interpreter or without."""

from __future__ import annotations

import re
from collections.abc import Sequence

ALONE = re.compile(r"-[uOBEIsSvqPb]+")
WITH_VALUE = ("-X", "-W")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


def module(argv: Sequence[str], *names: str) -> int | None:
    """The place behind `PYTHON [OPTIONS] -m NAME`; None where it is something else."""
    place = _options(argv)
    found = list(argv[place : place + 2])
    return place + 2 if len(found) == 2 and found[0] == "-m" and found[1] in names else None


def script(argv: Sequence[str], *names: str) -> int | None:
    """The place behind `NAME` or `PYTHON [OPTIONS] NAME`, where NAME is a file of that name in any folder."""
    for place in (0, _options(argv)):
        if place < len(argv) and argv[place].rpartition("/")[2] in names:
            return place + 1 if place == 0 or PYTHON.fullmatch(argv[0]) else None
    return None


def interpreter(argv: Sequence[str]) -> str:
    """The interpreter that is named, or the one beside a console script: pip puts them into one folder."""
    if PYTHON.fullmatch(argv[0]):
        return argv[0]
    folder, slash, _ = argv[0].rpartition("/")
    return f"{folder}/python3" if slash else "python3"


def _options(argv: Sequence[str]) -> int:
    place = 1
    while place < len(argv) and (ALONE.fullmatch(argv[place]) or argv[place] in WITH_VALUE):
        place += 2 if argv[place] in WITH_VALUE else 1
    return place
