"""Facts from captured answers: the parsers touch nothing, so any host can be put on paper."""

# mypy: allow-untyped-defs, allow-untyped-calls

import json
from pathlib import Path

import pytest

from deploy.facts import disks, gpus, interpreter, processes, sockets
from deploy.facts.disks import Disk
from deploy.host import filesystem
from deploy.host import processes as host_processes
from deploy.host import sockets as host_sockets

CAPTURED = Path(__file__).parents[1] / "fixtures" / "facts"
FIRST = "GPU-335dc396-171a-bdba-3c3c-6a06aed3b9f9"
SECOND = "GPU-4e1a9d52-86a5-7b33-0f6e-6a06aed3b9fa"
RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def captured(name):
    return (CAPTURED / name).read_text()


@pytest.mark.parametrize(
    ("name", "found", "rest"),
    [
        (
            "gpus-rtx-pro-6000-x2.csv",
            [
                gpus.Gpu(0, FIRST, RTX, 97887, 0, "595.71.05", "12.0"),
                gpus.Gpu(1, SECOND, RTX, 97887, 91234, "595.71.05", "12.0"),
            ],
            "",
        ),
        (
            "gpus-not-told.csv",
            [gpus.Gpu(0, FIRST, "NVIDIA B200, as some vendor names it", 183359, None, "570.172.08", None)],
            "",
        ),
        (
            "gpus-one-fallen-off.txt",
            [gpus.Gpu(0, FIRST, RTX, 97887, 0, "595.71.05", "12.0")],
            "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
        ),
        ("gpus-unknown-field.txt", [], 'Field "compute_cap" is not a valid field to query.'),
    ],
)
def test_gpus_are_read_and_everything_else_it_says_is_kept(name, found, rest):
    assert gpus.parse(captured(name)) == (tuple(found), rest)


def test_a_gpu_that_fell_off_is_no_holder_of_memory():
    said = "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error"
    assert gpus.parse_holders(f"{said}\n") == ((), said)
    (holder,), rest = gpus.parse_holders(f"GPU-a, 71, 40000, python\n{said}\n")
    assert (holder.pid, rest) == (71, said)


def test_a_dead_driver_names_no_gpu_but_says_why():
    found, rest = gpus.parse(captured("gpus-no-driver.txt"))

    assert found == ()
    assert rest.startswith("NVIDIA-SMI has failed because")


def test_holders_keep_what_would_not_be_told_as_unknown():
    found, rest = gpus.parse_holders(captured("holders.csv"))

    assert rest == ""
    assert found == (
        gpus.ComputeProcess(FIRST, 12345, "sglang::scheduler", 91234),
        gpus.ComputeProcess(FIRST, 777, None, None),
        gpus.ComputeProcess(SECOND, 778, "/opt/a, b/python 3", 512),
        gpus.ComputeProcess(SECOND, 779, None, None),
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stat-plain.txt", (4711, "python3", "S", 4700, 4711, 9, 815423, False)),
        ("stat-parentheses.txt", (4712, "a) S (1 2", "Z", 4711, 4712, 1, 815500, False)),
        ("stat-kernel-thread.txt", (12, "rcu_preempt", "I", 2, 0, 1, 3, True)),
    ],
)
def test_a_stat_line_is_counted_from_its_last_parenthesis(name, expected):
    told = host_processes.parse_stat(captured(name))

    kernel = bool(told["flags"] & host_processes.KERNEL_THREAD)
    fields = ("pid", "name", "state", "ppid", "pgrp", "threads", "start_ticks")
    assert (*(told[field] for field in fields), kernel) == expected


@pytest.mark.parametrize("name", ["cgroup-v1.txt", "cgroup-v2.txt"])
def test_a_cgroup_is_its_session_scope_in_both_versions(name):
    assert host_processes.parse_cgroup(captured(name)) == "/user.slice/user-1000.slice/session-3.scope"


@pytest.mark.parametrize(
    ("environ", "run"),
    [
        (b"HOME=/root\0DEPLOY_SERVER=20261129-ab12\0X=1\0", "20261129-ab12"),
        (b"MY_DEPLOY_SERVER=no\0", ""),
        (b"", ""),
        (b"DEPLOY_SERVER=\xff\0", "\\xff"),
    ],
)
def test_a_run_is_named_by_one_exact_variable(environ, run):
    assert host_processes.parse_environ(environ) == run


def test_processes_know_zombies_ages_and_whose_run_they_are():
    found = processes.parse(json.loads(captured("processes.json")))

    server = found.get(4711, 815423)
    assert server is not None
    assert (server.run, round(server.age)) == ("20261129-101010-ab12", 46)
    assert str(server) == "pid 4711 of mia, 46 s old: python3 -m sglang.launch_server --port 30000"
    assert [p.pid for p in found.all if p.zombie] == [4712], "4713 has threads that live, and hold what they hold"


