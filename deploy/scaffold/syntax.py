"""A shell script as a syntax tree, by shfmt: the parser of mvdan/sh, which knows all of bash. It runs nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from typing import Any

from deploy.errors import ConfigError

Tree = dict[str, Any]


def parse(script: str, source: str, first: int = 1) -> list[Tree]:
    """The statements of a script, each as shfmt's typed JSON; ConfigError with file and line where it is none.

    `first` is the line of `source` in which the script begins.
    """
    done = subprocess.run([_shfmt(), "--to-json"], input=script.encode(), capture_output=True, check=False)
    if done.returncode:
        told = re.search(r"(?:^|:)(\d+):\d+: (.*)", done.stderr.decode(errors="replace"))
        line, why = (int(told[1]), told[2]) if told else (1, "cannot be read")
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
