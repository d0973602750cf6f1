"""What the tool adds to a server's own start: wall time of `deploy up` less the start of the same server by hand.

    python -m benchmarks.overhead [ROUNDS]     as root also over ssh, to a host in namespaces

The server is llama.cpp with the tiny pair, which starts within a second, so nearly all that is seen is the tool's.
Target: at most 2 s on an idle machine. `up` again (verify) is shown beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from tests import fleet
from tests.project import EXAMPLES, ROOT, Project, free_port, listens

LOCAL: dict[str, dict[str, Any]] = {"here": {"transport": "local"}}


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def by_hand(folder: Path) -> float:
    """Seconds from starting the server until its port answers."""
    port = free_port()
    launcher = ROOT / "deploy/host/llama_server.py"
    argv = [
        sys.executable,
        str(launcher),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--threads",
        "1",
        "--parallel",
        "1",
    ]
    argv += ["--model", str(EXAMPLES / "target.gguf"), "--model-draft", str(EXAMPLES / "draft.gguf")]
    argv += ["--spec-type", "draft-eagle3", "--draft-max", "3", "--ctx-size", "2048", "--metrics"]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as server:
        began = time.perf_counter()
        while not listens(port):
            time.sleep(0.005)
        taken = time.perf_counter() - began
        server.terminate()
    return taken


def project(folder: Path, hosts: dict[str, dict[str, Any]]) -> Project:
    made = Project(folder, hosts)
    profile = yaml.safe_load((ROOT / "profiles/local.yaml").read_text())
    profile |= {"hosts": "all", "port": free_port(), "model": str(EXAMPLES / "target.gguf")}
    made.profile("bench", **{**profile, "draft": str(EXAMPLES / "draft.gguf")})
    return made


def run(made: Project, *words: str) -> None:
    done = made.run(*words)
    assert done.code == 0, done.err


def measure(name: str, made: Project, rounds: int) -> None:
    found = []
    for _ in range(rounds):
        own = by_hand(made.folder)
        up = seconds(lambda: run(made, "up", "profile=bench"))
        again = seconds(lambda: run(made, "up", "profile=bench"))
        run(made, "down")
        found.append((up - own, own, again))
    over, own, again = (median(column) for column in zip(*found, strict=True))
    print(f"{name:<6} overhead {over:.2f} s   (own start {own:.2f} s, up again {again:.2f} s; medians of {rounds})")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        measure("local", project(Path(folder, "local"), LOCAL), rounds)
        if os.geteuid():
            return
        keys = fleet.Keys(Path(folder))
        os.environ["DEPLOY_SSH_CONFIG"] = str(keys.config)
        (host,) = stack.enter_context(fleet.namespaced(keys, 1))
        told = {"address": host.address, "user": host.user, "key": host.key, "work": "~/.deploy", "lock": "/tmp/lock"}
        measure("ssh", project(Path(folder, "ssh"), {host.name: told}), rounds)


if __name__ == "__main__":
    main()
