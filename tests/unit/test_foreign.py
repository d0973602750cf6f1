"""Who holds what a node needs, from what a host told: which case it is, and in which words."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from deploy import plan
from deploy.checks import Case, ports
from deploy.deployment.state import Machine, Place
from deploy.engines._ports import Port, spans
from deploy.facts import Facts, known
from deploy.facts.devices import Devices
from deploy.facts.ephemeral import Ephemeral
from deploy.facts.gpus import ComputeProcess, Gpu, Gpus
from deploy.facts.processes import Process, Processes
from deploy.facts.sockets import Listener
from deploy.findings import Finding
from deploy.inventory import Host
from deploy.ownership import foreign
from deploy.ownership.foreign import Holder
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.steps._measured import Look, not_free, settled, unseen
from deploy.transport.local import LocalTransport

OURS = "/w/m/p/runs/1"
US = 900  # our own program on the host, below a shell


def process(pid: int, uid: int = 1000, state: str = "S", name: str = "python", **more: Any) -> Process:
    said = {"ppid": 1, "pgrp": pid, "session": pid, "start_ticks": pid, "age": 60.0, "threads": 1, "run": ""}
    said |= {"state": state, "uid": uid, "user": f"u{uid}", "name": name, "cmdline": (name, "x.py"), "cgroup": "/"}
    return Process(pid=pid, **{**said, **more})


def seen(*there: Process, uid: int = 1000, **told: Any) -> Facts:
    """A host with two GPUs that nobody uses, and a port range of a kernel's own; `told` is what is different."""
    gpus = [Gpu(index, f"GPU-{index}", "NVIDIA B200", 183359, 0, "570.1", "10.0") for index in range(2)]
    for index, used in told.pop("used", {}).items():
        gpus[index] = Gpu(index, f"GPU-{index}", "NVIDIA B200", 183359, used, "570.1", "10.0")
    holders = tuple(ComputeProcess(f"GPU-{gpu}", pid, "python", mib) for gpu, pid, mib in told.pop("apps", ()))
    asking = (process(US, uid, ppid=899), process(899, uid))
    facts: dict[str, Any] = {
        "processes": Processes("boot", (*there, *asking), US),
        "sockets": (),
        "gpus": Gpus(tuple(gpus), holders),
        "devices": Devices({}, frozenset(), {"GPU-0": 0, "GPU-1": 1}),
        "ephemeral": Ephemeral(32768, 60999, ()),
    }
    return known(**{**facts, **told})


def node(**fields: Any) -> Node:
    wish = {"name": "p", "engine": "sglang", "model": "/m", "hosts": "all", "gpus": 2, "parallel": {"tp": 2}, **fields}
    where = Host.model_validate({"name": "here", "transport": "local"})
    return plan.make({where: Profile.model_validate(wish)}, None, None).nodes[0]


def found(told: Facts, **fields: Any) -> list[Finding]:
    """What the check says of it."""
    wish = node(**fields)
    remote = Remote(wish.host, LocalTransport("here"), lambda _: None, threading.Event())
    remote.place = Place(Machine("m", "here", "u", "/home/u", "/w", "/w/m", {}), "p", "2")
    return list(ports.check(Case(wish.host, told, wish, remote)))


def holders(told: Facts, **fields: Any) -> list[str]:
    wish = node(**fields)
    return [str(one) for one in foreign.holders(wish, foreign.ports(wish, None), told)]


def test_nobody_holds_anything() -> None:
    assert holders(seen()) == []
    assert [(one.verdict, one.what) for one in found(seen())] == [("PASS", "port 30000: ours to take")]


def opened(files: dict[int, tuple[str, ...]], *unread: int) -> Devices:
    return Devices(files, frozenset(unread), {"GPU-0": 0, "GPU-1": 1}, there=True)


OTHER = process(7)
HIDING = f"""GPU 1 is held by no process that nvidia-smi names, 9000 MiB
  has its device file open: {OTHER}
  5 processes of other users may not be looked at"""
