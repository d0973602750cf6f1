"""Small programs that run on the hosts: standard library only, Python 3.8 or newer, JSON on stdout."""

from __future__ import annotations

import re
import sys
from importlib import resources

PART = re.compile(r"^from deploy\.host\.(\w+) import (?:\([^)]*\)|.*)$", re.MULTILINE)
FUTURE = "from __future__ import annotations\n"
ALONE = re.compile(
    r'^answer = \w+\n|^if __name__ == "__main__":\n(?:    .*\n?)+', re.MULTILINE
)  # what a part has and does where it is a program


def source(name: str) -> str:
    """The text of the host program `name`, to be run there as `python3 -I -c SOURCE args...`.

    What it imports from other modules here comes along, each once, in the place of its first import, and without what
    that one does as a program of its own.
    """
    return _whole(name, set())


def _whole(name: str, there: set[str]) -> str:
    def part(found: re.Match[str]) -> str:
        return "" if found[1] in there else ALONE.sub("", _whole(found[1], there).replace(FUTURE, ""))

    there.add(name)
    text = resources.files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
    return PART.sub(part, text)


def python(transport: str) -> tuple[str, ...]:
    """The words that run a program's text. On this machine the interpreter that runs us is sure to be one that works,
    and `python3` may be a version manager's shim that takes a hundred milliseconds to find it.
    """
    return (sys.executable if transport == "local" else "python3", "-I", "-c")
