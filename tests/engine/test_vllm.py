"""The main job on the real vLLM, one server at a time: first a story on this machine, then a short one over sshd.

A start takes 30 to 90 s, so each test goes on from what the one before it left running; each also stands alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.measuring.measurement import Acceptance, Measurement
from tests import places
from tests.installed import Deployment, accept_length, deployment, needs, proven
from tests.project import EXAMPLES, until, with_run

pytestmark = [pytest.mark.engine, pytest.mark.vllm, pytest.mark.full, pytest.mark.timeout(1200)]

ENVIRONMENT, PROFILE = "vllm-cpu", "local-vllm"
HEALTHY = EXAMPLES / "draft"
WAIVED, WITHOUT_METRICS = "waive=[ckpt]", "args.per-request-spec-decode-metrics=null"
KEY = "sk-not to be seen"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The healthy pair, serving on this machine."""
    needs(ENVIRONMENT)
    with deployment(tmp_path_factory.mktemp("vllm") / "project", places.here(), PROFILE) as made:
        made.project.environ["TINY_KEY"] = KEY
        made.up()
        yield made


def acceptance(tiny: Deployment) -> Acceptance:
    found = measured(tiny).acceptance
    assert found is not None
    return found


def measured(tiny: Deployment) -> Measurement:
    return Measurement.model_validate_json((Path(tiny.project.status()["folder"]) / "bench.json").read_text())


def test_a_second_up_verifies_and_does_not_restart(tiny: Deployment) -> None:
    before = tiny.project.status()
    done = tiny.run("up", "profile=tiny")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "verify"), done.err
    assert (accept_length(done) > 3, acceptance(tiny).source) == (True, "the answers")
    proven(tiny.project, draft_told=False)
    told = [(one.accept_length, one.agrees) for one in measured(tiny).witnesses if one.source == "/metrics"]
    assert told == [(accept_length(done), True)], "the server counted exactly our own requests"
    assert tiny.project.status()["pid"] == before["pid"]


def test_a_draft_without_its_d2t_is_refused_before_anything_is_touched(tiny: Deployment, tmp_path: Path) -> None:
    before = tiny.project.status()
    done = tiny.run("restart", "--ckpt", str(places.broken("no-d2t", tmp_path)))
    assert (done.code, "d2t is missing" in done.err) == (5, True), done.err
    assert tiny.project.status()["pid"] == before["pid"]


def test_where_answers_tell_nothing_a_dead_draft_is_measured_by_the_totals(tiny: Deployment, tmp_path: Path) -> None:
    done = tiny.run("restart", "--ckpt", str(places.broken("no-d2t", tmp_path)), WAIVED, WITHOUT_METRICS)
    assert (done.code, "not one drafted token is accepted" in done.err) == (9, True), done.err
    assert (accept_length(done), acceptance(tiny).source) == (1.0, "/metrics")
    assert tiny.project.status()["state"] == "serving"


def test_a_draft_that_does_not_load_is_explained(tiny: Deployment, tmp_path: Path) -> None:
    done = tiny.run("restart", "--ckpt", str(places.broken("wrong-fc", tmp_path)), WAIVED)
    assert (done.code, "the draft: a tensor has another shape" in done.err) == (6, True), done.err
    assert tiny.project.status()["state"] == "dead"


def test_with_a_key_nobody_else_is_answered_and_nobody_sees_the_key(tiny: Deployment) -> None:
    done = tiny.run("restart", "--ckpt", str(HEALTHY), WITHOUT_METRICS, "secrets={TINY_KEY: api-key}")
    assert (done.code, accept_length(done) > 3) == (0, True), done.err
    row = tiny.project.status()
    running = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in with_run(row["run"])]
    assert not [words for words in running if KEY.encode() in words]
    assert [path.name for path in Path(row["folder"]).iterdir() if path.is_file() and KEY in path.read_text()] == [
        "env",
        "api-key",
    ]
    assert "401" in tiny.place.python(ASK, str(tiny.port))


ASK = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/v1/models", timeout=30)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_an_engine_that_outlives_its_server_is_ended(tiny: Deployment) -> None:
    row = tiny.project.status()
    server = next(pid for pid in with_run(row["run"]) if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(server, signal.SIGKILL)
    row = until(lambda: (row := tiny.project.status())["state"] == "dead" and row, what="the death to show")
    assert "of its processes live" in row["why"], row
    tiny.down_without_a_trace()


@pytest.mark.sshd
@pytest.mark.namespace
def test_the_same_over_ssh(fleet, tmp_path: Path) -> None:
    needs(ENVIRONMENT)
    with deployment(tmp_path / "project", places.over_ssh(*fleet(1)), PROFILE) as made:
        made.up()
        done = made.run("smoke")
        assert (done.code, "Paris" in done.err) == (0, True), done.err
        made.down_without_a_trace()
