"""A shell script as a syntax tree, by shfmt: the parser of mvdan/sh, which knows all of bash. It runs nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.errors import ConfigError

Tree = dict[str, Any]

LONGEST = 128 * 1024  # bytes of a script, characters of a value: Linux takes no longer argument (MAX_ARG_STRLEN)
STRANGE = "\ufffd"  # in place of bytes that are not UTF-8: a remark may hold them, a word with them is not known
MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip", b"\x7fELF": "a program"}


def load(file: Path, source: str) -> str:
    """A script's text; ConfigError where it cannot be read, is no text, or is longer than any launch script."""
    try:
        with file.open("rb") as opened:
            content = opened.read(LONGEST + 1)
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}", remedy="a script, or HOST:PID") from error
    what = next((name for mark, name in MARKS.items() if content.startswith(mark)), "")
    if what or b"\0" in content:
        found = what or f"a NUL byte in line {content[: content.index(0)].count(10) + 1}"
        raise ConfigError(f"{source}: is not a shell script: {found}", remedy="a script of text, in UTF-8")
    if len(content) > LONGEST:
        raise ConfigError(
            f"{source}: is longer than {LONGEST >> 10} KiB, which no launch script is",
            remedy="the command that starts the server, in a script of its own",
        )
    return content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def parse(script: str, source: str, first: int = 1) -> list[Tree]:
    """The statements of a script, each as shfmt's typed JSON; ConfigError with file and line where it is none.

    `first` is the line of `source` in which the script begins.
    """
    done = subprocess.run([_shfmt(), "--to-json"], input=script.encode(), capture_output=True, check=False)
    if done.returncode:
        told = re.search(r"(?:^|:)(\d+):\d+: (.*)", done.stderr.decode(errors="replace"))
        line, why = (int(told[1]), told[2]) if told else (1, done.stderr.decode(errors="replace").strip())
        raise ConfigError(f"{source}:{line + first - 1}: is not a shell script: {why}")
    found: list[Tree] = json.loads(done.stdout).get("Stmts", [])
    return found


def line(node: Tree) -> int:
    """The line in which a node begins."""
    return int(node["Pos"]["Line"])


def statements(node: Tree | list[Tree]) -> Iterator[Tree]:
    """The statements right below a node."""
    if isinstance(node, list):
        for item in node:
            yield from statements(item)
    elif "Cmd" in node:
        yield node
    else:
        for name in ("Cond", "Then", "Else", "Do", "Items", "Stmts"):
            if name in node:
                yield from statements(node[name])


def _shfmt() -> str:
    """Beside our own interpreter, where pip puts it, or wherever the user has one."""
    found = shutil.which("shfmt", path=sysconfig.get_path("scripts")) or shutil.which("shfmt")
    if not found:
        raise ConfigError("shfmt, which reads shell scripts, is not there", remedy="pip install shfmt-py")
    return found