# (what the host told, the words of who holds what)
HELD: dict[str, tuple[Facts, list[str]]] = {
    "a process, with its memory": (
        seen(OTHER, used={0: 9000}, apps=[(0, 7, 9000)]),
        ["GPU 0 is held by pid 7 of u1000, 60 s old: python x.py, 9000 MiB"],
    ),
    "one of another deployment": (
        seen(process(7, run="/w/m/other/runs/1"), used={0: 9000}, apps=[(0, 7, 9000)]),
        ["GPU 0 is held by pid 7 of u1000, 60 s old: python x.py (deployment other), 9000 MiB"],
    ),
    "one that the kernel does not let go": (
        seen(process(7, state="D"), used={0: 9000}, apps=[(0, 7, 9000)]),
        ["GPU 0 is held by pid 7 of u1000, 60 s old: python x.py (state D: it waits in the kernel), 9000 MiB"],
    ),
    "one that is nowhere here": (
        seen(used={0: 9000}, apps=[(0, 4242, 9000)]),
        ["GPU 0 is held by pid 4242 of another pid namespace, as in a container, 9000 MiB"],
    ),
    "one whose pid somebody else has here, who has no GPU open": (
        seen(OTHER, used={0: 9000}, apps=[(0, 7, 9000)], devices=opened({8: ("/dev/nvidia0",)})),
        ["GPU 0 is held by pid 7 of another pid namespace, as in a container, 9000 MiB"],
    ),
    "one that may have it open": (
        seen(OTHER, used={0: 9000}, apps=[(0, 7, 9000)], devices=opened({}, 7)),
        ["GPU 0 is held by pid 7 of u1000, 60 s old: python x.py, 9000 MiB"],
    ),
    "one that has closed it, and ends": (
        seen(process(7, cmdline=()), used={0: 9000}, apps=[(0, 7, 9000)], devices=opened({})),
        ["GPU 0 is held by pid 7 of u1000, 60 s old: [python], 9000 MiB"],
    ),
    "nobody": (seen(used={1: 9000}), ["GPU 1 is held by no process that nvidia-smi names, 9000 MiB"]),
    "nobody that nvidia-smi names, and who has the device open": (
        seen(
            OTHER,
            process(8, name="nvidia-persiste"),
            process(9),
            used={1: 9000},
            devices=opened(
                {7: ("/dev/nvidia1", "/dev/nvidiactl"), 8: ("/dev/nvidia1",), 9: ("/dev/nvidia0",)}, *range(20, 25)
            ),
        ),
        [HIDING],
    ),
    "more than is named": (
        seen(OTHER, used={0: 90000}, apps=[(0, 7, 9000)]),
        [
            "GPU 0 is held by pid 7 of u1000, 60 s old: python x.py, 9000 MiB",
            "GPU 0 is held by no process that nvidia-smi names, 81000 MiB",
        ],
    ),
    "what an idle GPU keeps": (seen(used={0: 500, 1: 512}), []),
    "more than that": (seen(used={0: 513}), ["GPU 0 is held by no process that nvidia-smi names, 513 MiB"]),
    "one that only shares it out": (seen(process(7, name="nvidia-cuda-mps"), used={0: 30}, apps=[(0, 7, 30)]), []),
    "two on a port": (
        seen(OTHER, process(8), sockets=(Listener("0.0.0.0", 30000, 1000, (7, 8)),)),
        [f"port 30000 is held by pid {pid} of u1000, 60 s old: python x.py" for pid in (7, 8)],
    ),
    "another user's on a port": (
        seen(sockets=(Listener("::", 30000, 0, None),)),
        ["port 30000 is held by a process that cannot be seen from here (of user id 0)"],
    ),
    "somebody on a port of no interest": (seen(OTHER, sockets=(Listener("::", 30001, 1000, (7,)),)), []),
}  # fmt: skip


