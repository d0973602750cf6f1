"""Moments of a run: where on its way it is held, so that something can happen to it just there.

A moment is known by what the host is asked to do in it. Every program that the tool starts on a host is started by
`timeout`; in these hosts that waits at a breakpoint (`breakpoint.sh`), and the fake server does so in its phases and
before it answers. The tool itself knows nothing of it.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fleet import TestHost

END = "Signal processes that are still the ones we mean"  # as deploy/host/end.py begins
LOOK = "Answer many questions side by side"  # as deploy/host/look.py begins: preflight, and after END nobody but `free`


@dataclass(frozen=True)
class Moment:
    """A step, and the words of what is held in it: of the last one, where one follows another."""

    step: str
    words: tuple[str, ...]


MOMENTS = {
    name: Moment("" if name == "lock" else name.partition(",")[0], words)
    for name, words in {
        "lock": ("Hold a machine's lock",),  # before the first step; as deploy/host/lease.py begins
        "preflight": (LOOK,),  # the first of a run
        "push": ("--server",),
        "push, reading back": ("--server", ".incoming"),
        "prepare": ("DEPLOY_POINT=prepare",),
        "recall": ('cp -p -- "$name"',),
        "stop": (END,),
        "free": (END, LOOK),
        "launch, written": ("/fake/current",),
        "launch": ("setsid nohup sh",),
        "wait": ("phase kv",),
        "health": ("GET /v1/models",),
        "smoke": ("POST /v1/chat/completions",) * 2,  # the first is a part of `wait`
        "bench": ("POST /v1/chat/completions",) * 4,  # and smoke asks twice
        "gate": ("/bench.json",),
        "ready": ("DEPLOY_POINT=ready",),
        "stopped": ("DEPLOY_POINT=stopped",),
        "failed": ("DEPLOY_POINT=failed",),
    }.items()
}


class Breakpoints:
    """The breakpoints of a host in namespaces."""

    def __init__(self, host: TestHost, folder: str) -> None:
        root = Path(f"/proc/{host.pid}/root")
        self._folder = root / folder.lstrip("/")
        self._folder.mkdir(exist_ok=True)
        program = root / "usr/local/bin/timeout"
        program.write_text(Path(__file__).with_name("breakpoint.sh").read_text())
        program.chmod(0o755)

    def set(self, moment: Moment) -> None:
        """Whoever comes to the moment next is held in it."""
        self._put(0, moment.words[0])

    def reach(self, moment: Moment, client: subprocess.Popen[str]) -> None:
        """Wait until somebody is held in it; AssertionError where the client ended before that."""
        for number, words in enumerate(moment.words):
            if number:
                self._put(number, words)
                self._hit(number - 1).unlink()
            while not self._hit(number).exists():
                if client.poll() is not None:
                    out, err = client.communicate()
                    raise AssertionError(f"it ended before that, with {client.returncode}:\n{out}{err}")
                time.sleep(0.02)

    def release(self) -> None:
        """Nobody is held any more, and nobody will be."""
        for file in self._folder.iterdir():
            file.unlink()

    def _put(self, number: int, words: str) -> None:
        new = self._folder / "new"
        new.write_text(f"{words}\n")
        new.rename(self._folder / f"{number}.at")

    def _hit(self, number: int) -> Path:
        return self._folder / f"{number}.hit"
