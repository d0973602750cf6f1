"""`deploy tunnel`: a local port that leads to a server on a host's loopback, over the connection that is there."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable

import pytest

from tests.fleet import TestHost
from tests.project import PATIENCE, Project


@pytest.fixture
def project(fleet: Callable[[int], list[TestHost]], tmp_path) -> Project:
    (host,) = fleet(1)
    told = {
        "address": host.address,
        "user": host.user,
        "key": host.key,
        "work": "~/.deploy-tunnel",
        "lock": "/tmp/tunnel.lock",
    }
    return Project(tmp_path / "project", {host.name: told})


def test_it_leads_to_the_server_and_ends_with_ctrl_c(project, fleet):
    (host,) = fleet(1)
    port = project.fake("fake", hosts=host.name)
    assert project.run("up", "profile=fake").code == 0
    try:
        with project.started("tunnel", "--json") as tunnel:
            told = json.loads(tunnel.stdout.readline())
            assert (told["host"], told["port"]) == (host.name, port)
            for _ in range(3):
                with urllib.request.urlopen(f"{told['url']}/v1/models", timeout=PATIENCE) as reply:
                    assert json.load(reply)["data"][0]["id"] == "tiny"
            asked = project.run("ask", "Hello?")
            assert (asked.code, "accept length" in asked.err) == (0, True), asked.err
            assert len(project.run("logs", "-n", "3").out.splitlines()) == 3
            tunnel.send_signal(signal.SIGINT)
            tunnel.communicate(timeout=PATIENCE)
            assert tunnel.returncode == 130
    finally:
        assert project.run("down").code == 0


def test_many_at_once_and_large_answers_arrive_whole(project, fleet):
    (host,) = fleet(1)
    project.fake("fake", hosts=host.name, args={"enable-metrics": True})
    assert project.run("up", "profile=fake").code == 0
    try:
        with project.started("tunnel", "--json") as tunnel:
            url = json.loads(tunnel.stdout.readline())["url"]
            ask = ["curl", "-s", "--parallel", "--parallel-max", "6", *[f"{url}/metrics"] * 12]
            lines = subprocess.run(ask, capture_output=True, check=True, timeout=PATIENCE).stdout.count(b"# TYPE")
            one = urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE).read().count(b"# TYPE")
            assert lines == 12 * one
    finally:
        assert project.run("down").code == 0


def test_a_port_that_is_taken_here_is_told(project, fleet):
    (host,) = fleet(1)
    project.fake("fake", hosts=host.name)
    assert project.run("up", "profile=fake").code == 0
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = project.run("tunnel", "-p", str(taken.getsockname()[1]))
        assert (done.code, "cannot be opened here" in done.err) == (2, True), done.err
    finally:
        assert project.run("down").code == 0
