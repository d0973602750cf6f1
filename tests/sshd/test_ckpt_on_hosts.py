"""`deploy ckpt` on a host: what is read there is what is read here, over one connection, and compared across hosts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.host import rewrite
from tests.checkpoints import experts, sharded
from tests.fleet import Keys, TestHost
from tests.project import EXAMPLES, Project


@pytest.fixture
def host(fleet: Callable[[int], list[TestHost]]) -> TestHost:
    (one,) = fleet(1)
    return one


@pytest.fixture
def project(host: TestHost, tmp_path: Path) -> Project:
    told = {"address": host.address, "user": host.user, "key": host.key, "lock": "/tmp/ckpt.lock"}
    return Project(tmp_path / "project", {host.name: told})


@pytest.fixture
def there(host: TestHost) -> Iterator[Path]:
    """A folder on the host, as root on this machine sees it; the host calls it /srv/shared/ckpt."""
    folder = Path(f"/proc/{host.pid}/root/srv/shared/ckpt")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def logins(keys: Keys, host: TestHost) -> int:
    """How often anybody logged in to hosts of that name; several fleets may be up, and only one is asked meanwhile."""
    logs = keys.folder.glob(f"fleet-*/{host.name}/log")
    return sum(log.read_text(errors="replace").count("Accepted publickey") for log in logs)


def test_a_checkpoint_on_a_host_is_shown_over_one_connection(project, host, there, keys):
    shards = {f"model-0000{n}-of-00003.safetensors": experts(range(n, n + 1), 30) for n in (1, 2, 3)}
    sharded(there / "model", shards)
    before = logins(keys, host)
    shown = project.run("ckpt", "show", f"{host.name}:/srv/shared/ckpt/model")
    assert shown.code == 0, shown.err
    assert logins(keys, host) == before + 1
    assert "model.layers.{1..3}.mlp.experts.{0..29}.up_proj.weight x 90" in shown.out
    assert shown.out == project.run("ckpt", "show", str(there / "model")).out
    every = project.run("ckpt", "show", f"{host.name}:/srv/shared/ckpt/model", "--json").json
    assert len(every["tensors"]) == 270


def test_a_checkpoint_on_a_host_is_compared_with_one_here_and_with_itself(project, host, there):
    shutil.copytree(EXAMPLES / "draft", there / "draft")
    on_host = f"{host.name}:/srv/shared/ckpt/draft"
    same = project.run("ckpt", "diff", on_host, str(EXAMPLES / "draft"), "--deep")
    assert (same.code, same.out) == (0, "15 tensors are equal, byte by byte\n"), same.err
    file = there / "draft/model.safetensors"
    rewrite.rewrite(file, file, {"fc.weight": "model.fc.weight"})
    differing = project.run("ckpt", "diff", str(EXAMPLES / "draft"), on_host, "--json")
    assert differing.code == 1, differing.err
    assert [(one["kind"], one["a"], one["b"]) for one in differing.json["differences"]] == [
        ("renamed", "fc.weight", "model.fc.weight")
    ]
    assert project.run("ckpt", "diff", on_host, on_host).code == 0


def test_a_draft_on_a_host_is_judged_as_one_here(project, host, there):
    shutil.copytree(EXAMPLES / "draft", there / "draft")
    content = (there / "draft/model.safetensors").read_bytes()
    words = ("--engine", "sglang==0.5.23", "--json")
    healthy = project.run("ckpt", "check", f"{host.name}:/srv/shared/ckpt/draft", *words)
    here = project.run("ckpt", "check", str(EXAMPLES / "draft"), *words)
    assert (healthy.code, healthy.json["findings"]) == (here.code, here.json["findings"]), healthy.err

    (there / "draft/model.safetensors").write_bytes(content[:-1])
    broken = project.run("ckpt", "check", f"{host.name}:/srv/shared/ckpt/draft", *words)
    assert (broken.code, broken.json["verdict"]) == (5, "corrupt"), broken.err
    assert f"byte {len(content) - 1:,}" in json.dumps(broken.json["findings"])


@pytest.mark.parametrize("command", [("show",), ("check",), ("diff", str(EXAMPLES / "draft"))])
def test_a_path_that_is_not_on_the_host_is_told(project, host, command):
    done = project.run("ckpt", *command, f"{host.name}:/srv/shared/nowhere")
    assert (done.code, done.out) == (2, "")
    assert f"{host.name}: /srv/shared/nowhere does not exist" in done.err
