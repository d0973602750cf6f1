"""Probes: what is made of a measurement, on paper; and the programs that measure, on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import host, probes
from deploy.checks import Case
from deploy.errors import ConfigError, DeployError, RemoteFailed, Unreachable
from deploy.facts import known, network
from deploy.facts.gpus import ComputeProcess, Gpus
from deploy.inventory import Host
from deploy.plan import Node
from deploy.probes import amount, disk, links, nccl
from deploy.remote import Remote
from deploy.transport.local import LocalTransport
from tests import gpu_hosts, hardware
from tests.hardware import ETH, FAST, LO
from tests.project import PATIENCE

GIB = 1 << 30


def program(name: str, *words: str, stdin: str = "", timeout: float = 120.0) -> Any:
    """What a host program prints as JSON."""
    argv = [sys.executable, "-I", "-c", host.source(name), *words]
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=True, timeout=timeout)
    return json.loads(done.stdout)


def here(name: str, address: str, node: Node | None = None, **facts: Any) -> Case:
    """This machine under a name and a loopback address."""
    where = Host.model_validate({"name": name, "address": address, "transport": "local"})
    remote = Remote(where, LocalTransport(name), lambda _: None, threading.Event())
    return Case(where, known(**facts), node, remote)


def test_probes_are_named_before_anything_is_begun():
    assert probes.named("links, disk,links,") == ["links", "disk"]
    with pytest.raises(ConfigError, match="there is no probe 'dsk'") as wrong:
        probes.named("links,dsk")
    assert "'disk'" in wrong.value.remedy


@pytest.mark.parametrize("name", ["disk", "nccl"])
def test_without_a_profile_nobody_knows_what_to_measure(name):
    ((_, found),) = probes.run([name], [here("a", "127.0.0.1")])
    assert (found.verdict, "profile=" in found.remedy) == ("UNKNOWN", True)


AMOUNTS = {595e9: "595 GB", 1.234e9: "1.23 GB", 999.9e6: "1000 MB", 64: "64 bytes", 1.5e12: "1.5 TB", 2048: "2.05 kB"}


@pytest.mark.parametrize("error", [RemoteFailed("no program", status=1), Unreachable("the connection was lost")])
def test_a_host_that_breaks_off_does_not_take_the_other_s_answer_along(error: DeployError):
    remotes = [Remote(Host.model_validate({"name": name}), LocalTransport(), print, threading.Event()) for name in "ab"]
    cases = [Case(remote.host, known(), None, remote) for remote in remotes]

    def act(case: Case) -> str:
        if case.host.name == "a":
            raise error
        return "fine"

    assert [told for _, told in probes.side_by_side(act, cases)] == [error, "fine"]
    assert probes.unknown("disk", error).what == error.what


@pytest.mark.parametrize("size", AMOUNTS)
def test_amounts_are_said_as_people_do(size):
    assert amount(size) == AMOUNTS[size]


# ---- disk ------------------------------------------------------------------------------------------------------------

TOLD: dict[str, Any] = {"path": "/m", "files": 64, "direct": True, "missing": False, "error": ""}
DISKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "fast": ({"bytes": 595e9, "rates": {"8": 3.1e9, "1": 1.2e9}}, "PASS", "595 GB in 64 files, 3.1 GB/s: .* 3 min"),
    "slow": ({"bytes": 595e9, "rates": {"8": 0.2e9}}, "WARN", "reads for 50 min, and ready.deadline is 20 min"),
    "one reader is faster": ({"bytes": 60e9, "rates": {"8": 1e8, "1": 2e8}}, "PASS", "200 MB/s: .* 5 min"),
    "nothing was read": ({"bytes": 60e9, "rates": {}}, "UNKNOWN", "could not be measured"),
    "an error": ({"bytes": 0, "rates": {}, "error": "No such file"}, "UNKNOWN", "could not be measured"),
    "a read that hangs": ({"bytes": 9, "rates": {"8": 1}, "error": "has not ended"}, "UNKNOWN", "could not be"),
}


@pytest.mark.parametrize("case", DISKS.values(), ids=DISKS)
def test_a_read_rate_becomes_the_time_that_a_load_reads(case):
    told, verdict, what = case
    (found,) = disk.judged(gpu_hosts.node(8, ready={"deadline": 1200}), [{**TOLD, **told}])
    assert found.verdict == verdict
    assert re.search(what, found.what), found.what


def test_files_are_read_past_the_page_cache_each_block_once(tmp_path: Path) -> None:
    for name, size in {"a.safetensors": 20 << 20, "b.safetensors": 3 << 20, "other.bin": 1 << 20}.items():
        (tmp_path / name).write_bytes(os.urandom(size))
    (told,) = program("readrate", "5", "2,1", str(tmp_path))
    assert (told["files"], told["bytes"], told["error"]) == (2, 23 << 20, "")
    assert list(told["rates"]) == ["2"], "the first readers read all of it"
    assert told["rates"]["2"] > 0


def test_a_long_read_ends_when_its_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"")
    os.truncate(tmp_path / "a.gguf", 1 << 40)  # of nothing: it would take minutes
    (told,) = program("readrate", "0.3", "2,1", str(tmp_path / "a.gguf"), timeout=60)
    assert (set(told["rates"]), told["error"]) == ({"2", "1"}, "")


WITHOUT: dict[str, tuple[Callable[[Path], Any], bool, str]] = {
    "no folder": (lambda folder: folder / "none", True, "No such file"),
    "no weights": (lambda folder: folder, False, "there are no weights"),
    "an empty file": (lambda folder: (folder / "x.gguf").write_bytes(b"") and None, False, "there are no weights"),
}


@pytest.mark.parametrize("case", WITHOUT.values(), ids=WITHOUT)
def test_where_there_is_nothing_to_read_it_says_so(case, tmp_path):
    make, missing, words = case
    (told,) = program("readrate", "1", "1", str(make(tmp_path) or tmp_path))
    assert (told["missing"], words in told["error"], told["rates"]) == (missing, True, {})


# ---- links -----------------------------------------------------------------------------------------------------------

SIZES = [2, 3, 4, 5, 8, 9, 10]


@pytest.mark.parametrize("count", SIZES)
def test_nobody_talks_to_two_at_once_and_every_pair_talks_both_ways(count):
    ends = [links.End(hardware.case(None), f"192.0.2.{n}") for n in range(count)]
    found = list(links.rounds(ends))
    for pairs in found:
        busy = Counter(end.address for pair in pairs for end in pair)
        assert set(busy.values()) == {1}
    said = Counter((a.address, b.address) for pairs in found for a, b in pairs)
    assert set(said.values()) == {1}
    assert len(said) == (count * (count - 1) if count <= links.PAIRWISE else 2 * count)


TWO = {"nodes": 2, "parallel": {"tp": 16}}
BONDED = hardware.interface("bond0", "203.0.113.1/24", speed="50000")
ENDS: dict[str, tuple[network.Network, str, str, tuple[str, str]]] = {
    "the inventory's": (hardware.wired(LO, ETH, FAST), "192.0.2.1", "", ("192.0.2.1", "eth0")),
    "the one that is named": (hardware.wired(LO, ETH, FAST), "192.0.2.1", "=ens1f0", ("198.51.100.1", "ens1f0")),
    "all but": (hardware.wired(LO, ETH, FAST), "192.0.2.1", "^eth,lo", ("198.51.100.1", "ens1f0")),
    "the fastest of several": (hardware.wired(LO, ETH, BONDED, FAST), "x", "ens,bond", ("198.51.100.1", "ens1f0")),
    "a name that only ssh knows": (hardware.wired(LO, ETH, FAST), "gpu-one", "", ("192.0.2.1", "eth0")),
    "behind a translation": (hardware.wired(LO, ETH), "203.0.113.9", "", ("203.0.113.9", "")),
    "not told": (network.Network(None, "no /sys"), "192.0.2.1", "=ens1f0", ("192.0.2.1", "")),
    "named, and not there": (hardware.wired(LO, ETH), "192.0.2.1", "=ens9", ("192.0.2.1", "eth0")),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_the_address_is_that_of_the_interface_which_nccl_takes(case):
    there, address, said, expected = case
    node = gpu_hosts.node(8, **({"env": {"NCCL_SOCKET_IFNAME": said}} if said else {}))
    where = Host.model_validate({"name": "h1", "address": address, "gpus": 8})
    found = links.end(Case(where, known(**{network.FACT.name: there}), node, hardware.case(None).remote))
    assert (found.address, found.interface) == expected


def ended(name: str, speed: int | None = 100000) -> links.End:
    return links.End(here(name, "127.0.0.1"), "192.0.2.7", "ens1f0", speed)


RATES: dict[str, tuple[dict[str, Any], str, str]] = {
    "good": ({"rate": 11.5e9}, "PASS", "11.5 GB/s to b at 192.0.2.7"),
    "a tenth of it": ({"rate": 1.2e9}, "WARN", "1.2 GB/s to b at 192.0.2.7, over 12.5 GB/s interfaces"),
    "refused": ({"error": "Connection refused"}, "FAIL", "no connection to b at 192.0.2.7: Connection refused"),
    "not tried": ({"unknown": "b fell silent"}, "UNKNOWN", "b at 192.0.2.7 could not be measured"),
}


@pytest.mark.parametrize("case", RATES.values(), ids=RATES)
def test_a_rate_is_held_against_the_slower_interface(case):
    told, verdict, what = case
    (found,) = links.judged([links.Measured(ended("a"), ended("b"), **told)])
    assert (found.verdict, found.what) == (verdict, what)


def test_without_a_speed_any_rate_is_told():
    (found,) = links.judged([links.Measured(ended("a", None), ended("b", None), rate=1e6)])
    assert found.verdict == "PASS"


def test_two_hosts_measure_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are this machine, under addresses of its loopback."""
    monkeypatch.setattr(links, "SECONDS", 0.2)
    cases = [here("a", "127.0.0.1"), here("b", "127.0.0.2")]
    found = list(links.probe(cases))
    assert [(name, one.verdict) for name, one in found] == [("a", "PASS"), ("b", "PASS")], found
    assert "/s to b at 127.0.0.2" in found[0][1].what


