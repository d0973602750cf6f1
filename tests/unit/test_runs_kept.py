"""A run's folder is read whole, whatever of it is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deploy import record
from deploy.events import Event
from deploy.runs import beside, comparing, kept, showing
from tests import measurements

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"
RUN = "20261201-090000-0000a1"


@pytest.fixture
def folder(tmp_path):
    """A run that was recorded and that filed all that there is."""
    recorder = record.Recorder(tmp_path / RUN)
    for event in (
        Event("run_started", facts={"id": RUN, "command": "up", "hosts": ["gpu1", "gpu2"]}, at=1.0),
        Event("said", host="gpu1", step="wait", facts={"phases": {"target weights": 300.5, "graphs": "***"}}, at=2.0),
        Event("filed", facts={"files": {"project.json": '{"commit": "c0ffee"}', "versions.json": '{"tool": "1"}'}}),
        Event("filed", host="gpu1", facts={"files": {"bench.json": measurements.healthy().model_dump_json()}}),
        Event("filed", host="gpu1", facts={"files": {"verdict.json": '{"holds": true}', "server.log": "words"}}),
        Event("run_ended", "done", facts={"exit_code": 0, "verdict": {"tok_s": 64.8}}, at=9.0),
    ):
        recorder.on(recorder.filed(event))
    recorder.close()
    return tmp_path / RUN


def test_what_was_filed_is_what_is_read(folder):
    run = kept.read(folder)
    assert (run.id, run.problems, list(run.hosts)) == (RUN, (), ["gpu1", "gpu2"])
    assert run.measurement == measurements.healthy()
    assert (run.project, run.versions, run.plan) == ({"commit": "c0ffee"}, {"tool": "1"}, {})
    first, second = run.hosts.values()
    assert (first.verdict, first.phases) == ({"holds": True}, {"target weights": 300.5})
    assert first.files == ("bench.json", "server.log", "verdict.json")
    assert (second.measurement, second.verdict, second.phases, second.files) == (None, {}, {}, ())
    assert (run.summary.tok_s, run.verdict, run.summary.text) == (64.8, {"tok_s": 64.8}, "done")


@pytest.mark.parametrize("name", ["up", "gate-failed", "fleet", "killed"])
def test_records_of_earlier_versions_are_read(tmp_path, name):
    (tmp_path / RUN).mkdir()
    shutil.copy(EVENTS / f"{name}.jsonl", tmp_path / RUN / "events.jsonl")
    run = kept.read(tmp_path / RUN)
    assert (run.problems, run.measurement, run.nodes) == ((), None, ())
    assert list(run.hosts) == list(run.state.facts["hosts"])


def test_an_engine_that_is_no_package_has_the_version_that_its_server_told(folder):
    (folder / "versions.json").write_text('{"hosts": {"gpu1": {"engine": "llamacpp"}, "gpu2": {}, "gpu3": 5}}')
    hosts = kept.read(folder).versions["hosts"]
    assert hosts == {"gpu1": {"engine_version": "0.5.23", "engine": "llamacpp"}, "gpu2": {}, "gpu3": 5}


def test_a_broken_file_is_told_and_hides_nothing_else(folder):
    for name, text in {"project.json": "{", "hosts/gpu1/bench.json": '{"at": "noon"}', "plan.json": "[1]"}.items():
        (folder / name).write_text(text)
    run = kept.read(folder)
    assert [problem.partition(":")[0].rpartition("/")[2] for problem in run.problems] == [
        "bench.json is no measurement",
        "project.json",
    ]
    assert (run.measurement, run.project, run.plan, run.versions) == (None, {}, {}, {"tool": "1"})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("plan", {"replicas": [[{"argv": [1]}]]}),
        ("plan", {"replicas": [[{"env": ["a"]}]]}),
        ("plan", {"replicas": [[{"host": {}}]]}),
        ("plan", {"replicas": [[{"draft": {"manifest": {"files": [{"path": "a"}]}}}]]}),
        ("versions", {"tool": ["1"]}),
        ("versions", {"hosts": {"gpu1": {"gpus": 3}}}),
        ("checkpoints", {"draft": {"files": 3}}),
        ("project", {"changed": 3}),
    ],
    ids=str,
)
def test_what_is_not_as_it_is_written_here_is_told_and_not_used(folder, name, told):
    (folder / f"{name}.json").write_text(json.dumps(told))
    run = kept.read(folder)
    assert [getattr(run, name), len(run.problems)] == [{}, 1]
    assert list(showing.lines(run))
    other = comparing.compare(run, run)
    assert list(beside.lines(other))


@pytest.mark.parametrize("plan", [{"replicas": 5}, {"replicas": [5, [5]]}, {"replicas": [[{"profile": 5}]]}], ids=str)
def test_an_odd_plan_has_no_nodes_and_no_profile(folder, plan):
    (folder / "plan.json").write_text(json.dumps(plan))
    assert kept.read(folder).profile == {}
