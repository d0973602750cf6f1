"""Record real logs again: `python -m tests.record_logs ENGINE [NAME ...]`, all of an engine's without a name.

A log goes to `tests/fixtures/logs/ENGINE-VERSION-NAME.log`; how the launch ended goes to `recorded.json` beside it.
A launch takes 10 to 90 s; one runs at a time.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from deploy import environments
from deploy.environments import Installed
from tests import sglang_launches, vllm_launches
from tests.launches import launch

LAUNCHES = {"sglang": sglang_launches.LAUNCHES, "vllm": vllm_launches.LAUNCHES}
LOGS = Path(__file__).parent / "fixtures" / "logs"
ENDINGS = LOGS / "recorded.json"


def record(engine: str, name: str, installed: Installed) -> None:
    """Launch one, and keep what it wrote and how it ended."""
    case = LAUNCHES[engine][name]
    with tempfile.TemporaryDirectory() as folder:
        ended = launch(case, name, installed, Path(folder))
    known = f"{engine}-{installed.version}-{name}"
    (LOGS / f"{known}.log").write_text(ended.log, encoding="utf-8", newline="")
    endings: dict[str, Any] = json.loads(ENDINGS.read_text()) if ENDINGS.exists() else {}
    endings[known] = {"exit": ended.status, "healthy": not case.told, "seconds": round(ended.seconds)}
    ENDINGS.write_text(json.dumps(dict(sorted(endings.items())), indent=1) + "\n")
    print(f"{known}: {endings[known]}", file=sys.stderr, flush=True)


def main() -> None:
    engine, *names = sys.argv[1:]
    installed = environments.locate(f"{engine}-cpu")
    if installed is None:
        sys.exit(f"deploy engine install {engine}-cpu")
    for name in names or LAUNCHES[engine]:
        record(engine, name, installed)


if __name__ == "__main__":
    main()
