"""Running pip with its progress told: what it fetches, how much it has fetched, how long it has been at it."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from deploy.errors import DeployError

FETCHED = re.compile(r"^\s*(?:Downloading|Using cached) (?P<file>\S+) \((?P<size>[\d.]+) (?P<unit>[kMG]?B)\)")
LOCAL = re.compile(r"^Processing (?P<file>\S+\.whl)")
INSTALLING = re.compile(r"^Installing collected packages: (?P<packages>.+)")
MEGABYTES = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}

BEAT = 10.0  # seconds after which the same is said again, with the new time
TOLD_FROM = 5.0  # MB: smaller packages come by the dozen
# What would send the packages elsewhere, or find them elsewhere; the user's index and proxy stay as they are.
DROPPED = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIREMENT")


class Job:
    """One installation: where it logs, whom it tells, and what it has fetched so far."""

    def __init__(self, folder: Path, say: Callable[[str], None], lock: IO[str]) -> None:
        self.log = folder / "install.log"
        self.say = say
        self.lock = lock
        self.began = time.monotonic()
        self.megabytes = 0.0
        self.doing = "starting"

    def at(self, what: str) -> None:
        """Say what comes next."""
        self.doing = what
        self.say(what)

    def make_venv(self, python: Path) -> None:
        """A virtual environment with pip, of the interpreter that runs this tool."""
        self.at("making a virtual environment")
        argv: list[str | Path] = [sys.executable, "-I", "-m", "venv", "--clear", python.parent.parent]
        self.run(argv, {}, "no virtual environment can be made", remedy="apt install python3-venv")

    def pip(self, python: Path, *arguments: str | Path) -> None:
        """Pip install."""
        words = ["install", "--progress-bar", "off", "--no-input", "--disable-pip-version-check"]
        remedy = "look at the network and at pip's index; run it again: what was fetched is kept"
        self.run([python, "-m", "pip", *words, *arguments], {}, "pip could not install the engine", remedy=remedy)

    def run(self, argv: Sequence[str | Path], env: Mapping[str, str], failed: str, remedy: str = "") -> None:
        """Run a program to its end, telling what pip says; DeployError with its last lines where it fails."""
        tail: deque[str] = deque(maxlen=15)
        with self._start([str(word) for word in argv], env) as process, self.log.open("a", encoding="utf-8") as log:
            try:
                for line in self._lines(process):
                    log.write(line)
                    tail.append(line.rstrip())
                    self._hear(line)
                status = process.wait()
            finally:
                process.kill()  # where something was raised; it has ended otherwise
        if status:
            raise DeployError(failed, evidence="\n".join(tail), remedy=remedy or f"the whole of it: {self.log}")

    def _start(self, argv: list[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in DROPPED}
        return subprocess.Popen(
            argv,
            env={**inherited, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(self.lock.fileno(),),
        )

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        """Its lines as they come; while none comes, say now and then what it is at."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=BEAT)
            except queue.Empty:
                self._tell(self.doing)
                continue
            if line is None:
                return
            yield line

    def _hear(self, line: str) -> None:
        """What a line of pip's output means for the one who waits."""
        fetched, local, installing = FETCHED.match(line), LOCAL.match(line), INSTALLING.match(line)
        if fetched and not fetched["file"].endswith(".metadata"):
            size = float(fetched["size"]) * MEGABYTES[fetched["unit"]]
            self.megabytes += size
            self.doing = f"downloading {_short(fetched['file'])}, {size:.0f} MB"
            if size >= TOLD_FROM:
                self._tell(self.doing)
        elif local and _megabytes(local["file"]) >= TOLD_FROM:
            self._tell(f"from this machine: {_short(local['file'])}")
        elif installing:
            self.doing = f"unpacking {len(installing['packages'].split(', '))} packages"
            self._tell(self.doing)

    def _tell(self, what: str) -> None:
        self.say(f"{what} ({self.megabytes:.0f} MB fetched, {time.monotonic() - self.began:.0f} s)")


def _read(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _megabytes(file: str) -> float:
    return Path(file).stat().st_size / 1e6 if Path(file).is_file() else 0.0


def _short(file: str) -> str:
    """`torch-2.13.0` of a wheel's long name."""
    return "-".join(Path(file).name.split("-")[:2])
