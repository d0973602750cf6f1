"""Ctrl-C on a real terminal: a server that loads is left alone, and whoever comes back finds it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.project import PATIENCE, Project, ended, until, with_run

CTRL_C = b"\x03"
IN_FRONT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
SLOW = {"phase_seconds": {"weights": 90}, "children": 1}


class Terminal:
    """A command in the foreground of a terminal of its own: keys go to it as from a keyboard, by the kernel."""

    def __init__(self, project: Project, *words: str, view: str = "xterm-256color") -> None:
        self.primary, secondary = pty.openpty()
        self.shown = bytearray()
        environ = {**project.environ, "TERM": view, "COLUMNS": "120", "LINES": "40", "CI": ""}

        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_FRONT, *project.argv(*words)], cwd=project.folder, env=environ,
            stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True,
        )  # fmt: skip
        os.close(secondary)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.shown += os.read(self.primary, 65536)
            except OSError:  # EIO: the last one who had it open is gone
                return

    def press(self, keys: bytes) -> float:
        """The moment at which it was done."""
        os.write(self.primary, keys)
        return time.monotonic()

    def wait(self, seconds: float = PATIENCE) -> str:
        """Its end, and all that was shown."""
        self.process.wait(timeout=seconds)
        self.reader.join()
        os.close(self.primary)
        return self.shown.decode(errors="replace")


@contextmanager
def on_a_terminal(project: Project, *words: str, view: str = "xterm-256color") -> Iterator[Terminal]:
    terminal = Terminal(project, *words, view=view)
    try:
        yield terminal
    finally:
        terminal.process.kill()


def at(project: Project, step: str, run: int = 1) -> bool:
    """Whether that many runs were begun, and the last one is at the step."""
    if len(list(project.folder.glob("runs/*/events.jsonl"))) < run:
        return False
    try:
        return any(one["kind"] == "step_started" and one["step"] == step for one in project.events())
    except ValueError:  # its last line is not whole yet
        return False


def flat(shown: str) -> str:
    """Without the lines and colours of a terminal: a box breaks its words anywhere."""
    return " ".join("".join(shown.split("\x1b[2m")).replace("│", " ").split())


@pytest.mark.parametrize("view", ["xterm-256color", pytest.param("dumb", marks=pytest.mark.full)])
def test_ctrl_c_while_it_loads_detaches_and_up_adopts_it(project: Project, view: str) -> None:
    project.fake(fake=SLOW, draft=None, speculative=None, bench={"prompts": []})
    with on_a_terminal(project, "up", "profile=fake", "smoke.max_tokens=9", view=view) as terminal:
        until(lambda: at(project, "wait"), what="the step wait")
        before = project.status()
        pressed = terminal.press(CTRL_C)
        shown = flat(terminal.wait())
        took = time.monotonic() - pressed
    assert (terminal.process.returncode, took < 60) == (130, True), (took, shown)
    for words in (
        "detached in wait: the server goes on",
        "deploy up profile=fake smoke.max_tokens=9",
        "deploy logs -f",
    ):
        assert words in shown
    assert ("\x1b[?25l" in shown) == (view != "dumb")
    assert shown.rfind("\x1b[?25h") >= shown.rfind("\x1b[?25l"), "the cursor is back"
    assert before["pid"] == project.status()["pid"], "nothing of the server heard the key"
    assert len(with_run(before["run"])) == 3, "launcher, server and its child"
    assert project.events()[-1]["facts"]["exit_code"] == 130
    with on_a_terminal(project, "up", "profile=fake", view=view) as terminal:
        until(lambda: at(project, "wait", run=2), what="the step wait again")
        terminal.press(CTRL_C)
        again = flat(terminal.wait())
    assert (terminal.process.returncode, "detached in wait" in again, "launch" in again) == (130, True, False), again
    assert project.run("down").code == 0
    assert with_run(before["run"]) == []


MOMENTS = [1, 2, 3, 4, *(pytest.param(number, marks=pytest.mark.full) for number in range(5, 13))]


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose server loads, and whose client is gone."""
    made = Project(tmp_path_factory.mktemp("loading"))
    slow = {"phase_seconds": {"weights": 1800}, "lifetime": 1800}
    made.fake(fake=slow, draft=None, speculative=None, bench={"prompts": []}, ready={"deadline": 1800, "stall": 1800})
    try:
        with on_a_terminal(made, "up", "profile=fake") as terminal:
            until(lambda: at(made, "wait"), what="the step wait")
            terminal.press(CTRL_C)
            terminal.wait()
        yield made
    finally:
        ended(made.folder)


@pytest.mark.parametrize("number", MOMENTS)
def test_ctrl_c_at_any_moment_of_a_walk_detaches(loading: Project, number: int) -> None:
    """As soon as the record has so many events: programs are being started then, and lines written."""
    known = set(loading.folder.glob("runs/*"))

    def told() -> int:
        new = set(loading.folder.glob("runs/*/events.jsonl")) - {run / "events.jsonl" for run in known}
        return sum(file.read_bytes().count(b"\n") for file in new)

    with on_a_terminal(loading, "up", "profile=fake") as terminal:
        until(lambda: told() >= number, what=f"{number} events", every=0.0)
        terminal.press(CTRL_C)
        shown = flat(terminal.wait())
    assert (terminal.process.returncode, "detached" in shown, "Traceback" in shown) == (130, True, False), shown
    assert loading.events()[-1]["facts"]["exit_code"] == 130
    assert loading.status()["state"] == "loading"


def test_a_second_ctrl_c_leaves_at_once_and_frees_the_host(project: Project) -> None:
    project.fake(fake={"ignore_term": True}, ready={"deadline": 60, "stall": 30, "patience": 60})
    assert project.run("up", "profile=fake").code == 0
    assert not list(project.folder.glob("runs/*/hosts/*/evidence*")), "a server that is good leaves no evidence"
    with on_a_terminal(project, "restart") as terminal:
        until(lambda: at(project, "stop", run=2), what="the step stop")
        terminal.press(CTRL_C)
        until(lambda: b"Ctrl-C again leaves at once" in terminal.shown, what="the first one to be heard")
        pressed = terminal.press(CTRL_C)
        shown = terminal.wait()
        took = time.monotonic() - pressed
    assert (terminal.process.returncode, took < 20) == (130, True), (took, shown)
    assert "deploy status" in shown[shown.rfind("left at once") :]
    assert shown.rfind("\x1b[?25h") >= shown.rfind("\x1b[?25l"), "the cursor is back"
    assert project.events()[-1]["kind"] != "run_ended"
    until(lambda: not (project.folder / "lock").read_text().strip(), what="the lock to be free")