@pytest.mark.parametrize("case", HELD)
def test_it_is_held_by(case: str) -> None:
    told, expected = HELD[case]
    assert holders(told) == expected


# (what the host told, fields of the profile, the verdict, and words of the finding)
JUDGED: dict[str, tuple[Facts, dict[str, Any], str, str]] = {
    "somebody's": (seen(OTHER, apps=[(0, 7, 9000)]), {}, "FAIL", "or take it with evict=yes"),
    "somebody's, given away": (seen(OTHER, apps=[(0, 7, 9000)]), {"evict": True}, "WARN", "evict=yes ends it"),
    "another user's, given away": (seen(process(7, 0), apps=[(0, 7, 9000)]), {"evict": True}, "FAIL", "or root can"),
    "another user's, and we are root": (
        seen(process(7, 33), apps=[(0, 7, 9000)], uid=0),
        {"evict": True},
        "WARN",
        "evict=yes ends it",
    ),
    "another deployment's": (
        seen(process(7, run="/w/m/q/runs/1"), apps=[(0, 7, 9000)]),
        {},
        "FAIL",
        "the server of deployment q is in the way",
    ),
    "another deployment's, and how it goes": (
        seen(process(7, run="/w/m/q/runs/1"), apps=[(0, 7, 9000)]),
        {},
        "FAIL",
        "if it is yours: deploy down profile=q; ask its owner",
    ),
    "what we run under": (seen(sockets=(Listener("::", 30000, 1000, (899,)),)), {"evict": True}, "FAIL", "runs under"),
    "our own": (seen(process(7, run=OURS), apps=[(0, 7, 9000)]), {}, "PASS", "ours to take"),
    "our own, in the kernel": (seen(process(7, run=OURS, state="D"), apps=[(0, 7, 9000)]), {}, "PASS", "ours to take"),
    "beside our own, a hidden one": (
        seen(process(7, run=OURS), apps=[(0, 4242, 9000), (1, 7, 100)]),
        {},
        "WARN",
        "pid 4242 of another pid namespace",
    ),
    "one whose pid another one has here, given away": (
        seen(OTHER, apps=[(0, 7, 9000)], devices=opened({})),
        {"evict": True},
        "FAIL",
        "it cannot be seen from here",
    ),
    "a hidden one alone": (seen(apps=[(0, 4242, 9000)]), {"evict": True}, "FAIL", "pid 4242 of another pid namespace"),
    "a hidden port": (
        seen(sockets=(Listener("::", 30000, 0, None),)),
        {"evict": True},
        "FAIL",
        "only they or root can",
    ),
    "a hidden port of our own user": (
        seen(sockets=(Listener("::", 30000, 1000, None),)),
        {"evict": True},
        "FAIL",
        "another namespace's",
    ),
    "what lingers": (seen(used={1: 9000}), {}, "WARN", "it must be gone before the launch"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_before_anything_is_touched_it_is(case: str) -> None:
    told, fields, verdict, words = JUDGED[case]
    (finding,) = found(told, **fields)
    assert finding.verdict == verdict
    assert words in f"{finding.what}\n{finding.evidence}\n{finding.remedy}"


# (the node's port, the kernel's range, what is reserved in it, the ports that are warned of)
GIVEN: list[tuple[int, tuple[int, int], tuple[range, ...], str]] = [
    (30000, (32768, 60999), (), ""),
    (40000, (32768, 60999), (), "40000"),
    (32768, (32768, 60999), (), "32768"),
    (60999, (32768, 60999), (), "60999"),
    (40000, (32768, 60999), (range(39999, 40001),), ""),
    (40000, (32768, 60999), (range(39999, 40000),), "40000"),
]


@pytest.mark.parametrize(("port", "ends", "reserved", "warned"), GIVEN)
def test_ports_that_the_kernel_gives_to_others(
    port: int, ends: tuple[int, int], reserved: tuple[range, ...], warned: str
) -> None:
    findings = found(seen(ephemeral=Ephemeral(*ends, reserved)), port=port)
    assert [one.verdict for one in findings] == ["PASS", *(["WARN"] if warned else [])]
    assert f"net.ipv4.ip_local_reserved_ports={warned}" in findings[-1].remedy if warned else len(findings) == 1


def test_a_kernel_that_would_not_say_is_no_warning() -> None:
    assert [one.verdict for one in found(seen(ephemeral=None), port=40000)] == ["PASS"]


def look(used: dict[int, int | None], *held: Holder, waited: float = 1.0) -> Look:
    return Look(seen(), waited, (), held, used)


HOLDS = Holder("GPU 0", "nobody", mib=9000)
M = 1 << 20
# (the look before, the last one, whether both together show that nobody is there and nobody comes or goes)
SETTLED: dict[str, tuple[Look | None, Look, bool]] = {
    "one look alone": (None, look({0: 0}), False),
    "two that agree": (look({0: 0}), look({0: 0}), True),
    "about": (look({0: 400 * M}), look({0: 460 * M}), True),
    "it still falls": (look({0: 465 * M}), look({0: 400 * M}), False),
    "somebody starts": (look({0: 0}), look({0: 65 * M}), False),
    "on one of two": (look({0: 0, 1: 0}), look({0: 0, 1: 300 * M}), False),
    "it was held just before": (look({0: 0}, HOLDS), look({0: 0}), False),
    "it does not tell": (look({0: None}), look({0: None}), True),
    "no GPU is wanted": (None, look({}), True),
}


@pytest.mark.parametrize("case", SETTLED)
def test_it_is_settled(case: str) -> None:
    before, last, expected = SETTLED[case]
    assert settled(before, last) is expected


SLOW = Gpus(None, None, "nvidia-smi: it had not ended after 20 s", late=True)
# (what was seen of the GPUs, how many are wanted, seconds since the first look, whether another look is worth waiting)
UNSEEN = [
    (SLOW, 2, 0.0, True),
    (SLOW, 2, 60.5, False),
    (SLOW, 0, 0.0, False),
    (Gpus(None, None, "Driver/library version mismatch"), 2, 0.0, False),
    (Gpus(None, None, "there is no nvidia-smi"), 2, 0.0, False),
]


@pytest.mark.parametrize(("told", "wanted", "waited", "expected"), UNSEEN)
def test_gpus_that_nvidia_smi_is_late_to_show_are_not_taken_for_free(
    told: Gpus, wanted: int, waited: float, expected: bool
) -> None:
    wish = node(gpus=wanted, parallel={"tp": max(1, wanted)})
    why = unseen(wish, Look(seen(gpus=told), waited, [], [], {}), 60.0)
    assert why == (f"the GPUs cannot be seen: {told.error}" if expected else "")


@pytest.mark.parametrize(
    ("first", "last", "line"),
    [
        (9000, 9000, "GPU 0: 9000 MiB at first, 9000 MiB after 7 s: it does not move"),
        (40000, 9000, "GPU 0: 40000 MiB at first, 9000 MiB after 7 s: it falls"),
        (9000, 40000, "GPU 0: 9000 MiB at first, 40000 MiB after 7 s: it grows"),
    ],
)
def test_whether_waiting_longer_could_help_is_told(first: int, last: int, line: str) -> None:
    wish = node()
    remote = Remote(wish.host, LocalTransport("here"), lambda _: None, threading.Event())
    error = not_free(remote, look({0: first * M}), look({0: last * M}, HOLDS, waited=7.4), ())
    assert line in error.evidence


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([30000], "port 30000"),
        ([30000, 30233, 30234, 30235], "ports 30000, 30233-30235"),
        ([], "ports none"),
    ],
)
def test_ports_in_words(numbers: list[int], words: str) -> None:
    assert spans([Port(number, "") for number in numbers]) == words
