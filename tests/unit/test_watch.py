"""A run that is heard while somebody waits: what its host's program tells becomes one of the endings."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from deploy import plan
from deploy.events import Event
from deploy.host import family
from deploy.inventory import Host
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.state import Machine, Place, Run
from deploy.transport.local import LocalTransport
from deploy.watch import Watch
from tests.project import until

STALL = 1.5


@dataclass
class Heard:
    """A watch, the log that it hears, the launcher that it looks at, and the events that came of it."""

    watch: Watch
    log: Path
    launcher: subprocess.Popen[bytes]
    events: list[Event]

    def logs(self, line: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{line}\n")


def nodes(number: int) -> tuple[Node, ...]:
    """The nodes of one replica of SGLang over so many hosts."""
    wish = {"name": "x", "engine": "sglang", "hosts": "all", "nodes": number, "model": "m", "ready": {"stall": STALL}}
    hosts = [Host.model_validate({"name": f"h{rank}", "transport": "local"}) for rank in range(number)]
    return plan.make(dict.fromkeys(hosts, Profile.model_validate(wish)), None, None).nodes


@contextmanager
def heard(folder: Path, number: int = 1) -> Iterator[list[Heard]]:
    """A replica's launchers, that do nothing but live, each heard."""
    shared: dict[str, float] = {}
    with ExitStack() as stack:
        made = []
        for node in nodes(number):
            launcher = stack.enter_context(subprocess.Popen(["sleep", "100"]))
            stack.callback(launcher.kill)
            events: list[Event] = []
            remote = Remote(node.host, LocalTransport(), events.append, threading.Event())
            root = str(folder / node.host.name)
            remote.place = Place(Machine("m", "h", "u", root, root, root, {}), "x", "run")
            remote.signs = shared
            run = Path(remote.place.folder)
            run.mkdir(parents=True)
            (run / "server.log").touch()
            one = family.member(str(launcher.pid))
            assert one
            known = Run("run", str(run), None, None, None, str(one.pid), one.ticks, alive=True, exit="", stopped="")
            watch = Watch(node, remote, known)
            stack.callback(watch.close)
            made.append(Heard(watch, run / "server.log", launcher, events))
        yield made


def test_a_rank_that_waits_for_the_others_is_silent_and_does_not_hang(tmp_path: Path) -> None:
    with heard(tmp_path, 2) as (head, follower):
        numbers = count()

        def the_head_goes_on() -> bool:
            head.logs(f"step {next(numbers)}")
            return follower.watch.silence > 2 * STALL

        until(the_head_goes_on, 20, "the follower's silence")
        assert not follower.watch.over.is_set()
        until(lambda: follower.watch.stalled and head.watch.stalled, 20, "the silence of both")
        assert follower.watch.over.is_set()


FATAL = [
    ("[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use", True),
    ("[2026-11-30 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):", True),
    ("Load weight begin. avail mem=94.12 GB", False),
]


@pytest.mark.parametrize(("line", "fatal"), FATAL)
def test_a_line_after_which_it_never_serves_is_its_end_and_a_stall_is_none_beside_it(
    tmp_path: Path, line: str, fatal: bool
) -> None:
    with heard(tmp_path) as (one,):
        one.logs(line)
        until(one.watch.over.is_set, 20, "the end")
        assert (one.watch.fatal, one.launcher.poll()) == (fatal, None)


def test_a_launcher_that_is_gone_is_told_at_once_and_what_it_said_last_is_known(tmp_path: Path) -> None:
    with heard(tmp_path) as (one,):
        (one.log.parent / "exit").write_text("3\n")
        one.logs("last words")
        one.launcher.kill()
        until(one.watch.over.is_set, 20, "the end")
        assert (one.watch.gone, one.watch.exit, str(one.watch.log)) == (True, 3, "last words\n")
        assert [event.text for event in one.events if "gone" in event.facts] == ["it ended with exit code 3"]
        assert (one.watch.seen.exit, one.watch.seen.silent) == (3, None)


def test_what_is_said_in_the_end_of_a_long_log_is_enough_to_be_ready(tmp_path: Path) -> None:
    with heard(tmp_path) as (one,):
        one.logs("noise\n" * 10_000 + "The server is fired up and ready to roll!")
        assert one.watch.turn.wait(20)
        assert (one.watch.ready, one.watch.over.is_set()) == (True, False)
