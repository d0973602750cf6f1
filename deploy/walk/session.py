"""A run from the outside: reach and lock the hosts, ask them, walk the recipes, feed the views and the record."""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from deploy import options
from deploy.abreast import HEARD, on_all, together
from deploy.deployment import state
from deploy.deployment.state import Machine
from deploy.errors import DeployError, Interrupted
from deploy.events import Event
from deploy.host import hide
from deploy.inventory import Host
from deploy.locking import lease
from deploy.remote import Remote, reach
from deploy.transport import Configuration

if TYPE_CHECKING:
    from deploy.walk.course import Course, Failure
    from deploy.walk.readers import Readers

END = None


@dataclass
class Session:
    """Hosts in hand, for the length of a `with`: reached, locked if asked for, and asked what they have."""

    command: str
    typed: str = field(default_factory=options.typed)
    outcome: tuple[int, str] = (0, "done")  # the exit code and the last word, for the hosts' audit
    interrupted: threading.Event = field(default_factory=threading.Event)
    hidden: list[str] = field(default_factory=list)  # secrets that are known so far; errors are told without them
    remotes: dict[str, Remote] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    _stopping: bool = False
    _events: queue.SimpleQueue[Event | None] = field(default_factory=queue.SimpleQueue)
    _stack: ExitStack = field(default_factory=ExitStack)
    _said: Configuration = field(default_factory=Configuration)

    def open(self, hosts: Iterable[Host], *, locked: bool) -> None:
        """Reach every host, side by side. Who fails is told after all have answered, with every name."""
        failed = self.ask(hosts, locked=locked)
        if failed:
            raise together(failed)

    def ask(
        self, hosts: Iterable[Host], *, locked: bool = False, read: Callable[[Remote], Machine] = state.read
    ) -> dict[str, DeployError]:
        """Reach hosts and ask what they have (by `read`), and say which failed; the others are in hand."""
        return self._all(hosts, lambda host: self._take(host, locked=locked, read=read))

    def connect(self, hosts: Iterable[Host]) -> dict[str, DeployError]:
        """Reach hosts, ask nothing, and say which failed; the others are in hand."""
        return self._all(hosts, self._reach)

    def _all(self, hosts: Iterable[Host], act: Callable[[Host], None]) -> dict[str, DeployError]:
        wanted = list(hosts)
        failed = on_all(wanted, act)
        place = {host.name: number for number, host in enumerate(wanted)}  # not by who answered first
        self.remotes = dict(sorted(self.remotes.items(), key=lambda item: place.get(item[0], -1)))
        self.machines = dict(sorted(self.machines.items(), key=lambda item: place.get(item[0], -1)))
        return failed

    def lock(self, past: Mapping[str, str] = MappingProxyType({})) -> None:
        """Take the locks of the hosts in hand, and read again what they have.

        `past` says for a host whose hold, as user@host, shall not stop us.
        """
        failed = self.each(lambda remote: self._lock(remote.host, past.get(remote.host.name, "")))
        if failed:
            raise together(failed)

    def renew(self) -> None:
        """Be ready for another walk over these hosts: read again what they have, with nothing interrupted."""
        self.interrupted, self._stopping = threading.Event(), False
        failed = self.each(self._renew)
        if failed:
            raise together(failed)

    def _renew(self, remote: Remote) -> None:
        remote.renew(threading.Event())
        self.machines[remote.host.name] = state.read(remote)

    def each(self, act: Callable[[Remote], None]) -> dict[str, DeployError]:
        """Act on all hosts in hand, side by side; the errors of those that failed."""
        hosts = [remote.host for remote in self.remotes.values()]
        return on_all(hosts, lambda host: act(self.remotes[host.name]))

    def _take(self, host: Host, *, locked: bool, read: Callable[[Remote], Machine]) -> None:
        remote = self.reach(host)
        if locked:
            self._lock(host)
        else:
            self.machines[host.name] = read(remote)

    def _reach(self, host: Host) -> None:
        self.reach(host)

    def reach(self, host: Host) -> Remote:
        """Connect to a host; it is in hand from then on."""
        remote = reach(host, self._events.put, threading.Event(), self._said)
        self._stack.callback(remote.transport.close)
        self.remotes[host.name] = remote
        return remote

    def _lock(self, host: Host, past: str = "") -> None:
        remote = self.remotes[host.name]
        taken = lease.take(host, remote.transport, self.command, typed=self.typed, past=past)
        remote.lease = self._stack.enter_context(taken)
        self._stack.callback(lambda: taken.ended(*self.outcome))
        if taken.note:
            remote.emit("noted", taken.note)
        self.machines[host.name] = state.read(remote)

    def keep(self, names: Iterable[str]) -> None:
        """Go on with these hosts alone."""
        kept = set(names)
        self.remotes = {name: remote for name, remote in self.remotes.items() if name in kept}
        self.machines = {name: machine for name, machine in self.machines.items() if name in kept}

    def emit(self, kind: Any, text: str = "", **facts: Any) -> None:
        """An event of the run as a whole."""
        self._events.put(Event(kind, text, facts=facts))

    def walk(self, courses: list[Course], readers: Readers) -> list[Failure]:
        """Walk the recipes in a thread of their own; here, the only reader of events owns the terminal."""
        from deploy.walk.course import Failure
        from deploy.walk.runner import run  # a third of the start of a command that only looks

        failures: list[Failure] = []

        def conduct() -> None:
            try:
                failures.extend(run(courses))
            except BaseException:  # noqa: BLE001 - told whole in the record, and the reader must come to its end
                self.emit("crashed", traceback.format_exc())
                failures.append(Failure("", "", DeployError("this is a bug of deploy; its traceback is in the record")))
            finally:
                self._events.put(END)

        threading.Thread(target=conduct, name="conductor", daemon=True).start()
        while (event := self._next()) is not END:
            readers.on(event)
        return failures

    def _next(self) -> Event | None:
        """The next event; looked for again and again, as in `joined`."""
        while True:
            with suppress(queue.Empty):
                return self._events.get(timeout=HEARD)

    def interrupt(self, courses: list[Course]) -> None:
        """The first Ctrl-C stops at the next safe place; the second one leaves at once."""
        if self._stopping:
            with suppress(OSError):  # a closed terminal
                os.write(2, b"\nleft at once; what was begun on the hosts is not undone: deploy status\n")
            os._exit(Interrupted.exit_code)
        self._stopping = True  # at once: a second one may come while the switches are set, which hold locks for that
        self.interrupted.set()
        for course in courses:
            course.abort.set()
        self.emit("noted", "stopping at the next safe place; Ctrl-C again leaves at once")

    def close(self) -> None:
        """Let go of locks and hosts."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, DeployError):
            forms = hide.forms(self.hidden)
            for part in ("what", "evidence", "remedy"):
                setattr(error, part, hide.hide(getattr(error, part), forms))
            self.outcome = (error.exit_code, error.what)
        elif error is not None:
            bug = isinstance(error, Exception) and type(error).__name__ != "Abort"  # click's word for a Ctrl-C
            self.outcome = (1, f"a bug of deploy: {error!r}") if bug else (Interrupted.exit_code, "stopped")
        self.close()
