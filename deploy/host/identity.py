"""Whose a port is, and in what environment its owners and a run's processes really are, as JSON: one look at /proc.

On stdin: {"run": the run's folder, "port": number, "env": {variable: value; null: any}, "hidden": [variables whose
values are not told], "paths": [[a path that was wished, the one that the server tells, or null], ...]}.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from deploy.host.processes import parse_environ, parse_stat, parse_variables, read, readable, table
from deploy.host.sockets import listening


def differing(found: dict[str, str], wanted: dict[str, Any], hidden: list[str]) -> dict[str, Any]:
    """{variable that is not as wanted: what it is; null where it is missing, "" where it is not to be told}."""
    told: dict[str, str | None] = {}
    for name, value in wanted.items():
        if name not in found:
            told[name] = None
        elif value is not None and found[name] != value:
            told[name] = "" if name in hidden else found[name]
    return told


def environ_of(process: dict[str, Any]) -> dict[str, Any] | None:
    """{"run": what it says of the run, "variables": ... or null}; null where it may not be read, or is gone."""
    try:
        # One handle for both: after a death it reads nothing, never the next process with that pid.
        folder = os.open(f"/proc/{process['pid']}", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        if parse_stat(readable(read(folder, "stat")))["start_ticks"] != process["start_ticks"]:
            return None
        content = read(folder, "environ")
    except OSError:
        return None
    finally:
        os.close(folder)
    return {"run": parse_environ(content), "variables": parse_variables(content)}


def environments(processes: list[dict[str, Any]], asked: dict[str, Any], owners: set[int]) -> dict[str, Any]:
    """{pid: {"wiped": ..., "differs": {...}}} of the port's owners and of whatever says that it is of the run."""
    told = {}
    for process in processes:
        if process["run"] != asked["run"] and process["pid"] not in owners:
            continue
        environ = environ_of(process)
        if environ is not None:
            found = environ["variables"]
            ours = environ["run"] == asked["run"]  # what another one has in its environment is none of our business
            differs = differing(found, asked["env"], asked["hidden"]) if found is not None and ours else {}
            told[str(process["pid"])] = {"wiped": found is None, "differs": differs}
    return told


def launcher(folder: str) -> list[str]:
    """pid, start ticks and boot id, as launch.sh wrote them; empty where it wrote none."""
    try:
        return Path(folder, "pid").read_text().split()
    except (OSError, UnicodeDecodeError):
        return []


def same(wished: str, told: str, owners: set[int]) -> bool:
    """Whether two paths lead to the same place; a relative one is seen from the folder of the process that told it."""
    if wished == told:
        return True
    for folder in [f"/proc/{pid}/cwd" for pid in owners] or ["/"]:
        found, wanted = (os.path.join(folder, path) for path in (told, wished))
        if os.path.exists(found) and os.path.exists(wanted) and os.path.samefile(found, wanted):
            return True
    return False


def said(path: str, owners: set[int]) -> bool:
    """Whether one of the owners has the path in its command line, alone or behind a `=`."""
    words: list[bytes] = []
    for pid in owners:
        try:
            words += Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
    wanted = os.fsencode(path)
    return any(word == wanted or word.endswith(b"=" + wanted) for word in words)


def main(asked: dict[str, Any]) -> None:
    sockets, told = listening(), table()
    owners = {pid for one in sockets if one["port"] == asked["port"] for pid in one["pids"] or ()}
    answer = {
        **told,
        "sockets": sockets,
        "launcher": launcher(asked["run"]),
        "environments": environments(told["processes"], asked, owners),
        "paths": [said(path, owners) if named is None else same(path, named, owners) for path, named in asked["paths"]],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(json.load(sys.stdin))
