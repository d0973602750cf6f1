"""Who serves, from answers of hosts that a test cannot be on: other users, other addresses, another boot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy import plan
from deploy.deployment.state import Machine, Place
from deploy.errors import DeployError
from deploy.host import identity as program
from deploy.host.processes import parse_variables
from deploy.inventory import Host
from deploy.profile import Profile
from deploy.server import identity

RUN = "/w/it/runs/r1"


WELL = {"wiped": False, "differs": {}}


def process(pid: int, ppid: int, run: str | None = "", **more: Any) -> dict[str, Any]:
    base = {"pid": pid, "name": "x", "state": "S", "ppid": ppid, "pgrp": pid, "session": pid, "threads": 1}
    return {**base, "start_ticks": pid, "uid": 1000, "user": "me", "cmdline": ["x"], "cgroup": "/", "run": run, **more}


def listener(address: str = "127.0.0.1", pids: list[int] | None = None, uid: int = 1000) -> dict[str, Any]:
    return {"address": address, "port": 30000, "uid": uid, "pids": pids}


def answer(*sockets: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A launcher (10) and its server (11), a stranger (20), and our own connection (30)."""
    processes = [process(10, 1, RUN), process(11, 10, RUN), process(20, 1, uid=2000), process(30, 1)]
    base = {"boot_id": "now", "uptime": 1.0, "ticks_per_second": 100, "asked_by": 30, "processes": processes}
    ours = {"11": WELL}
    return {**base, "sockets": sockets, "launcher": ["10", "10", "now"], "environments": ours, "paths": [], **more}


def seen(told: dict[str, Any]) -> tuple[list[int], str]:
    """The pids that serve, and what is told of them: findings, or the error with its exit code."""
    fields = {"name": "it", "engine": "command", "hosts": "here", "model": "/m", "args": {"argv": ["x"]}}
    node = plan.make({Host.model_validate({"name": "here"}): Profile.model_validate(fields)}, None, None).nodes[0]
    place = Place(Machine("m1", "here", "me", "/home/me", "/w", "/w", {}), "it", "r1")
    remote = SimpleNamespace(python=lambda *_, **__: told, host=SimpleNamespace(name="here"), place=place)
    try:
        serving = identity.look(node, cast("Any", remote))
    except DeployError as error:
        return [], f"{error.exit_code}: {error}"
    return [one.pid for one in serving.processes], "; ".join(finding.what for finding in serving.findings)


CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "its own process": (answer(listener(pids=[11])), [11], ""),
    "two processes that share a socket": (answer(listener(pids=[11, 20])), [11], ""),
    "of another user, and not seen": (answer(listener(uid=2000)), [], "7: here: port 30000 is answered by a process"),
    "of our user, and not seen": (answer(listener()), [], "is not proven"),
    "nobody": (answer(), [], "is not proven"),
    "a stranger on all addresses, ours on this one": (
        answer(listener("0.0.0.0", [20]), listener("127.0.0.1", [11])), [11], "",
    ),
    "a stranger on this address, ours on all": (
        answer(listener("0.0.0.0", [11]), listener("127.0.0.1", [20])), [], "7: here: port 30000 is answered by",
    ),
    "all addresses of both kinds": (answer(listener("::", [20]), listener("0.0.0.0", [11])), [11], ""),
    "IPv6 alone, which takes IPv4 too": (answer(listener("::", [11])), [11], ""),
    "workers that share its port, in an environment of its making": (
        answer(
            listener(pids=[11, 12]),
            processes=[process(10, 1, RUN), process(11, 10, RUN), process(12, 11, RUN), process(30, 1)],
            environments={"11": WELL, "12": {"wiped": False, "differs": {"A": "8"}}},
        ),
        [11, 12], "processes of the server live in another environment than it: A",
    ),
    "a child that alone has the port, in another environment": (
        answer(
            listener(pids=[12]),
            processes=[process(10, 1, RUN), process(11, 10, RUN), process(12, 11, RUN), process(30, 1)],
            environments={"11": WELL, "12": {"wiped": False, "differs": {"A": "8"}}},
        ),
        [], "7: here: the server lives in another environment than it was given (A)",
    ),
    "a launcher of another boot": (
        answer(listener(pids=[11]), launcher=["10", "10", "before"]), [11], "lost its launcher",
    ),
    "a launcher whose pid is another's now": (
        answer(listener(pids=[11]), launcher=["10", "9", "now"]), [11], "lost its launcher",
    ),
    "a launcher that wrote no pid": (answer(listener(pids=[11]), launcher=[]), [11], "lost its launcher"),
    "a launcher that wrote nonsense": (answer(listener(pids=[11]), launcher=["x", "-1"]), [11], "lost its launcher"),
    "nothing of the run": (
        answer(listener(pids=[20]), processes=[process(20, 1), process(30, 1)]), [], "7: here: the server is gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_serves(case: str) -> None:
    told, pids, words = CASES[case]
    found, said = seen(told)
    assert (found, words in said, bool(words) == bool(said)) == (pids, True, True), said


VARIABLES: list[tuple[bytes, dict[str, str] | None]] = [
    (b"A=1\0B=\0C=x=y\0", {"A": "1", "B": "", "C": "x=y"}),
    (b"A=\xff\0", {"A": "\\xff"}),
    (b"A=1\nB=2\0", {"A": "1\nB=2"}),
    (b"\0" * 220, None),  # as the real setproctitle leaves it
    (b"heduler_TP0_DP1\0\0\0", None),  # a title that is longer than the command line was
    (b"", None),
]


@pytest.mark.parametrize(("content", "variables"), VARIABLES)
def test_an_environment_is_read_or_known_for_wiped(content: bytes, variables: dict[str, str] | None) -> None:
    assert parse_variables(content) == variables


def test_what_differs_is_told_and_no_secret_with_it() -> None:
    found = {"NCCL_DEBUG": "WARN", "SOME_TOKEN": "t0p", "HF_TOKEN": "mine", "OTHER": "x"}
    wanted = {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring", "SOME_TOKEN": "other", "HF_TOKEN": None, "API_KEY": None}
    told = program.differing(found, wanted, ["SOME_TOKEN"])
    assert told == {"NCCL_DEBUG": "WARN", "NCCL_ALGO": None, "SOME_TOKEN": "", "API_KEY": None}
