"""What is judged of a host: memory, shm, disks, limits, caches, tools, the way in; and of hosts beside each other."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from deploy import checks, looking
from deploy.checkpoint.manifest import File, Manifest
from deploy.checks import Case, caches, disk, folders, limits, memory, shm, ssh, tools, uniformity
from deploy.deployment.state import Deployment, Machine, Place, Run
from deploy.facts import known
from deploy.facts.caches import Cache
from deploy.facts.disks import Disk
from deploy.facts.gpus import Gpu, Gpus
from deploy.facts.interpreter import Interpreter
from deploy.facts.kernel import Kernel, Kill
from deploy.facts.limits import Limit, Limits
from deploy.facts.memory import Group, HugePages, Memory, Shared
from deploy.facts.network import Interface, Network
from deploy.facts.processes import Process, Processes
from deploy.facts.rdma import Device, Port, Rdma
from deploy.facts.sudo import Sudo
from deploy.facts.system import System
from deploy.inventory import Host
from deploy.plan import Draft, Node, make
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.transport.local import LocalTransport

GIB = 1 << 30
NOW = 1e6
QUIET = Kernel((), (), 0.0, 0.0, NOW)
NO_GPUS = Gpus(None, None, "there is no nvidia-smi")
SIZE = 10 * GIB  # of the draft
DRAFT = Draft("ckpt", Manifest((File("config.json", 1, "1" * 64), File("model.safetensors", SIZE - 1, "2" * 64))))
MODEL = {"identity": "a" * 64, "size": 500 * GIB, "files": [{"size": 5 * GIB}, {"size": 1}]}
ALIVE = Run("r1", "/w/r1", None, None, None, pid="7", ticks="9", alive=True, exit="", stopped="")


def memory_of(total: float, available: float | None, shared: Shared | None = None, **more: Any) -> Memory:
    """So many GiB."""
    return Memory(
        **{
            "total": round(total * GIB),
            "available": None if available is None else round(available * GIB),
            "swap_total": 0,
            "swap_free": 0,
            "hugepages": (),
            "transparent": "madvise",
            "groups": (),
            "shared": shared or Shared(50 * GIB, 50 * GIB, 1000, writable=True, mounted=True),
            **more,
        }
    )


def node_of(engine: str = "sglang", gpus: int = 0, draft: Draft | None = None, **fields: Any) -> Node:
    nodes = fields.get("nodes", 1)
    profile = Profile.model_validate(
        {"name": "x", "engine": {"name": engine}, "model": {"path": "/m"}, "hosts": ["h0"], "gpus": gpus, **fields}
    )
    hosts = [Host.model_validate({"name": f"h{number}", "gpus": gpus}) for number in range(nodes)]
    return make(dict.fromkeys(hosts, profile), draft, None).nodes[0]


def case_of(node: Node | None, *, run: Run | None = None, host: str = "h0", **facts: Any) -> Case:
    where = node.host if node else Host.model_validate({"name": host})
    remote = Remote(where, LocalTransport(), print, threading.Event())
    deployments = {"x": Deployment("x", run, None, ("r1",))} if run else {}
    machine = Machine("id", "h0", "me", "/home/me", "/w", "/w/id", deployments)
    remote.place = Place(machine, "x", "r2", MODEL)
    return Case(where, known(**{"gpus": NO_GPUS, "kernel": QUIET, **facts}), node, remote)


def judged(check: Any, case: Case) -> tuple[list[str], str]:
    """The verdicts, and all words."""
    found = list(check.check(case))
    assert all(one.remedy for one in found if one.verdict in ("FAIL", "WARN"))
    return [one.verdict for one in found], "\n".join(f"{one.what}\n{one.evidence}\n{one.remedy}" for one in found)


# ---- memory ----------------------------------------------------------------------------------------------------------

TIGHT = Group("/sys/fs/cgroup/x", 64 * GIB, 60 * GIB, 0)
GPU = Gpus((Gpu(0, "GPU-0", "NVIDIA H200", 143771, 0, "570.1", "9.0"),), ())
SEVERAL: dict[str, Any] = {"parallel": {"tp": 8}, "gpus": 8}


@pytest.mark.parametrize(
    ("node", "found", "verdict", "words"),
    [
        # the weights go to a GPU: nothing much is wanted
        (node_of(gpus=1), memory_of(64, 60), "PASS", "nothing is wanted"),
        # no GPU takes them
        (node_of(), memory_of(600, 580), "PASS", "500.0 GiB are wanted"),
        (node_of(), memory_of(600, 400), "FAIL", "the weights, which no GPU takes"),
        (node_of(gpus=1, args={"device": "cpu"}), memory_of(600, 400), "FAIL", "500.0 GiB of the host's own memory"),
        (node_of("vllm"), memory_of(600, 400), "FAIL", "can be had"),
        # mapped, so slow at worst
        (node_of("llamacpp"), memory_of(600, 400), "WARN", "500.0 GiB for the weights"),
        (node_of("llamacpp", args={"no-mmap": True}), memory_of(600, 400), "FAIL", ""),
        # a control group, huge pages and swap are told
        (node_of(), memory_of(600, 580, groups=(TIGHT,)), "FAIL", "/sys/fs/cgroup/x allows 64.0 GiB"),
        (node_of(), memory_of(600, 99, hugepages=(HugePages(GIB, 400, 400),)), "FAIL", "400.0 GiB are set aside"),
        (node_of(), memory_of(600, 99, swap_total=8 * GIB, swap_free=4 * GIB), "FAIL", "4.0 GiB of 8.0 GiB of swap"),
        # what flags set aside, on each rank or on all
        (node_of(**SEVERAL, args={"hicache-size": 30}), memory_of(600, 250), "PASS", "240.0 GiB are wanted"),
        (node_of(**SEVERAL, args={"hicache-size": 30}), memory_of(600, 230), "FAIL", "--hicache-size on 8 ranks"),
        (node_of(**SEVERAL, args={"cpu-offload-gb": 2.5}), memory_of(600, 10), "FAIL", "20.0 GiB for --cpu-offload-gb"),
        (
            node_of("vllm", **SEVERAL, args={"kv-offloading-size": 30}),
            memory_of(600, 40),
            "PASS",
            "30.0 GiB are wanted",
        ),
        (
            node_of(**SEVERAL, args={"weight-loader-disable-mmap": True}),
            memory_of(600, 30),
            "FAIL",
            "40.0 GiB for --weight-loader-disable-mmap",
        ),
        # several hosts share the ranks
        (
            node_of(parallel={"tp": 8}, gpus=4, nodes=2, args={"hicache-size": 30}),
            memory_of(600, 130),
            "PASS",
            "120.0 GiB are wanted",
        ),
        # not known is not enough
        (node_of(), memory_of(600, None), "UNKNOWN", "/proc/meminfo"),
    ],
)
def test_memory_is_judged_where_the_server_needs_it(node: Node, found: Memory, verdict: str, words: str) -> None:
    verdicts, told = judged(memory, case_of(node, memory=found))
    assert verdicts == [verdict], told
    assert words in told


def test_where_there_are_gpus_the_inventory_need_not_count_them() -> None:
    assert judged(memory, case_of(node_of(), memory=memory_of(600, 400), gpus=GPU))[0] == ["PASS"]


def test_memory_that_our_own_old_server_holds_will_be_free() -> None:
    tight = memory_of(600, 90)
    assert judged(memory, case_of(node_of(), memory=tight, run=ALIVE))[0] == ["PASS"]
    assert judged(memory, case_of(node_of(), memory=tight, run=replace(ALIVE, alive=False)))[0] == ["FAIL"]
    assert judged(memory, case_of(node_of(), memory=memory_of(400, 90), run=ALIVE))[0] == ["FAIL"]


def test_whom_the_kernel_killed_is_told_for_a_day() -> None:
    kills = tuple(Kill(pid, "python3", NOW - ago, group=True, memory=GIB) for pid, ago in ((1, 60), (2, 90000)))
    case = case_of(None, memory=memory_of(64, 60), kernel=replace(QUIET, kills=kills))
    verdicts, told = judged(memory, case)
    assert verdicts == ["WARN"]
    assert "killed 1 process for" in told
    assert "60 s ago: process 1 (python3), which held 1.0 GiB, for want of the memory of its control group" in told


def test_a_log_that_cannot_be_read_says_nothing_of_kills() -> None:
    unread = replace(QUIET, kills=None, xids=None, error="not permitted")
    assert judged(memory, case_of(None, memory=memory_of(64, 60), kernel=unread))[0] == ["PASS"]


# ---- /dev/shm --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "found", "verdict"),
    [
        (8, Shared(50 * GIB, 50 * GIB, 9, writable=True, mounted=True), "PASS"),
        (8, Shared(64 << 20, 64 << 20, 9, writable=True, mounted=True), "FAIL"),  # docker's own
        (2, Shared(64 << 20, 64 << 20, 9, writable=True, mounted=True), "WARN"),
        (1, Shared(64 << 20, 0, 9, writable=True, mounted=True), "FAIL"),
        (2, Shared(50 * GIB, 1 << 20, 9, writable=True, mounted=True), "FAIL"),  # full of leftovers
        (2, Shared(50 * GIB, 50 * GIB, 0, writable=True, mounted=True), "FAIL"),
        (2, Shared(50 * GIB, 50 * GIB, None, writable=True, mounted=True), "PASS"),
        (2, Shared(50 * GIB, 50 * GIB, 9, writable=False, mounted=True), "FAIL"),
        (2, Shared(50 * GIB, 50 * GIB, 9, writable=True, mounted=False), "WARN"),
        (2, Shared(error="No such file or directory"), "UNKNOWN"),
    ],
)
def test_shared_memory_is_judged_by_the_ranks_of_gpus(tp: int, found: Shared, verdict: str) -> None:
    case = case_of(node_of(gpus=tp, parallel={"tp": tp}), memory=memory_of(64, 60, found))
    assert judged(shm, case)[0] == [verdict]
    on_cpu = case_of(node_of(parallel={"tp": tp}), memory=memory_of(64, 60, found))
    assert judged(shm, on_cpu)[0] == ["WARN" if found.error or 0 < (found.free or 0) < GIB else verdict]


# ---- disks -----------------------------------------------------------------------------------------------------------


def disk_of(path: str, free: float = 100, inodes: int | None = 10**6, mount: str = "/", **more: Any) -> Disk:
    real = more.pop("real", path)
    usual = {"there": "/w", "kind": "ext4", "source": "/dev/sda1", "total": 1000 * GIB, "writable": True}
    return Disk(path, real, **{**usual, "mount": mount, "free": round(free * GIB), "free_inodes": inodes, **more})


ROOT, RELEASES, RELEASE = "/w/id", "/w/releases", f"/w/releases/{DRAFT.digest}"


@pytest.mark.parametrize(
    ("root", "releases", "there", "verdicts", "words"),
    [
        ({}, {}, False, ["PASS"], "100.0 GiB free, 10.0 GiB are missing"),
        ({"free": 10}, {"free": 10}, False, ["FAIL"], "10.1 GiB are wanted there, 10.0 GiB are free"),
        ({"free": 10}, {"free": 10}, True, ["PASS"], "10.0 GiB free"),  # the release is there already
        ({"free": 11}, {"free": 11}, False, ["WARN"], "the log may grow to twice its cap"),
        ({"inodes": 65}, {"inodes": 65}, False, ["FAIL"], "66 inodes are wanted there, 65 are free"),
        ({"inodes": None}, {"inodes": None}, False, ["PASS"], ""),
        # two filesystems: each by itself
        ({"mount": "/small", "free": 5}, {"free": 11}, False, ["PASS"], "5.0 GiB free"),
        ({"mount": "/small", "free": 1}, {"free": 11}, False, ["WARN"], "1.0 GiB are free, and the log"),
        ({"mount": "/small", "free": 0.01}, {}, False, ["FAIL"], "64 MiB are wanted there, 10 MiB are free"),
        ({"mount": "/small", "inodes": 0}, {}, False, ["FAIL"], "64 inodes"),
        ({}, {"writable": False}, False, ["FAIL"], "/w cannot be written to"),
    ],
)
def test_room_is_judged_for_what_is_missing(
    root: Mapping[str, Any], releases: Mapping[str, Any], there: bool, verdicts: list[str], words: str
) -> None:
    places = (disk_of(ROOT, **root), disk_of(RELEASES, **releases), disk_of(RELEASE, there=RELEASE if there else "/w"))
    found, told = judged(disk, case_of(node_of(draft=DRAFT, log={"cap": "1G"}), disks=places))
    assert found == verdicts, told
    assert words in told


def test_without_a_profile_the_work_folder_is_judged() -> None:
    assert judged(disk, case_of(None, disks=(disk_of("~/.deploy"),)))[0] == ["PASS"]
    assert judged(disk, case_of(None, disks=(disk_of("~/.deploy", free=0.01),)))[0] == ["FAIL"]


# ---- limits, caches, tools -------------------------------------------------------------------------------------------

FREE = Limit(math.inf, math.inf)
LIMITS = Limits(FREE, FREE, FREE, "ann", "", killed=False, lingers=None)
IB = Device("mlx5_0", None, None, (), usable=True, ports=(Port(1, "ACTIVE", "InfiniBand", 400.0, ()),))
TWO: dict[str, Any] = {"nodes": 2, "gpus": 8, "parallel": {"tp": 16}}


def living(uid: int, threads: int) -> Processes:
    us = Process(5, 1, 5, 5, 1, 1.0, "S", threads, uid, "ann", "python3", (), "", None)
    return Processes("boot", (us,), 5)


@pytest.mark.parametrize(
    ("found", "node", "devices", "us", "verdicts"),
    [
        (LIMITS, None, (), (1000, 10), ["PASS"]),
        (replace(LIMITS, nofile=Limit(1024, 1048576)), None, (), (1000, 10), ["PASS"]),  # servers raise it themselves
        (replace(LIMITS, nofile=Limit(1024, 4096)), None, (), (1000, 10), ["WARN"]),
        (replace(LIMITS, nproc=Limit(4096, 4096)), None, (), (1000, 10), ["PASS"]),
        (replace(LIMITS, nproc=Limit(4096, 4096)), None, (), (1000, 3000), ["WARN"]),
        (replace(LIMITS, nproc=Limit(4096, 4096)), None, (), (0, 3000), ["PASS"]),  # root is held to nothing
        (replace(LIMITS, memlock=Limit(1 << 26, 1 << 26)), node_of(**TWO), (IB,), (1000, 10), ["WARN"]),
        (replace(LIMITS, memlock=Limit(1 << 26, 1 << 26)), node_of(**TWO), None, (1000, 10), ["WARN"]),
        (replace(LIMITS, memlock=Limit(1 << 26, 1 << 26)), node_of(**TWO), (), (1000, 10), ["PASS"]),
        (replace(LIMITS, memlock=Limit(1 << 26, 1 << 26)), node_of(**SEVERAL), (IB,), (1000, 10), ["PASS"]),
        (
            replace(LIMITS, memlock=Limit(1 << 26, 1 << 26)),
            node_of(**TWO, env={"NCCL_IB_DISABLE": "1"}),
            (IB,),
            (1000, 10),
            ["PASS"],
        ),
        (
            replace(LIMITS, memlock=Limit(1 << 26, 1 << 26)),
            node_of("llamacpp", args={"mlock": True}),
            (),
            (1000, 10),
            ["WARN"],
        ),
    ],
)
def test_limits_are_judged_by_what_a_server_does(
    found: Limits, node: Node | None, devices: Any, us: tuple[int, int], verdicts: list[str]
) -> None:
    case = case_of(node, limits=found, processes=living(*us), rdma=Rdma(devices))
    assert judged(limits, case)[0] == verdicts


@pytest.mark.parametrize(
    ("exposed", "verdicts"),
    [
        ({}, ["PASS"]),
        ({"/w": ["/w"]}, ["FAIL"]),
        ({"/m": ["/srv"]}, ["PASS", "WARN"]),  # as models often lie
        ({"/w": ["/"], "/m": ["/"]}, ["FAIL"]),
    ],
)
def test_what_others_may_exchange_of_ours_fails_and_a_model_is_told(exposed: Any, verdicts: list[str]) -> None:
    places = tuple(disk_of(path, exposed=exposed.get(path, [])) for path in ("/w", "/m"))
    assert judged(folders, case_of(node_of(), disks=places))[0] == verdicts


def cache_of(variable: str, **disk: Any) -> Cache:
    return Cache(variable, False, 0, 0, True, disk_of(f"/home/me/{variable}", **disk))


@pytest.mark.parametrize(
    ("engine", "found", "verdicts"),
    [
        ("sglang", [cache_of("TRITON_CACHE_DIR")], ["PASS"]),
        ("sglang", [cache_of("TRITON_CACHE_DIR", writable=False)], ["FAIL"]),
        ("sglang", [cache_of("TRITON_CACHE_DIR", free=1)], ["WARN"]),
        ("sglang", [cache_of("TRITON_CACHE_DIR", inodes=0)], ["WARN"]),
        ("sglang", [cache_of("TRITON_CACHE_DIR", kind="nfs4"), cache_of("DG_JIT_CACHE_DIR", free=1)], ["WARN", "WARN"]),
        ("sglang", [cache_of("VLLM_CACHE_ROOT", writable=False), cache_of("DG_JIT_CACHE_DIR")], ["PASS"]),
        ("vllm", [cache_of("VLLM_CACHE_ROOT", writable=False)], ["FAIL"]),
        ("llamacpp", [cache_of("CUDA_CACHE_PATH", writable=False)], ["WARN"]),
        ("llamacpp", [cache_of("TRITON_CACHE_DIR", writable=False)], []),
    ],
)
def test_the_caches_of_the_engine_are_judged(engine: str, found: list[Cache], verdicts: list[str]) -> None:
    assert judged(caches, case_of(node_of(engine, gpus=1), caches=tuple(found)))[0] == verdicts
    assert judged(caches, case_of(node_of(engine), caches=tuple(found)))[0] == []  # no GPU: nothing is compiled


def test_missing_tools_are_named_with_what_does_not_work() -> None:
    there = {"setsid": None, "tail": "/usr/bin/tail", "rsync": None}
    verdicts, told = judged(tools, case_of(node_of(draft=DRAFT), tools=there))
    assert verdicts == ["FAIL"]
    assert "setsid, rsync" in told
    assert "without rsync nothing can be pushed" in told
    assert judged(tools, case_of(node_of(), tools={"rsync": None, "tail": "/x"}))[0] == ["PASS"]  # nothing to push


# ---- the way in ------------------------------------------------------------------------------------------------------

IN_SCOPE = replace(LIMITS, scope="session-3.scope")


@pytest.mark.parametrize(
    ("told", "more", "verdicts", "words"),
    [
        ({}, {}, ["PASS"], "+0.10 s"),
        ({"offset": None}, {}, ["PASS"], "unknown"),
        ({"offset": -1.9}, {}, ["PASS"], ""),
        ({"offset": -3.0}, {}, ["WARN"], "3.0 s behind ours, give or take 0.1 s"),
        ({"offset": 3.0, "round_trip": 4.0}, {}, ["PASS"], ""),  # nobody can tell
        ({"round_trip": 9.0}, {}, ["WARN"], "9.0 s"),
        ({}, {"sudo": Sudo(works=True)}, ["PASS"], ""),
        ({}, {"sudo": Sudo(works=False, said="a password is required")}, ["FAIL"], "a password is required"),
        ({}, {"limits": replace(IN_SCOPE, killed=True, lingers=True)}, ["FAIL"], "linger is on, which changes nothing"),
        ({}, {"limits": replace(IN_SCOPE, killed=False)}, ["PASS"], ""),
        ({}, {"limits": replace(IN_SCOPE, killed=None, error="no bus")}, ["WARN"], "no bus"),
    ],
)
def test_the_way_in_is_judged(
    told: Mapping[str, Any], more: Mapping[str, Any], verdicts: list[str], words: str
) -> None:
    case = case_of(None, **{"sudo": Sudo(None), "limits": LIMITS, **more})
    found, said = judged(ssh, replace(case, facts=replace(case.facts, **{"offset": 0.1, "round_trip": 0.2, **told})))
    assert found == verdicts, said
    assert words in said


def test_whether_a_server_would_be_killed_must_be_known_where_one_shall_run() -> None:
    unknown = replace(IN_SCOPE, killed=None, error="no bus")
    assert judged(ssh, case_of(node_of(), sudo=Sudo(None), limits=unknown))[0] == ["UNKNOWN"]


@pytest.mark.parametrize(
    ("noise", "draft", "verdicts"),
    [
        ({"stdout": b"", "stderr": b""}, DRAFT, ["PASS"]),
        ({"stdout": b"\n", "stderr": b""}, DRAFT, ["PASS"]),
        ({"stdout": b"Welcome!\n" * 9, "stderr": b""}, DRAFT, ["FAIL"]),  # rsync would break
        ({"stdout": b"Welcome!\n", "stderr": b""}, None, ["WARN"]),
        ({"stdout": b"", "stderr": b"bash: warning: setlocale: cannot change locale\xff"}, DRAFT, ["WARN"]),
    ],
)
def test_a_shell_that_speaks_is_told(noise: dict[str, bytes], draft: Draft | None, verdicts: list[str]) -> None:
    case = case_of(node_of(draft=draft), sudo=Sudo(None), limits=LIMITS)
    case.remote.transport.noise = noise
    found, told = judged(ssh, case)
    assert found == verdicts
    assert "Welcome!\n" * 6 not in told


# ---- side by side ----------------------------------------------------------------------------------------------------


def host_of(number: int, node: Node | None = None, offset: float = 0.0, **different: Any) -> Case:
    """One of several hosts that are alike but for what is different."""
    said: dict[str, Any] = {
        "driver": "570.1",
        "gpus": 8,
        "engine": "0.5.23",
        "kernel": "6.1.0",
        "nic": "eth0",
        "hca": "mlx5_0",
    }
    said |= different
    names = [Gpu(i, f"GPU-{i}", "NVIDIA H200", 1, 0, said["driver"], "9.0") for i in range(said["gpus"])]
    facts = known(
        gpus=Gpus(tuple(names), ()) if names else NO_GPUS,
        interpreter=(Interpreter(installed=said["engine"], version="3.12.3"),) if said["engine"] else (),
        system=System("Debian", said["kernel"], "x86_64", "3.11", "ann", f"h{number}", 8, GIB),
        network=Network(
            (
                Interface(said["nic"], "ethernet", "up", True, 1000, 1500, (), True),
                Interface(f"veth{number}", "docker", "up", True, None, 1500, (), False),
            )
        ),
        rdma=Rdma((replace(IB, name=said["hca"]),)),
    )
    case = case_of(None, host=f"h{number}")
    return replace(case, node=node, facts=replace(facts, offset=offset, round_trip=0.1))


ONE_SERVER = node_of(**TWO)


@pytest.mark.parametrize(
    ("different", "node", "verdict", "words"),
    [
        ({"driver": "550.9"}, None, "WARN", "its driver differs: 550.9, on 3 others 570.1"),
        ({"driver": "550.9"}, ONE_SERVER, "WARN", "its driver differs: 550.9"),
        ({"gpus": 7}, ONE_SERVER, "WARN", "7 x NVIDIA H200"),
        ({"engine": "0.5.22"}, ONE_SERVER, "FAIL", "its engine differs: 0.5.22"),
        ({"kernel": "5.15.0"}, ONE_SERVER, "WARN", "its kernel differs: 5.15.0"),
        ({"nic": "ens3"}, None, "WARN", "its set of network interfaces differs: ens3"),
        ({"hca": "mlx5_bond_0"}, None, "WARN", "mlx5_bond_0 InfiniBand"),
        ({"offset": -30.0}, None, "WARN", "its clock is 30.0 s behind that of most hosts"),
    ],
)
def test_the_odd_one_out_is_named(different: dict[str, Any], node: Node | None, verdict: str, words: str) -> None:
    cases = [host_of(number, node, **(different if number == 2 else {})) for number in range(4)]
    [(name, found)] = uniformity.across(cases)
    assert (name, found.verdict) == ("h2", verdict)
    assert words in found.what
    assert found.remedy


def test_hosts_that_are_alike_pass() -> None:
    [(name, found)] = uniformity.across([host_of(number) for number in range(3)])
    assert (name, found.verdict) == ("h0", "PASS")
    assert "driver" in found.what


def test_of_two_neither_is_the_odd_one() -> None:
    [(name, found)] = uniformity.across([host_of(0), host_of(1, driver="550.9")])
    assert name == "h0"
    assert "570.1: h0" in found.evidence
    assert "550.9: h1" in found.evidence


def test_our_own_clock_may_be_the_wrong_one() -> None:
    found = list(uniformity.across([host_of(number, offset=100.0) for number in range(3)]))
    assert [finding.verdict for _, finding in found] == ["PASS"]


def test_a_host_of_which_nothing_is_known_is_not_the_odd_one() -> None:
    blank = replace(host_of(2), facts=replace(known(), offset=None, round_trip=None))
    found = list(uniformity.across([host_of(0), host_of(1), blank]))
    assert [finding.verdict for _, finding in found] == ["PASS"]


def test_this_very_machine_is_judged_by_one_look() -> None:
    def case(name: str) -> Case:
        host = Host.model_validate({"name": name, "transport": "local"})
        remote = Remote(host, LocalTransport(name), lambda _event: None, threading.Event())
        return Case(host, looking.look(remote, looking.about(None, remote)), None, remote)

    cases = [case("here"), case("there")]
    told = [finding for one in (disk, limits, memory, shm, ssh, tools) for finding in one.check(cases[0])]

    assert {finding.check for finding in told} == {"disk", "limits", "memory", "shm", "ssh", "tools"}
    assert [finding for finding in told if finding.verdict == "UNKNOWN"] == []
    [(name, alike)] = [(name, finding) for name, finding in checks.across(cases) if finding.check == "uniformity"]
    assert (name, alike.verdict) == ("here", "PASS")
    assert "kernel" in alike.what
