"""Memory, /dev/shm, control groups, limits, caches, sudo: captured and of this very machine."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.facts import About, Answer, caches, limits, memory, sudo, tools
from deploy.facts.limits import Limit
from deploy.facts.memory import Group
from deploy.host import caches as host_caches
from deploy.host import limits as host_limits
from deploy.host import memory as host_memory

GIB = 1 << 30
MEMINFO = """\
MemTotal:       24684096 kB
MemFree:        17612860 kB
MemAvailable:   24050620 kB
SwapTotal:             0 kB
SwapFree:              0 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""
V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
DOCKER_V1 = "35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory"


def on_the_host(name: str, *args: str) -> Any:
    """What our program says, sent as it is to hosts."""
    done = subprocess.run([sys.executable, "-I", "-c", host.source(name), *args], capture_output=True, check=True)
    return json.loads(done.stdout)


def told(**more: Any) -> dict[str, Any]:
    usual = {"memory": {"MemTotal": 100 * GIB, "MemAvailable": 80 * GIB}, "hugepages": [], "transparent": "madvise"}
    shared = {"total": GIB, "free": GIB, "free_inodes": 9, "writable": True, "mounted": True}
    return {**usual, "groups": [], "shared": shared, **more}


def group(limit: int, used: int, spare: int = 0) -> dict[str, Any]:
    return {"group": "/sys/fs/cgroup/x", "limit": limit * GIB, "used": used * GIB, "spare": spare * GIB}


def test_meminfo_is_read_in_bytes() -> None:
    found = host_memory.parse_meminfo(MEMINFO)
    assert found == {"MemTotal": 24684096 << 10, "MemAvailable": 24050620 << 10, "SwapTotal": 0, "SwapFree": 0}


@pytest.mark.parametrize(
    ("mounts", "own", "found"),
    [
        ([V2], "0::/user.slice/x", [("cgroup2", "/sys/fs/cgroup", "/user.slice/x")]),
        ([V2], "0::/", [("cgroup2", "/sys/fs/cgroup", "/")]),
        ([V1_CPU, V1], "8:cpu,cpuacct:/a\n4:memory:/b\n0::/c", [("cgroup", "/sys/fs/cgroup/memory", "/b")]),
        ([DOCKER_V1], "4:memory:/docker/ab12", [("cgroup", "/sys/fs/cgroup/memory", "")]),
        ([DOCKER_V1], "4:memory:/docker/ab12/sub", [("cgroup", "/sys/fs/cgroup/memory", "/sub")]),
        ([DOCKER_V1], "4:memory:/docker/ab1234", [("cgroup", "/sys/fs/cgroup/memory", "")]),
        ([V1_CPU], "8:cpu,cpuacct:/a", []),
    ],
)
def test_the_control_group_that_limits_memory_is_found(mounts: list[str], own: str, found: list[Any]) -> None:
    assert host_memory.parse_groups("\n".join(mounts), own) == found


def test_limits_are_read_from_the_group_up_to_the_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, inner = tmp_path / "cgroup", tmp_path / "cgroup" / "a b" / "c"
    inner.mkdir(parents=True)
    for folder, limit in ((inner, "max"), (inner.parent, str(8 * GIB)), (top, str(1 << 62))):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{2 * GIB}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {GIB // 4}\nactive_file {GIB // 4 * 3}\n")
    texts = {"/proc/self/mountinfo": f"29 23 0:26 / {top} rw - cgroup2 cgroup2 rw", "/proc/self/cgroup": "0::/a b/c"}
    read = host_memory.text
    monkeypatch.setattr(host_memory, "text", lambda path: texts.get(path) or read(path))

    assert [Group(**one) for one in host_memory.limits()] == [Group(str(inner.parent), 8 * GIB, 2 * GIB, GIB)]


@pytest.mark.parametrize(
    ("groups", "usable", "tightest"),
    [
        ([], 80, None),
        ([group(64, 60, 20)], 24, 64),
        ([group(64, 60, 20), group(32, 30)], 2, 32),
        ([group(200, 10)], 80, None),
        ([group(8, 9)], 0, 8),
    ],
)
def test_no_more_is_usable_than_the_control_groups_allow(groups: list[Any], usable: int, tightest: int | None) -> None:
    found = memory.parse(told(groups=groups))
    assert found.usable == usable * GIB
    assert (found.tightest.limit if found.tightest else None) == (tightest and tightest * GIB)


def test_a_kernel_without_an_estimate_leaves_it_unknown() -> None:
    assert memory.parse(told(memory={"MemTotal": GIB}, groups=[group(8, 1)])).usable is None


def test_huge_pages_are_counted_as_set_aside() -> None:
    pages = [{"size": 2 << 20, "total": 512, "free": 512}, {"size": GIB, "total": 2, "free": 0}]
    assert memory.parse(told(hugepages=pages)).set_aside == 3 * GIB


def test_a_missing_dev_shm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "SHARED", "/no/such/folder")
    assert memory.parse(told(shared=host_memory.shared())).shared == memory.Shared(error="No such file or directory")


def test_this_machine_says_what_it_has() -> None:
    found = memory.parse(on_the_host("memory"))
    assert found.total
    assert found.usable
    assert 0 < found.usable <= found.total
    assert found.shared.free is not None


SHOWN = "KillUserProcesses={}\nKillOnlyUsers={}\n"


