"""`deploy check --deep links` between hosts with networks of their own: what they measure, and what is out of reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet import TestHost
from tests.project import Project


@pytest.fixture
def project(fleet: Callable[[int], list[TestHost]], tmp_path: Path) -> Project:
    hosts = {
        host.name: {
            "address": host.address,
            "user": host.user,
            "key": host.key,
            "work": "~/.deploy-probes",
            "lock": "/tmp/probes.lock",
        }
        for host in fleet(2)
    }
    return Project(tmp_path / "project", hosts)


def test_hosts_measure_each_other_on_their_own_interfaces(project, fleet):
    a, b = fleet(2)[:2]
    words = ("check", "--hosts", f"{a.name},{b.name}", "--deep", "links", "--json")
    found = {row["host"]: row for row in project.run(*words).json if row["check"] == "deep-links"}
    assert {row["verdict"] for row in found.values()} == {"PASS"}, found
    assert f"/s to {b.name} at {b.address}" in found[a.name]["what"]
    assert f"/s to {a.name} at {a.address}" in found[b.name]["what"]
    a.inside("ip", "route", "add", "unreachable", f"{b.address}/32")
    try:
        done = project.run(*words)
    finally:
        a.inside("ip", "route", "del", "unreachable", f"{b.address}/32")
    failed = {row["host"]: row["what"] for row in done.json if row["check"] == "deep-links"}
    assert f"no connection to {b.name} at {b.address}: [Errno 113] No route to host" in failed[a.name]
    assert (done.code, f"no connection to {a.name} at {a.address}: timed out" in failed[b.name]) == (5, True)
