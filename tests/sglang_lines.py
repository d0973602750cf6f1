"""Where the line of each row of SGLang's table of failures comes from: `python -m tests.sglang_lines` says it again.

executed  SGLang's own code wrote it, called by `tests/spoken` in the interpreter of that version
launched  it stands in the log of a real launch (`tests/sglang_launches.py`)
composed  it is written by hand (`tests/known_lines.py`): CUDA, NCCL or torch say it, or a GPU would have to
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.engines import _log, _sglang_explain
from deploy.engines._log import Signature
from deploy.environments import Installed
from tests import overlays
from tests.known_lines import LIBRARIES, SGLANG

LOGS = Path(__file__).parent / "fixtures" / "logs"
SIGNATURES = LOGS / "signatures.json"
VERSIONS = ("0.5.8", "0.5.23")
ROWS = _sglang_explain.DIALECT.rows
OWN = {path.stem for path in LOGS.glob("sglang-*.log")}
OURS = re.compile(r"(?<![\w.])/(?:tmp|root|home|opt|usr|work)/[^'`\s]*")  # of this machine
VARYING = re.compile(r"\d+")  # pids, ports, times


def named(row: str) -> tuple[Signature, ...]:
    return tuple(one for one in ROWS if one.name == row)


def shown(rows: Iterable[Signature], lines: Sequence[str]) -> list[str]:
    """The first line that each of the rows matches; one whose group `low` is empty says that all is well."""
    found = (next((line for line in lines if _says(row, line)), "") for row in rows)
    return list(dict.fromkeys(filter(None, found)))


def _says(row: Signature, line: str) -> bool:
    match = row.line.search(line)
    return bool(match and match.groupdict().get("low", "low"))


def executed(installed: Installed) -> dict[str, dict[str, Any]]:
    """{row and case: who says it, what it says of the row}, of those that this version says."""
    env = {**os.environ, **installed.env, "SGLANG_USE_CPU_ENGINE": "0"}  # the paths of a GPU
    env["PYTHONPATH"] = os.pathsep.join([installed.env["PYTHONPATH"], str(Path(__file__).parents[1])])
    done = subprocess.run([installed.python, "-m", "tests.spoken"], capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.decode().strip().rpartition("\n")[2])
    assert told["version"] == installed.version
    found = {
        f"{case['row']} {case['case']}": {
            "by": case["by"],
            "lines": [OURS.sub("/srv/there", line) for line in shown(named(case["row"]), case["lines"])],
        }
        for case in told["said"]
    }
    return {name: case for name, case in found.items() if case["lines"]}


def launched() -> dict[str, str]:
    """{row: the first log in which a line of it stands}."""
    lines = {name: _log.lines((LOGS / f"{name}.log").read_text(encoding="utf-8")) for name in sorted(OWN)}
    found = {row.name: next((name for name in lines if shown([row], lines[name])), "") for row in reversed(ROWS)}
    return {row: name for row, name in sorted(found.items()) if name}


def alike(said: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """What of the executed lines is the same each time."""
    return {name: [VARYING.sub("*", line) for line in case["lines"]] for name, case in said.items()}


def composed(said: Mapping[str, Mapping[str, Any]], logs: Mapping[str, str]) -> list[str]:
    """The rows that are neither executed nor launched."""
    real = {name.split()[0] for told in said.values() for name in told} | set(logs)
    return sorted({known.signature.rstrip("~!") for known in SGLANG + LIBRARIES} - real)


def main() -> None:
    said = {}
    for version in VERSIONS:
        installed = overlays.locate(f"sglang-{version}")
        if installed is None:
            sys.exit(f"python -m tests.overlays sglang-{version}")
        said[version] = executed(installed)
    logs = launched()
    told = {"executed": said, "launched": logs, "composed": composed(said, logs)}
    SIGNATURES.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