@pytest.mark.parametrize(
    ("cgroups", "scope"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-1000.slice/session-c1.scope/inner\n", "session-c1.scope"),
        ("9:name=systemd:/user.slice/user-0.slice/session-12.scope\n8:pids:/x\n0::/\n", "session-12.scope"),
        ("0::/system.slice/ssh.service\n", ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice\n", ""),
        ("0::/docker/ab12\n", ""),
    ],
)
def test_the_login_s_scope_is_found(cgroups: str, scope: str) -> None:
    assert host_limits.parse_scope(cgroups) == scope


@pytest.mark.parametrize(
    ("user", "shown", "files", "killed"),
    [
        ("ann", SHOWN.format("no", ""), [], False),
        ("ann", SHOWN.format("yes", ""), [], True),
        ("root", SHOWN.format("yes", ""), [], False),
        ("root", SHOWN.format("yes", ""), ["[Login]\nKillExcludeUsers=\n"], True),
        ("ann", SHOWN.format("yes", ""), ["[Login]\n#KillExcludeUsers=ann\n"], True),
        ("ann", SHOWN.format("yes", ""), ["KillExcludeUsers=root ann", "[Login]\n KillExcludeUsers = root\n"], True),
        ("ann", SHOWN.format("yes", ""), ["KillExcludeUsers=root", "KillExcludeUsers=root ann\n"], False),
        ("ann", SHOWN.format("no", "ann bob"), [], True),
        ("ann", SHOWN.format("yes", "bob"), [], False),
        ("ann", "", [], None),
    ],
)
def test_whose_processes_die_with_the_login(user: str, shown: str, files: list[str], killed: bool | None) -> None:
    found = host_limits.kills(host_limits.parse_properties(shown), host_limits.parse_excluded(files), user)
    assert found is killed


def test_files_are_read_as_systemd_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    for path, text in {
        etc / "logind.conf": "1", lib / "logind.conf": "overridden", lib / "logind.conf.d" / "20-b.conf": "2",
        etc / "logind.conf.d" / "30-c.conf": "3", lib / "logind.conf.d" / "30-c.conf": "overridden",
        etc / "logind.conf.d" / "README": "no configuration",
    }.items():  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(host_limits, "FOLDERS", (str(etc), str(tmp_path / "none"), str(lib)))

    assert host_limits.configuration() == ["1", "2", "3"]


def test_the_limits_of_what_is_started_here_are_those_of_the_shell() -> None:
    script = 'ulimit -Sn 300; ulimit -Hn 400; exec "$@"'
    program = [sys.executable, "-I", "-c", host.source("limits")]
    done = subprocess.run(["sh", "-c", script, "sh", *program], capture_output=True, check=True)
    found = limits.parse(json.loads(done.stdout))
    assert found.nofile == Limit(300, 400)
    assert found.killed is not True
    assert limits.parse(
        {**json.loads(done.stdout), "limits": {n: [None, None] for n in ("nofile", "memlock", "nproc")}}
    )
    assert math.isinf(limits.parse({**json.loads(done.stdout), "limits": {**_limits(), "nproc": [1, None]}}).nproc.hard)


def _limits() -> dict[str, list[int]]:
    return {"nofile": [1, 1], "memlock": [1, 1]}


def test_the_caches_are_where_the_server_s_environment_says(tmp_path: Path) -> None:
    home, moved = tmp_path / "home", tmp_path / "triton=cache"
    (home / ".cache" / "sglang" / "deep").mkdir(parents=True)
    (home / ".cache" / "sglang" / "deep" / "kernel.cubin").write_bytes(b"x" * 10000)
    about = About(env=(("HOME", str(home)), ("TRITON_CACHE_DIR", str(moved)), ("HF_TOKEN", "secret")))
    [question] = caches.FACT.questions(about).values()
    assert not [word for word in question.args if "secret" in word]  # type: ignore[union-attr]

    found = {one.variable: one for one in caches.parse(on_the_host("caches", *question.args))}  # type: ignore[union-attr]

    assert (found["TRITON_CACHE_DIR"].disk.path, found["TRITON_CACHE_DIR"].disk.exists) == (str(moved), False)
    own = found["SGLANG_CACHE_DIR"]
    assert (own.disk.path, own.disk.exists, own.said, own.files, own.whole) == (
        f"{home}/.cache/sglang",
        True,
        False,
        1,
        True,
    )
    assert own.size >= 8192
    assert own.disk.free > 0


def test_counting_a_cache_ends(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number) / "x").mkdir(parents=True)
        (tmp_path / str(number) / "x" / "file").write_text("x")
    assert host_caches.sizes(str(tmp_path), float("inf"), 1000)[1:] == (30, True)
    _, files, whole = host_caches.sizes(str(tmp_path), float("inf"), 5)
    assert 5 < files < 30
    assert not whole


@pytest.mark.parametrize(
    ("answer", "works", "said"),
    [
        (Answer(0, "", "", None), True, ""),
        (Answer(1, "", "sudo: a password is required\n", None), False, "sudo: a password is required"),
        (Answer(None, "", "[Errno 2] No such file or directory: 'sudo'", None), False, "there is no sudo"),
        (Answer(None, "", "timed out", None), False, "timed out"),
    ],
)
def test_sudo_works_or_says_why_not(answer: Answer, works: bool, said: str) -> None:
    assert sudo.FACT.parse({"sudo": answer}) == sudo.Sudo(works, said)


def test_sudo_is_asked_only_where_it_is_wanted() -> None:
    assert sudo.FACT.questions(About()) == {}
    assert sudo.FACT.questions(About(sudo=True))
    assert sudo.FACT.parse({}).works is None


def test_tools_are_found_or_named() -> None:
    found = on_the_host("tools", *tools.PROGRAMS, "no-such-tool")
    assert found["no-such-tool"] is None
    assert found["tail"].endswith("/tail")
