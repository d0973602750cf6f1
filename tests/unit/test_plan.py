"""Plans: the exact text that a host gets, read back by real shells, and run by them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import plan, settings
from deploy.checkpoint.manifest import File, Manifest
from deploy.errors import ConfigError
from deploy.inventory import Host
from deploy.plan import Draft, Installed, Node
from deploy.profile import Profile
from deploy.project import Project
from deploy.text import words
from tests.project import PATIENCE, until

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "fixtures" / "plan"  # written anew by GOLDEN=write; read what changed before you commit it
SHELLS = ["dash", "bash"]

DRAFT = Draft("ckpt", Manifest((File("config.json", 3, "0" * 64), File("model.safetensors", 5, "1" * 64))))
GGUF = Draft("d.gguf", Manifest((File("it's a draft.gguf", 5, "2" * 64),)))
LOCAL = Installed("/opt/deploy/bin/python", {})
CPU = Installed("/cache/sglang-cpu/venv/bin/python", {"PYTHONPATH": "/cache/sglang-cpu/shim", "OMP_NUM_THREADS": "9"})
VLLM = Installed("/cache/vllm-cpu/venv/bin/python", {"PYTHONPATH": "/cache/vllm-cpu/shim"})


def host(name: str = "gpu1", **fields: Any) -> Host:
    return Host.model_validate({"name": name, **fields})


def shipped(name: str, *changes: str) -> Profile:
    return settings.load(name, changes, Project(ROOT), {}, ROOT).profile()


def made(**fields: Any) -> Profile:
    return Profile.model_validate(
        {"name": "made", "engine": {"name": "command"}, "hosts": "all", "model": {"path": "/models/m"}, **fields}
    )


def nodes(profile: Profile, draft: Draft | None = None, installed: Installed | None = None) -> tuple[Node, ...]:
    hosts = [host(f"gpu{number}", address=f"192.0.2.{number}", gpus=8) for number in range(1, profile.nodes + 1)]
    return plan.make(dict.fromkeys(hosts, profile), draft, installed).nodes


def node(profile: Profile, draft: Draft | None = None, installed: Installed | None = None) -> Node:
    return nodes(profile, draft, installed)[0]


COMMAND = [
    "my server",
    "--port",
    "{port}",
    "--say",
    "$HOME; rm -rf / 'x' \"y\" \\ \n`id`",
    "{draft}",
    "--name={name}",
    "",
]
AWKWARD = {"A": "two words", "B": "$(id)\n'quoted'", "run": "not the folder", "EMPTY": "", "UMLAUT": "ä"}
EAGLE = {"draft": {"path": "ckpt"}, "speculative": {"algorithm": "EAGLE3"}}

TEXTS = [
    ("kimi-eagle3", lambda: nodes(shipped("kimi-eagle3"), DRAFT)),
    ("kimi-eagle3-two-nodes", lambda: nodes(shipped("kimi-eagle3", "nodes=2", "parallel.tp=16"), DRAFT)),
    ("kimi-eagle3-nccl", lambda: nodes(shipped("kimi-eagle3", "nccl.DEBUG=INFO", "args.tp=4"), DRAFT)),
    ("local", lambda: nodes(shipped("local"), GGUF, LOCAL)),
    ("local-sglang", lambda: nodes(shipped("local-sglang"), DRAFT, CPU)),
    ("local-vllm", lambda: nodes(shipped("local-vllm", 'secrets={"KEY": "api-key"}'), DRAFT, VLLM)),
    ("vllm-two-nodes", lambda: nodes(shipped("local-vllm", "nodes=2", "parallel.tp=16"), DRAFT, VLLM)),
    ("home", lambda: nodes(shipped("kimi-eagle3", "engine.python=~/my venv/bin/python", "model.path=~/m"), DRAFT)),
    ("secrets", lambda: nodes(shipped("kimi-eagle3", 'secrets={"KEY": "api-key", "TOKEN": "env"}'), DRAFT)),
    ("command", lambda: nodes(made(**EAGLE, args={"argv": COMMAND}, env={"A": "b c", "run": "$x"}), DRAFT)),
]


@pytest.mark.parametrize(("name", "make"), TEXTS, ids=[name for name, _ in TEXTS])
def test_the_launch_script_and_the_environment_are_what_they_were(name, make):
    text = "".join(
        f"== {node.host.name} launch.sh\n{node.launch_script}== {node.host.name} env\n{words.environment(node.env)}"
        for node in make()
    ).replace(str(ROOT), "/project")
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


WAYS = [
    ("sglang", {"TOKEN": "TOKEN"}, {"api-key": "KEY"}),
    ("vllm", {"TOKEN": "TOKEN", "VLLM_API_KEY": "KEY"}, {}),
    ("llamacpp", {"TOKEN": "TOKEN"}, {"api-key": "KEY"}),
]


@pytest.mark.parametrize(("engine", "variables", "flags"), WAYS)
def test_secrets_go_the_way_that_the_engine_takes_them(engine, variables, flags):
    found = node(made(engine={"name": engine}, secrets={"KEY": "api-key", "TOKEN": "env"}))
    assert (found.secret_variables, found.secret_flags) == (variables, flags)
    assert "KEY" not in " ".join(map(str, found.argv)) + found.launch_script


# ---- what a node keeps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "make"), TEXTS, ids=[name for name, _ in TEXTS])
def test_a_node_survives_the_manifest(name, make):
    for node in make():
        again = Node.from_json(json.loads(json.dumps(node.to_json())))
        assert again == node
        assert again.digest == node.digest


def test_a_manifest_with_the_old_name_of_a_measure_is_read():
    now = node(made(engine={"name": "llamacpp"}, gates={"tok_s": ">= 100"}))
    written = json.loads(json.dumps(now.to_json()).replace('"tok_s"', '"tokens_per_second"'))
    assert "tokens_per_second" in written["profile"]["gates"]
    assert Node.from_json(written) == now


KIMI = "kimi-eagle3"
SAME = [
    ["smoke.ask=Hello"],
    ["smoke.timeout=1"],
    ["bench.max_tokens=7"],
    ["gates.accept_length=>= 2"],
    ["ready.deadline=5"],
    ["on_failure=stop"],
    ["waive=[ckpt]"],
    ["evict=yes"],
    ["engine.version=>=0.5.20"],  # checked against what is installed, not told to the server
    ["hooks.ready=[hooks/fix_eagle3_keys]"],
]
OTHER = [
    ["port=8001"],
    ["model.path=/other"],
    ["model.name=other"],
    ["parallel={tp: 4, dp: 2}"],
    ["speculative.num_steps=4"],
    ["nccl.DEBUG=INFO"],
    ["env.A=b"],
    ["args.page-size=64"],
    ["args.trust-remote-code=false"],
    ["engine.python=/venv/bin/python"],
    ["secrets=[TOKEN]"],
    ["secrets={TOKEN: api-key}"],
    ["hooks.prepare=[hooks/fix_eagle3_keys]"],
]


@pytest.mark.parametrize("changes", SAME, ids=" ".join)
def test_what_is_asked_of_the_server_does_not_change_its_digest(changes):
    assert node(shipped(KIMI, *changes), DRAFT).digest == node(shipped(KIMI), DRAFT).digest


@pytest.mark.parametrize("changes", OTHER, ids=" ".join)
def test_what_the_server_is_given_changes_its_digest(changes):
    assert node(shipped(KIMI, *changes), DRAFT).digest != node(shipped(KIMI), DRAFT).digest


def test_another_draft_environment_or_rank_changes_the_digest_and_another_path_to_the_same_draft_does_not():
    was = node(shipped(KIMI), DRAFT).digest
    assert node(shipped(KIMI), replace(DRAFT, manifest=GGUF.manifest)).digest != was
    assert node(shipped(KIMI), DRAFT, CPU).digest != was
    assert node(shipped(KIMI), replace(DRAFT, path="elsewhere", host="gpu7")).digest == was
    assert len({n.digest for n in nodes(shipped(KIMI, "nodes=2", "parallel.tp=16"), DRAFT)}) == 2


def test_the_order_of_the_environment_does_not_change_the_digest():
    argv = {"args": {"argv": ["x"]}}
    assert node(made(env={"A": "1", "B": "2"}, **argv)).digest == node(made(env={"B": "2", "A": "1"}, **argv)).digest


def test_the_profile_has_the_last_word_on_the_environment():
    env = dict(node(shipped("local-sglang", "env.SPT_NOENV=0", "nccl.DEBUG=INFO"), DRAFT, CPU).env)
    assert (env["OMP_NUM_THREADS"], env["SPT_NOENV"], env["NCCL_DEBUG"]) == ("1", "0", "INFO")
    assert env["PYTHONPATH"] == "/cache/sglang-cpu/shim"


GROUPS = [(1, 1, [["gpu1"]]), (2, 4, [["gpu1", "gpu2"], ["gpu3", "gpu4"]]), (1, 2, [["gpu1"], ["gpu2"]])]


@pytest.mark.parametrize(("size", "count", "expected"), GROUPS)
def test_hosts_become_replicas_in_their_order(size, count, expected):
    profile = made(nodes=size, args={"argv": ["x", "{rank}"]})
    found = plan.make(dict.fromkeys([host(f"gpu{n}") for n in range(1, count + 1)], profile), None, None)
    assert [[n.host.name for n in replica.nodes] for replica in found.replicas] == expected
    assert all([n.rank for n in replica.nodes] == list(range(size)) for replica in found.replicas)
    assert [replica.head.host.name for replica in found.replicas] == [group[0] for group in expected]
    assert len(found.to_json()["replicas"]) == len(expected)


WRONG = [(0, 1, "names no hosts"), (3, 2, "3 hosts cannot be divided into replicas of 2")]


@pytest.mark.parametrize(("count", "size", "what"), WRONG)
def test_hosts_that_make_no_replicas_are_refused(count, size, what):
    profile = made(nodes=size, args={"argv": ["x"]})
    with pytest.raises(ConfigError, match=what):
        plan.make(dict.fromkeys([host(f"gpu{n}") for n in range(count)], profile), None, None)


# ---- run by real shells ------------------------------------------------------------------------------------------

SERVER = """
import json, os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid()}), flush=True)
if sys.argv[1] != "stay":
    sys.exit(int(sys.argv[1]))