CONTAINER = "0123456789abcdef" * 4
GROUPS = {
    f"/docker/{CONTAINER}": "0123456789ab",
    f"/system.slice/docker-{CONTAINER}.scope": "0123456789ab",
    f"/machine.slice/libpod-{CONTAINER}.scope/container": "0123456789ab",
    f"/kubepods.slice/kubepods-podab_c.slice/cri-containerd-{CONTAINER}.scope": "0123456789ab",
    f"/k8s.io/{CONTAINER[:-1]}": "",
    "/user.slice/user-1000.slice/session-3.scope": "",
    "/": "",
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_container_is_known_by_its_control_group(group):
    told = {**json.loads(captured("processes.json"))["processes"][2], "cgroup": group}
    (found,) = processes.parse({**json.loads(captured("processes.json")), "processes": [told]}).all
    assert found.container == GROUPS[group]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rss": 107374182400}, "46 s old, 100 GiB: python3"),
        ({"rss": 20971520}, "46 s old, 20 MiB: python3"),
        ({"rss": 0}, "46 s old, 0 bytes: python3"),
        ({"rss": 0, "cmdline": ["srv", "--api-key", "k33p", "--hf-token=k33p"]}, "srv --api-key *** --hf-token=***"),
        ({"rss": 1024, "inside": 7}, "46 s old, 1 KiB, pid 7 in its own namespace: python3"),
        (
            {"cgroup": f"/docker/{CONTAINER}", "inside": 7},
            "46 s old, in container 0123456789ab, pid 7 in its own namesp",
        ),
    ],
)
def test_a_process_is_told_with_its_memory_and_where_it_lives(more, said):
    told = json.loads(captured("processes.json"))
    (found,) = processes.parse({**told, "processes": [{**told["processes"][2], **more}]}).all
    assert said in str(found)


@pytest.mark.parametrize(
    ("status", "inside"),
    [("Name:\tx\nNSpid:\t40\nX:\n", None), ("Name:\tx\nNSpid:\t40\t12\t7\nX:\n", 7), ("Name:\tx\n", None)],
)
def test_the_pid_inside_a_namespace_is_the_last_one(status, inside):
    assert host_processes.parse_inside(status) == inside


@pytest.mark.parametrize(("pid", "ticks"), [(4711, 1), (4712, 815500), (9999, 815423)])
def test_another_start_a_zombie_and_a_missing_pid_are_not_that_process(pid, ticks):
    assert processes.parse(json.loads(captured("processes.json"))).get(pid, ticks) is None


def test_our_own_connection_is_among_the_ancestors_of_the_one_who_asks():
    found = processes.parse(json.loads(captured("processes.json")))

    assert found.ancestors(found.asked_by) == {4800, 4790, 1}


def test_listening_sockets_are_read_from_both_tables():
    found = [entry for name in ("net-tcp.txt", "net-tcp6.txt") for entry in host_sockets.parse_table(captured(name))]

    assert [(entry["address"], entry["port"], entry["uid"], entry["inode"]) for entry in found] == [
        ("127.0.0.1", 30000, 1000, 81230),
        ("0.0.0.0", 22, 0, 20411),
        ("::", 8080, 1000, 81240),
        ("2001:db8::1", 8081, 0, 81241),
    ]


def test_a_listener_without_visible_owner_says_so():
    told = {"address": "0.0.0.0", "port": 30000, "uid": 1000, "pids": None}

    found = sockets.parse([told, {**told, "port": 22, "pids": [7, 8]}])

    assert sockets.on(30000, found) == (sockets.Listener("0.0.0.0", 30000, 1000, None),)
    assert sockets.on(22, found)[0].pids == (7, 8)


@pytest.mark.parametrize(
    ("mount", "kind"),
    [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/srv/my models", "xfs"),
        ("/mnt", "fuse.sshfs"),  # mounted over the ext4 that was there
        ("/odd\\040name", "tmpfs"),
    ],
)
def test_mount_points_are_read_with_their_odd_names(mount, kind):
    assert filesystem.parse_mounts(captured("mountinfo.txt"))[mount][0] == kind


@pytest.mark.parametrize(("kind", "network"), [("nfs4", True), ("ext4", False), ("overlay", False)])
def test_a_disk_knows_whether_other_hosts_share_it(kind, network):
    told = {"path": "~/x", "real": "/home/mia/x", "there": "/home", "mount": "/home", "kind": kind, "source": "s"}
    (disk,) = disks.parse([{**told, "free": 5, "total": 9, "free_inodes": None, "writable": False}])

    assert disk == Disk("~/x", "/home/mia/x", "/home", "/home", kind, "s", 5, 9, None, False)
    assert (disk.exists, disk.network) == (False, network)


def test_an_interpreter_is_told_whole_or_with_its_error():
    assert interpreter.parse(json.loads(captured("interpreter.json"))).installed == "0.5.23"
    assert interpreter.parse({"error": "no"}) == interpreter.Interpreter(error="no")
