"""What a host says of its deployments, from folders as a client that died, or somebody else, leaves them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from tests.project import PATIENCE

PROGRAM = host.source("state")
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def asked(work: Path | str, *prefix: str, **env: str) -> subprocess.CompletedProcess[str]:
    python = "/usr/bin/python3" if prefix else sys.executable
    argv = [*prefix, python, "-I", "-c", PROGRAM, str(work), "/nowhere/lock"]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ, **env}
    )


def state(work: Path | str, **env: str) -> dict[str, Any]:
    done = asked(work, **env)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ticks(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The machine's own part of the work folder."""
    return Path(state(tmp_path)["root"])


def make(root: Path, name: str, *, current: bool = True, **files: str) -> Path:
    run = root / "kimi" / "runs" / name
    run.mkdir(parents=True)
    for file, content in files.items():
        (run / file.replace("__", ".")).write_text(content)
    if current:
        (root / "kimi" / "current").symlink_to(f"runs/{name}")
    return run


def current(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = state(root.parent)["deployments"]["kimi"]["current"]
    return found


def test_an_empty_machine_has_nothing(tmp_path):
    found = state(tmp_path / "not there")
    assert found["deployments"] == {}
    assert found["root"] == f"{tmp_path}/not there/{found['machine']}"
    assert found["machine"] in (Path("/etc/machine-id").read_text().strip(), found["hostname"])


def test_the_work_folder_may_lie_in_the_home(tmp_path):
    assert state("~/.deploy", HOME=str(tmp_path))["work"] == f"{tmp_path}/.deploy"


def test_a_living_run_is_told_with_all_that_its_folder_has(root):
    pid = os.getpid()
    make(root, "r1", pid=f"{pid} {ticks(pid)} {BOOT}\n", manifest__json='{"a": 1}', verdict__json='{"holds": true}')
    (root / "kimi/runs/r1/draft").symlink_to("/releases/abc")
    found = current(root)
    assert (found["alive"], found["pid"], found["ticks"]) == (True, str(pid), ticks(pid))
    assert (found["manifest"], found["verdict"], found["draft"]) == ({"a": 1}, {"holds": True}, "/releases/abc")
    assert (found["id"], found["folder"]) == ("r1", str(root / "kimi/runs/r1"))


ME = f"{os.getpid()} {ticks(os.getpid())}"
DEAD = [
    ("no pid file", {}),
    ("an empty one", {"pid": ""}),
    ("half of one", {"pid": str(os.getpid())}),
    ("without the boot", {"pid": ME}),
    ("another boot", {"pid": f"{ME} 00000000-0000-0000-0000-000000000000"}),
    ("another start", {"pid": f"{os.getpid()} 1 {BOOT}"}),
    ("a pid that nobody has", {"pid": f"4194305 1 {BOOT}"}),
    ("no number", {"pid": f"self {ticks(os.getpid())} {BOOT}"}),
    ("rubbish", {"pid": "\x00\x01"}),
]


@pytest.mark.parametrize("files", [case[1] for case in DEAD], ids=[case[0] for case in DEAD])
def test_a_run_is_not_alive_unless_its_very_process_is(files, root):
    make(root, "r1", **files)
    assert current(root)["alive"] is False


def test_a_zombie_is_not_alive(root):
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        make(root, "r1", pid=f"{process.pid} {ticks(process.pid)} {BOOT}", exit="0\n")
        assert (current(root)["alive"], current(root)["exit"]) == (False, "0")


@pytest.mark.parametrize("content", ["", "{", '{"a": 1', "[1]", "null", "3", "[" * 100_000, "\udcff"])
def test_a_manifest_that_cannot_be_read_is_none(content, root):
    run = make(root, "r1")
    (run / "manifest.json").write_text(content, errors="surrogateescape")
    assert current(root)["manifest"] is None


def test_an_empty_run_folder_is_a_run_of_which_nothing_is_known(root):
    make(root, "r1")
    found = current(root)
    assert (found["pid"], found["exit"], found["stopped"], found["draft"]) == ("", "", "", None)


def test_a_link_to_a_run_that_was_removed_is_nothing(root):
    make(root, "r1")
    (root / "kimi" / "previous").symlink_to("runs/r0")
    (root / "kimi" / "current").unlink()
    (root / "kimi" / "current").symlink_to("runs/r9")
    found = state(root.parent)["deployments"]["kimi"]
    assert (found["current"], found["previous"], found["runs"]) == (None, None, ["r1"])


def test_a_run_that_no_link_names_is_listed(root):
    make(root, "r2", current=False)
    make(root, "r1")
    assert state(root.parent)["deployments"]["kimi"]["runs"] == ["r1", "r2"]


@pytest.mark.parametrize("target", ["/etc", "..", "../other/runs/r1", "runs", "runs/r1/logs"])
def test_a_link_out_of_the_deployments_runs_names_no_run(target, root):
    run = make(root, "r1", current=False)
    (run / "logs").mkdir()
    (root / "other" / "runs" / "r1").mkdir(parents=True)
    (root / "kimi" / "current").symlink_to(target)
    assert state(root.parent)["deployments"]["kimi"]["current"] is None


def test_runs_may_lie_on_another_disk(root, tmp_path):
    run = make(root, "r1")
    run.parent.rename(tmp_path / "disk")
    (root / "kimi" / "runs").symlink_to(tmp_path / "disk")
    assert current(root)["id"] == "r1"


def test_what_is_no_deployment_is_passed_over(root):
    (root / "some folder").mkdir(parents=True)
    (root / "a file").write_text("x")
    (root / "a link").symlink_to("/nowhere")
    assert state(root.parent)["deployments"] == {}


def test_another_machine_in_the_same_work_folder_keeps_its_own(root):
    pid = os.getpid()
    make(root.parent / "another-machine", "r1", pid=f"{pid} {ticks(pid)} {BOOT}")
    (root.parent / "releases" / "abc").mkdir(parents=True)
    assert state(root.parent)["deployments"] == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, so root")
def test_a_folder_that_may_not_be_read_is_told_and_not_taken_for_empty(tmp_path, root):
    run = make(root, "r1")
    for folder in (*reversed(tmp_path.parents), tmp_path, root, root / "kimi"):
        if folder.is_relative_to("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    run.parent.chmod(0o700)
    (root / "kimi").chmod(0o755)
    root.chmod(0o755)
    done = asked(root.parent, *NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == f"cannot read {run.parent}: Permission denied"