time.sleep(60)
"""


class Launched:
    """A run folder with what `launch` writes, started as `launch` starts it."""

    def __init__(self, shell: str, folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        profile = made(args={"argv": [sys.executable, "-c", SERVER, *argv]}, env=dict(env or {}), **EAGLE)
        made_node = node(profile, DRAFT)
        (folder / "launch.sh").write_text(made_node.launch_script)
        (folder / "env").write_text(words.environment(made_node.env))
        with (folder / "server.log").open("w") as log:
            self.process = subprocess.Popen(
                ["setsid", "nohup", shell, "launch.sh"], cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def told(self) -> dict[str, Any]:
        lines = until(lambda: (self.folder / "server.log").read_text().splitlines(), what="the server says nothing")
        found: dict[str, Any] = json.loads(lines[0])
        return found

    def exit(self) -> str:
        return str(until(lambda: self._read("exit"), what="no exit code was written")).strip()

    def _read(self, name: str) -> str:
        file = self.folder / name
        return file.read_text() if file.exists() else ""

    @property
    def pid(self) -> int:
        return int(until(lambda: self._read("pid"), what="no pid was written").split()[0])


@contextmanager
def launched(shell: str, folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> Iterator[Launched]:
    run = Launched(shell, folder, *argv, env=env)
    try:
        yield run
    finally:
        for pid in [run.pid, *([run.told()["pid"]] if run.process.poll() is None else [])]:
            if run.process.poll() is None:
                with suppress(ProcessLookupError):  # it ends just now
                    os.kill(pid, signal.SIGKILL)
        run.process.wait(timeout=PATIENCE)


pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("code", ["0", "3"])
def test_the_exit_code_is_written_down(shell, code, tmp_path):
    with launched(shell, tmp_path / "run", code) as run:
        assert run.exit() == code
        assert run.process.wait(timeout=PATIENCE) == int(code)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_server_is_known_by_pid_start_and_run(shell, tmp_path):
    with launched(shell, tmp_path / "20261129-201500-abcd", "stay", "a b", env=AWKWARD) as run:
        pid, ticks, boot = (run.folder / "pid").read_text().split() if run.pid else []
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        assert stat[19] == ticks
        assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == boot
        told = run.told()
        assert os.getpgid(told["pid"]) == int(pid) == os.getsid(told["pid"])
        assert told["env"]["DEPLOY_SERVER"] == str(run.folder.resolve())
        assert {name: told["env"][name] for name in AWKWARD} == AWKWARD
        assert told["argv"] == ["stay", "a b"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_hangup_is_ignored_and_a_term_to_the_group_ends_the_server_with_its_code_written(shell, tmp_path):
    with launched(shell, tmp_path / "run", "stay") as run:
        server = run.told()["pid"]
        os.killpg(run.pid, signal.SIGHUP)
        os.kill(server, 0)
        os.killpg(run.pid, signal.SIGTERM)
        assert run.exit() == str(128 + signal.SIGTERM)
        run.process.wait(timeout=PATIENCE)
        assert not Path(f"/proc/{server}").exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("name", "code"), [("USR1", "3"), ("KILL", "137"), ("SEGV", "139")])
def test_a_server_that_a_signal_ends_leaves_its_code(shell, name, code, tmp_path):
    with launched(shell, tmp_path / "run", "stay") as run:
        os.kill(run.told()["pid"], getattr(signal, f"SIG{name}"))
        assert run.exit() == code


@pytest.mark.parametrize("shell", SHELLS)
def test_a_term_to_the_launcher_alone_leaves_the_server_and_its_code_is_still_written(shell, tmp_path):
    with launched(shell, tmp_path / "run", "stay") as run:
        server = run.told()["pid"]
        os.kill(run.pid, signal.SIGTERM)
        os.kill(server, signal.SIGUSR1)
        assert run.exit() == "3"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_of_any_name_serves_its_own_draft(shell, tmp_path):
    folder = tmp_path / "a $run 'b' \"c\" ä"
    (tmp_path / "release").mkdir()
    with launched(shell, folder, "stay", "{draft}", env={"run": "/etc", "IFS": "/", "CDPATH": "/"}) as run:
        assert run.told()["argv"][1] == f"{folder}/draft"