def test_a_host_that_cannot_be_connected_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SECONDS", 0.2)
    found = list(links.probe([here("a", "127.0.0.1"), here("b", "192.0.2.1")]))
    assert [(name, one.verdict) for name, one in found] == [("a", "UNKNOWN"), ("b", "PASS")], found
    assert "b cannot listen there" in found[0][1].evidence


def test_one_host_alone_is_not_measured_and_not_told_as_fine():
    ((_, found),) = links.probe([here("a", "127.0.0.1")])
    assert found.verdict == "UNKNOWN"


def test_only_who_says_the_token_is_listened_to():
    argv = [sys.executable, "-I", "-c", host.source("throughput"), "receive", "127.0.0.1", "30"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout and receiver.stdin
        ready = json.loads(receiver.stdout.readline())
        told = [program("throughput", "send", "", "127.0.0.1", str(ready["port"]), "0" * 32, "0.1", "1")]
        told.append(program("throughput", "send", "", "127.0.0.1", str(ready["port"]), ready["token"], "0.2", "2"))
        got = json.loads(receiver.stdout.readline())
        assert receiver.wait(PATIENCE) == 0
    assert 0 < got["bytes"] <= told[1]["bytes"]


def test_the_receiver_ends_with_its_stdin():
    argv = [sys.executable, "-I", "-c", host.source("throughput"), "receive", "127.0.0.1", "600"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout and receiver.stdin
        receiver.stdout.readline()
        receiver.stdin.close()
        assert receiver.wait(PATIENCE) == 1


# ---- nccl ------------------------------------------------------------------------------------------------------------


def ranks(count: int = 8, **each: Any) -> dict[str, Any]:
    done = {"phase": "done", "pid": 1, "torch": "2.14.1", "nccl": "2.30.7", "right": True}
    timed = {"seconds": {str(nccl.SMALL): 40e-6, str(nccl.LARGE): 0.0118}}
    return {"ranks": {str(n): {**done, **timed, **each} for n in range(count)}, "hung": False, "errors": {}, "left": []}


def one(told: dict[str, Any], number: int, **changes: Any) -> dict[str, Any]:
    return {**told, "ranks": {**told["ranks"], str(number): {**told["ranks"][str(number)], **changes}}}


NVLINK, PCIE = (900e9, "NVLink"), (63e9, "PCIe")
HUNG = {**ranks(phase="joined"), "hung": True}
REDUCED: dict[str, tuple[dict[str, Any], tuple[float, str] | None, str, str]] = {
    "good over PCIe": (ranks(), PCIE, "PASS", "39.8 GB/s between 8 ranks, 65.5 kB in 40 us"),
    "nobody knows what to expect": (ranks(), None, "PASS", "39.8 GB/s"),
    "too little for NVLink": (ranks(), NVLINK, "WARN", "at least 450 GB/s could be had over NVLink"),
    "it hangs": (HUNG, PCIE, "FAIL", "hangs in the first all-reduce"),
    "one does not come": (one(HUNG, 3, phase="imported"), PCIE, "FAIL", "while the ranks looked for each other"),
    "wrong sums": (one(ranks(), 3, right=False), PCIE, "FAIL", "wrong sums"),
    "a rank died": ({**ranks(phase="joined"), "errors": {"2": "CUDA error"}}, PCIE, "FAIL", "a rank died in the first"),
    "no torch": ({**ranks(1, phase=""), "errors": {"0": "No module named 'torch'"}}, None, "UNKNOWN", "has no torch"),
}


@pytest.mark.parametrize("case", REDUCED.values(), ids=REDUCED)
def test_what_ranks_tell_is_judged(case):
    told, expected, verdict, what = case
    found = nccl.judged(told, [nccl.SMALL, nccl.LARGE], expected)
    assert (found.verdict, what in found.what) == (verdict, True), found


def test_it_is_told_which_ranks_are_behind_and_what_could_not_be_killed():
    told = {**one(one(HUNG, 3, phase="imported"), 5, phase="imported"), "left": [4711]}
    found = nccl.judged(told, [nccl.SMALL, nccl.LARGE], None)
    assert "ranks 3, 5 are the last ones" in found.evidence
    assert "4711" in found.evidence


LINKS = {
    "8x B200 with NVLink": ({"preset": "b200 x8"}, "NVLink", 900e9),
    "8x RTX PRO 6000 with PCIe 5": ({"preset": "rtx-pro-6000 x8"}, "PCIe", 63e9),
    "one has lost half its lanes": ({"preset": "rtx-pro-6000 x8", "faults": {"3": ["narrow"]}}, "PCIe", 63e9),
    "it is not told": ({}, "", 0),
}


@pytest.mark.parametrize("case", LINKS.values(), ids=LINKS)
def test_what_the_links_carry_is_taken_from_the_host(case, tmp_path):
    state, kind, least = case
    facts = gpu_hosts.seen(tmp_path, **state) if state else known()
    found = nccl.expectation(Case(here("a", "x").host, facts, None, here("a", "x").remote), range(8))
    assert (found[1] if found else "") == kind
    assert (found[0] if found else 0) >= least


BUSY: dict[str, tuple[Gpus, str, str]] = {
    "free": (hardware.cards(), "", ""),
    "not seen": (Gpus(None, None, "no driver"), "", "cannot be told"),
    "too few": (hardware.cards(count=2), "2 GPUs, 8 are wanted", "cannot be told"),
    "held by a process": (
        Gpus(hardware.cards().all, (ComputeProcess("GPU-3", 7, "python", 9000),)), "", "left alone",
    ),
    "held by nobody that is listed": (
        Gpus(tuple(replace(g, memory_used_mib=70000) for g in hardware.cards().all or ()), ()),
        "", "left alone",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BUSY.values(), ids=BUSY)
def test_gpus_in_use_are_left_alone(case):
    there, wrong, what = case
    found = nccl.in_the_way(there, there.all or (), wrong)
    assert (found.verdict if found else "", what in (found.what if found else "")) == ("UNKNOWN" if what else "", True)


# A torch that adds up nothing: it stands where the real one would, and does what the variable SAYS.
TORCH = """
import os, time
__version__ = "0"
class TCPStore:
    port = 1
    def __init__(self, *_, **__): ...
def device(*_): return None
def init_process_group(*_, **__):
    if os.environ["SAYS"] == "hang": time.sleep(600)
    if os.environ["SAYS"] == "die": raise RuntimeError("no route to rank 0")
"""


@pytest.mark.parametrize(("says", "hung", "words"), [("hang", True, ""), ("die", False, "no route to rank 0")])
def test_ranks_that_hang_or_die_are_ended_and_told(says, hung, words, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "torch" / "distributed.py").write_text("from torch import *\n")
    job = {"python": sys.executable, "env": {"PYTHONPATH": str(tmp_path), "SAYS": says}, "ranks": 2, "backend": "gloo"}
    rest = {"program": host.source("allreduce"), "bytes": [1024], "still": 6, "seconds": 60}
    told: Mapping[str, Any] = program("allreduce", stdin=json.dumps({**job, **rest}))
    assert (told["hung"], told["left"]) == (hung, [])
    assert told["ranks"]["0"]["phase"] == "imported"
    assert any(words in said for said in told["errors"].values()) or hung
    for rank in told["ranks"].values():
        assert not Path(f"/proc/{rank['pid']}").exists()


def test_an_interpreter_that_is_not_there_is_told():
    job = {"python": "/no/python", "env": {}, "ranks": 2, "backend": "gloo", "program": "", "bytes": [1], "still": 6}
    told = program("allreduce", stdin=json.dumps({**job, "seconds": 9}))
    found = nccl.judged(told, [1], None)
    assert (found.verdict, "/no/python does not exist" in found.evidence) == ("UNKNOWN", True)


def test_the_deadline_holds_whatever_the_ranks_say(tmp_path):
    """A program that talks for ever is no answer."""
    chatty = 'while True: print(\'{"phase": "first"}\', flush=True)'
    job = {"python": sys.executable, "env": {}, "ranks": 1, "backend": "gloo", "program": chatty, "bytes": [1]}
    began = time.monotonic()
    told = program("allreduce", stdin=json.dumps({**job, "still": 30, "seconds": 2}))
    assert told["hung"]
    assert time.monotonic() - began < 60
