"""How soon `deploy up` notices over ssh that a server is ready, or dead, and what looking costs its host.

    python -m benchmarks.readiness [ROUNDS]

On a loopback sshd a fake server writes down when it was ready (its ready line is out, its endpoint says 200), and when
it died. The events of `up` say when that was known here: that it generates, by a first generation of ours, and that it
is gone, which comes before its log is searched for the cause. Targets: after ready p50 0.1 s, p95 0.5 s; after death
p50 0.2 s, p95 1 s. The program on the host may take 2 % of a core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from deploy import host
from tests.fleet import Keys, TestHost, loopback
from tests.project import Project

SECONDS = 20.0  # of looking, for its cost
TITLES = 18  # processes with a title, as two servers of eight ranks have
TITLED = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'sglang::scheduler'); time.sleep(600)"


def inventory(where: TestHost) -> dict[str, dict[str, Any]]:
    return {where.name: {"address": where.address, "port": where.port, "user": where.user, "key": where.key}}


def noticed(made: Project, stamp: Path, fact: str) -> float:
    """Seconds from the server's own stamp to the event that shows that it was known here."""
    known = next(event["at"] for event in made.events() if fact in event.get("facts", {}))
    return float(known) - float(stamp.read_text())


def measure(where: TestHost, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds after ready, and after death, of each round."""
    made = Project(folder / "project", inventory(where))
    ready, dead = [], []
    for number in range(rounds):
        stamps = folder / f"stamps{number}"
        stamps.mkdir()
        usual = {"stamps": str(stamps), "load_seconds": 1.0 + number % 10 / 100}
        made.fake(fake=usual)
        done = made.run("up", "profile=fake")
        assert done.code == 0, done.err
        ready.append(noticed(made, stamps / "ready", "ready"))
        made.run("down")
        made.fake(fake={**usual, "die_at": "kv"})
        done = made.run("up", "profile=fake")
        assert done.code == 6, done.err
        dead.append(noticed(made, stamps / "dead", "gone"))
    return ready, dead


@contextmanager
def server(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher that lives, and titled processes of its run."""
    env = {**os.environ, "DEPLOY_SERVER": str(folder)}
    with ExitStack() as stack:
        made = [subprocess.Popen(["sleep", "600"], env=env)]
        made += [subprocess.Popen([sys.executable, "-c", TITLED], env=env) for _ in range(TITLES)]
        for process in made:
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield made[0]


def cost(folder: Path, lines: int) -> float:
    """Per cent of a core that the program takes on a host, while its server logs so many lines a second."""
    folder.mkdir()
    with server(folder) as launcher, (folder / "server.log").open("wb", buffering=0) as log:
        ticks = Path(f"/proc/{launcher.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        argv = [sys.executable, "-I", "-c", host.source("watch"), str(folder), str(launcher.pid), ticks, "0"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as watch:
            time.sleep(2)  # it has begun
            before, began = cpu(watch.pid), time.monotonic()
            while time.monotonic() - began < SECONDS:
                for number in range(lines):
                    log.write(b"[2026-11-30 10:00:00 TP0] Decode batch, #running-req: %d, #token: 100\n" % number)
                time.sleep(1)
            taken = (cpu(watch.pid) - before) / (time.monotonic() - began)
            watch.kill()
    return 100 * taken


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(what: str, seconds: list[float]) -> None:
    p95 = quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    print(f"{what:<20} p50 {median(seconds):.3f} s, p95 {p95:.3f} s, worst {max(seconds):.3f} s of {len(seconds)}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        for lines in (0, 20):
            taken = cost(Path(folder, f"cost{lines}"), lines)
            print(f"cost on the host     {taken:.2f} % of a core, {lines} lines a second")
        keys = Keys(Path(folder))
        os.environ["DEPLOY_SSH_CONFIG"] = str(keys.config)
        with loopback(keys) as where:
            ready, dead = measure(where, Path(folder), rounds)
    show("noticed after ready", ready)
    show("noticed after death", dead)


if __name__ == "__main__":
    main()
