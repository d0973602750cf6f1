"""The fault table: what can happen in each step, how the command ends then, and what it does when it is run again.

Each row on a host of its own: an earlier server serves, the command is held in a step, the fault strikes, the command
goes on, and ends with this code and these words. It is run again, and must come to green. In between and at the end
nothing is there that was not before: no process, no port, no half release, no temporary file, no lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.case import UP, fake
from tests.faults.faults import (
    Fault,
    another,
    cable_cut,
    client_frozen,
    client_killed,
    disk_full,
    faster,
    hook_fails,
    hook_hangs,
    nothing,
    port_taken,
    server_killed,
    told,
)

BEFORE = ""  # the fault strikes before the command is started
SIGKILLED = -9
COMMANDS = {
    "up": UP,
    "restart": ("restart", "profile=fake"),
    "rollback": ("rollback", "profile=fake"),
    "down": ("down", "profile=fake"),
}


@dataclass(frozen=True)
class Row:
    """A line of the table.

    again: what `up` does then: "replace", "verify"; or "repeat" for the same command, which ends well.
    wish, old: more words of the command, of the earlier server's `up`; `still`: those that are said again.
    kept: the earlier server must serve on after the fault. engine: "llamacpp" for the real one.
    full: only in the full matrix.
    """

    moment: str
    fault: Fault
    code: int
    words: str
    again: str
    command: str = "up"
    wish: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    kept: bool = False
    name: str = ""
    engine: str = "fake"
    full: bool = False

    @property
    def id(self) -> str:
        """As for `pytest -k`."""
        where = [*(["llama.cpp"] if self.engine == "llamacpp" else []), self.command, self.moment]
        where = [word for word in where if word not in ("", "up")]
        return f"{', '.join(where) or 'before'}: {self.name or told(self.fault)}"

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """For `pytest -m`."""
        return [*([pytest.mark.full] if self.full else []), *([pytest.mark.engine] if self.engine != "fake" else [])]

    @property
    def argv(self) -> tuple[str, ...]:
        return (*COMMANDS[self.command], *self.wish)


def rows(moments: str, fault: Fault, code: int, words: str, again: str, **more: Any) -> Iterator[Row]:
    """The same for several moments, with `;` between them; those with a * belong to the full matrix alone."""
    for moment in moments.split("; "):
        yield Row(moment.rstrip("*"), fault, code, words, again, full=moment.endswith("*"), **more)


def dies(phase: str, words: str, *, full: bool = False) -> Row:
    """The server dies while it loads, and some of its processes outlive it."""
    wish = (fake(die_at=phase, children=1, stragglers=1, orphans=1),)
    return Row(BEFORE, nothing, 6, words, "replace", wish=wish, name=f"server dies in {phase}", full=full)


def hooked(point: str, on: str) -> tuple[str, ...]:
    return (f"hooks.{point}=[{{run: hooks/bad, on: {on}, timeout: 1}}]",)


STUBBORN = (fake(ignore_term=True, children=2, stragglers=1),)
MANY = (fake(children=2, stragglers=2, orphans=2),)
FULL = "disk is full"

# fmt: off
CLIENT_KILLED = [
    *rows("preflight; push; push, reading back*; prepare", client_killed, SIGKILLED, "", "replace", kept=True),
    *rows("stop; free; launch, written*; launch", client_killed, SIGKILLED, "", "replace"),
    *rows("wait; health; smoke; bench*; gate; ready", client_killed, SIGKILLED, "", "verify"),
    *rows("recall", client_killed, SIGKILLED, "", "repeat", command="rollback", kept=True),
    *rows("wait", client_killed, SIGKILLED, "", "repeat", command="rollback"),
    *rows("stop; free*; stopped", client_killed, SIGKILLED, "", "repeat", command="down"),
]
CLIENT_FROZEN = [  # meanwhile the second operator does the same, so that it is done
    *rows("preflight*; push*; push, reading back; prepare*; stop*; free; launch, written*; launch; wait; health*; "
          "smoke*; bench*; gate; ready*", client_frozen, 4, "lease", "verify"),
    *rows("recall", client_frozen, 4, "lease", "verify", command="rollback"),
    *rows("stop; free*; stopped", client_frozen, 4, "lease", "verify", command="down"),
]
CABLE_CUT = [
    *rows("preflight*; push; push, reading back*; prepare*", cable_cut, 3, "host", "replace", kept=True),
    *rows("stop; free*; launch, written*", cable_cut, 3, "host", "replace"),
    *rows("launch; wait; health*; smoke*; bench*; gate; ready*", cable_cut, 3, "host", "verify"),
    *rows("recall", cable_cut, 3, "host", "repeat", command="rollback", kept=True),
    *rows("stop; free*; stopped", cable_cut, 3, "host", "repeat", command="down"),
]
DISK_FULL = [
    *rows(BEFORE, disk_full, 5, "are wanted there", "replace", kept=True),
    *rows("push; push, reading back", disk_full, 1, FULL, "replace", kept=True),
    *rows("stop; launch, written; launch*", disk_full, 1, FULL, "replace"),
    *rows("wait", disk_full, 6, FULL, "replace"),
    *rows("smoke*; bench*; gate", disk_full, 1, FULL, "verify"),
    *rows("ready", disk_full, 0, "done", "verify"),
    *rows("recall", disk_full, 1, FULL, "repeat", command="rollback", kept=True),
    *rows(BEFORE, disk_full, 1, "that it is ended cannot be noted", "repeat", command="down"),
]
PORT_TAKEN = [
    *rows("free", port_taken, 7, "somebody else's process holds", "replace"),
    *rows("free", port_taken, 0, "done", "verify", wish=("evict=yes",), name="port taken, and evict=yes"),
    *rows("launch", port_taken, 6, "address already in use", "replace"),
]
SECOND_OPERATOR = [
    *rows("preflight*; wait; ready*", another(*UP), 0, "done", "verify"),
    *rows("wait", another("restart"), 0, "done", "verify"),
    *rows("wait", another("rollback"), 0, "done", "verify"),
    *rows("wait", another("down"), 0, "done", "verify"),
    *rows("lock", faster(*UP), 0, "done", "verify"),
    *rows("lock", faster(*UP, "env.X=1"), 0, "done", "verify", command="restart", still=("env.X=1",)),
    *rows("lock", faster("down"), 0, "done", "repeat", command="down"),
]
SERVER_DIES = [
    dies("args", "Unrecognized model"),
    dies("rendezvous", "Timed out", full=True),
    dies("weights", "out of memory"),
    dies("draft", "another shape", full=True),
    dies("kv", "Not enough memory", full=True),
    dies("graphs", "no kernel image", full=True),
    dies("http", "the process of rank 0 was killed", full=True),
    dies("warmup", "Internal Server Error"),
    *rows("health; smoke*; bench*; gate; ready", server_killed, 6, "the server was killed", "replace"),
]
SERVER_MISBEHAVES = [
    Row(BEFORE, nothing, 0, "KILL", "verify", old=STUBBORN, name="old server ignores TERM"),
    Row(BEFORE, nothing, 0, "KILL", "repeat", "down", old=STUBBORN, name="server ignores TERM"),
    Row(BEFORE, nothing, 0, "processes ended by TERM", "verify", old=MANY, name="old server leaves children"),
    Row(BEFORE, nothing, 0, "processes ended by TERM", "repeat", "down", old=MANY, name="server leaves children"),
    Row(BEFORE, nothing, 7, "it serves other, not tiny", "replace", wish=(fake(model="other"),), name="another model"),
]
HOOKS = [
    Row(BEFORE, fault, code, words, again, command, wish=wish, still=wish[:1], old=old, kept=point == "prepare",
        name=f"{point} {told(fault)} on {on}", full=(fault is hook_hangs) == (on == "controller"))
    for fault, words in ((hook_hangs, "still ran after 1 s"), (hook_fails, "the disk is on fire"))
    for on in ("host", "controller")
    for point, code, again, command, wish, old in (
        ("prepare", 1, "replace", "up", hooked("prepare", on), ()),
        ("ready", 1, "verify", "up", hooked("ready", on), ()),
        ("failed", 9, "verify", "up", (*hooked("failed", on), "gates.accept_length=>= 9"), ()),
        ("stopped", 1, "repeat", "down", (), hooked("stopped", on)),
    )
]
# fmt: on

REAL = [
    *rows("stop*; launch", client_killed, SIGKILLED, "", "replace", engine="llamacpp"),
    *rows("gate", client_killed, SIGKILLED, "", "verify", engine="llamacpp"),
    *rows("gate", client_frozen, 4, "lease", "verify", engine="llamacpp"),
    *rows("launch", cable_cut, 3, "host", "verify", engine="llamacpp"),
    *rows("gate", server_killed, 6, "the server was killed", "replace", engine="llamacpp"),
    *rows("launch*", port_taken, 6, "", "replace", engine="llamacpp"),
    *rows("*", disk_full, 5, "are wanted there", "replace", kept=True, engine="llamacpp"),
]

TABLE = [
    *CLIENT_KILLED, *CLIENT_FROZEN, *CABLE_CUT, *DISK_FULL, *PORT_TAKEN, *SECOND_OPERATOR, *SERVER_DIES,
    *SERVER_MISBEHAVES, *HOOKS, *REAL,
]  # fmt: skip
