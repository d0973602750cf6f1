"""Probes of this machine with the real engine's torch: the same program that asks NCCL, with gloo on the CPU."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deploy import environments, plan, probes, settings
from deploy.checks import Case
from deploy.facts import known
from deploy.inventory import Host
from deploy.plan import Installed
from deploy.project import Project
from deploy.remote import Remote
from deploy.transport.local import LocalTransport
from tests.installed import needs
from tests.project import EXAMPLES

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def case() -> Case:
    needs("sglang-cpu")
    found = environments.locate("sglang-cpu")
    assert found
    changes = [f"model.path={EXAMPLES / 'target'}"]
    profile = settings.load("local-sglang", changes, Project(ROOT), {}, ROOT).profile()
    here = Host.model_validate({"name": "here", "address": "127.0.0.1", "transport": "local"})
    (node,) = plan.make({here: profile}, None, Installed(found.python, dict(found.env))).nodes
    return Case(here, known(), node, Remote(here, LocalTransport("here"), lambda _: None, threading.Event()))


def test_ranks_add_up_by_the_engines_own_torch(case):
    ((name, found),) = probes.run(["nccl"], [case])
    assert (name, found.verdict) == ("here", "PASS"), found
    assert "/s between 2 ranks, 65.5 kB in" in found.what
    assert "gloo on the CPU" in found.evidence
