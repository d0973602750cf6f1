"""One server over two hosts: real SGLang and real vLLM, tensor parallel over two namespaced hosts, with the draft."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests.fleet import TestHost
from tests.places import NOTHING, over_ssh, project_on
from tests.project import EXAMPLES, ROOT, Project

pytestmark = [pytest.mark.engine, pytest.mark.full, pytest.mark.timeout(1200)]

# profile, what else its environment needs, and what the second host's state is: vLLM's has no port that could answer
ENGINES = [
    pytest.param("local-sglang", {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}, "serving", marks=pytest.mark.sglang),
    pytest.param("local-vllm", {"VLLM_CPU_KVCACHE_SPACE": "1"}, "following", marks=pytest.mark.vllm),
]


def write_profile(project: Project, shipped: str, env: Mapping[str, str], names: list[str]) -> None:
    """A shipped profile for the CPU, over two hosts."""
    profile = yaml.safe_load((ROOT / f"profiles/{shipped}.yaml").read_text())
    profile |= {
        "hosts": names,
        "nodes": 2,
        "parallel": {"tp": 2},
        "model": {**profile["model"], "path": str(EXAMPLES / "target")},
        "draft": str(EXAMPLES / "draft"),
        "env": {"GLOO_SOCKET_IFNAME": "eth0", **env},
        "ready": {"deadline": 400, "stall": 200, "patience": 60},
    }
    project.profile("pair", **profile)


@pytest.mark.parametrize(("shipped", "env", "second"), ENGINES)
def test_two_hosts_serve_one_model(
    fleet: Callable[[int], list[TestHost]], tmp_path: Path, shipped: str, env: Mapping[str, str], second: str
) -> None:
    places = [over_ssh(host) for host in fleet(2)]
    cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    with project_on(tmp_path / "project", *places) as project:
        project.environ |= cache
        write_profile(project, shipped, env, [place.name for place in places])
        done = project.run("up", "profile=pair", "--json", timeout=600)
        assert done.code == 0, done.err
        assert done.json["verdict"]["accept_length"] > 3, "as on one host"
        rows = project.run("status", "--json").json
        assert [row["state"] for row in rows] == ["serving", second], rows
        again = project.run("up", "profile=pair", "--json", timeout=300)
        assert (again.code, again.json["verdict"]["mode"]) == (0, "verify"), again.err
        assert project.run("down", timeout=300).code == 0
        for place, row in zip(places, rows, strict=True):
            assert place.left(row) == NOTHING, place.name
