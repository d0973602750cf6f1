"""The state of a run, from what was seen of it: its processes, its files, who has its port, and what it answered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import plan, settings
from deploy.deployment.state import Run
from deploy.facts import Answer
from deploy.inventory import Host
from deploy.plan import Node
from deploy.project import Project
from deploy.status import standing, telling
from deploy.status.drift import Drift
from deploy.status.standing import Doing

ROOT = Path(__file__).parents[2]
RUN = Run("r1", "/w/r1", {}, None, None, pid="7", ticks="9", alive=True, exit="", stopped="")
DEAD = replace(RUN, alive=False)
READY = {"ready_at": 1000.0}


def node(rank: int = 0) -> Node:
    profile = settings.load("kimi-eagle3", (), Project(ROOT), {}, ROOT).profile()
    made = plan.make({Host.model_validate({"name": "gpu1", "gpus": 8}): profile}, None, None).nodes[0]
    return replace(made, rank=rank)


NODE, FOLLOWER = node(), node(1)
CASES = {
    "it answers": (RUN, Doing(status=200, ours=True), NODE, "serving", ""),
    "it answers, and whose the port is cannot be seen": (RUN, Doing(status=200), NODE, "serving", ""),
    "the old server still answers": (RUN, Doing(status=200, ours=False), NODE, "loading", "another process"),
    "it loads": (RUN, Doing(error="refused"), NODE, "loading", ""),
    "it warms up": (RUN, Doing(status=503, ours=True), NODE, "loading", ""),
    "its port is open, and it is not known to have been ready": (
        RUN,
        Doing(error="timeout", ours=True),
        NODE,
        "loading",
        "does not answer",
    ),
    "it hangs": (
        RUN,
        Doing(error="timeout", at=READY),
        NODE,
        "not answering",
        "/health_generate gives: no answer in time",
    ),
    "it was ready, and refuses": (RUN, Doing(error="refused", at=READY), NODE, "not answering", "refused"),
    "its backend is dead": (RUN, Doing(status=503, at=READY), NODE, "not answering", "status 503"),
    "a rank that answers nobody": (RUN, Doing(error="refused", at=READY), FOLLOWER, "following", ""),
    "a rank that answers": (RUN, Doing(status=200, ours=True), FOLLOWER, "serving", ""),
    "it died": (replace(DEAD, exit="137"), Doing(), NODE, "dead", "died with exit code 137"),
    "it was killed": (DEAD, Doing(), NODE, "dead", "ended by a kill"),
    "it was stopped": (replace(DEAD, stopped="by deploy at 12:00"), Doing(), NODE, "stopped", "stopped by deploy"),
    "it was never launched": (replace(DEAD, pid=""), Doing(), NODE, "stopped", "never launched"),
    "it is told to end, and serves": (
        replace(RUN, stopped="by deploy at 12:00"),
        Doing(status=200, ours=True),
        NODE,
        "serving",
        "told to end, by deploy at 12:00",
    ),
    "its launcher died, its engine lives": (
        replace(DEAD, exit="1", left=2),
        Doing(),
        NODE,
        "dead",
        "2 of its processes",
    ),
    "its launcher ended, and what it left serves": (
        replace(DEAD, exit="0", left=2),
        Doing(status=200, ours=True),
        NODE,
        "serving",
        "died with exit code 0",
    ),
    "its launcher is lost, and it serves": (
        replace(DEAD, left=2),
        Doing(status=200, ours=True),
        NODE,
        "serving",
        "has lost its launcher",
    ),
    "an exchange of its draft broke off": (
        replace(RUN, torn=True),
        Doing(status=200, ours=True, at=READY),
        NODE,
        "torn",
        "which one is loaded is not known",
    ),
    "a torn one died": (replace(DEAD, torn=True, exit="1"), Doing(), NODE, "dead", "died with exit code 1"),
    "a torn one is told to end": (
        replace(RUN, torn=True, stopped="by deploy at 12:00"),
        Doing(error="refused", at=READY),
        NODE,
        "not answering",
        "told to end",
    ),
    "its manifest cannot be read": (RUN, Doing(), None, "loading", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_state_is_derived(case):
    run, doing, of, state, why = CASES[case]
    found, words = standing.derive(run, doing, of)
    assert found == state
    assert why in words
    assert bool(why) == bool(words)


def test_what_is_exchanged_by_somebody_is_not_torn():
    torn = replace(RUN, torn=True)
    found, why = standing.derive(torn, Doing(status=200, ours=True), NODE, "me@here (pid 7): deploy restart")
    assert (found, "requests wait: me@here" in why) == ("swapping", True)


# ---- from what a host answers ---------------------------------------------------------------------------------------

GPUS = """0, GPU-a, 97887, 40000, 87, NVIDIA RTX PRO 6000
1, GPU-b, 97887, 40000, 85, NVIDIA RTX PRO 6000
2, GPU-c, 97887, 4, [N/A], NVIDIA, with a comma
Unable to determine the device handle for GPU0000:5A:00.0: Unknown Error
"""
LOST = GPUS.splitlines(keepends=True)[-1]
HOLDERS = "GPU-a, 71, 40000, sglang::scheduler\nGPU-b, 72, [N/A], sglang::scheduler\nGPU-b, 99, 5, python\n"


def manifest(**more: Any) -> dict[str, Any]:
    said = {"at": 500.0, "by": "me@here", "command": "up", "words": [], "node": NODE.to_json(), **more}
    read: dict[str, Any] = json.loads(json.dumps(said))
    return read


def answers(**more: Any) -> dict[str, Answer]:
    run = {**vars(RUN), "manifest": manifest(), **more.pop("run", {})}
    state = {
        "machine": "id", "hostname": "h", "user": "me", "home": "/h", "work": "/w", "root": "/w/id", "lock": {},
        "deployments": {"kimi-eagle3": {"current": run, "previous": None, "source": None, "runs": ["r1"]}},
    }  # fmt: skip
    doing = {"pids": [7, 71, 72], "ready": {"status": 200, "error": ""}, "ours": True, "metrics": "", "log": ""}
    told = {"state": state, "doing": {"/w/r1": {**doing, "ready_at": 1000.0, **more.pop("doing", {})}}}
    return {
        "runs": Answer(0, document=told),
        "gpus": Answer(0, GPUS),
        "holders": Answer(0, HOLDERS),
        **more,
    }


def rows(ahead: float = 0.0, **more: Any) -> list[telling.Row]:
    found = replace(standing.parse(answers(**more)), ahead=ahead)
    return telling.of_host("gpu1", found, None, Drift(Project(ROOT)))


def test_a_row_has_the_gpus_that_its_own_processes_hold():
    (row,) = rows()
    told = [(gpu["index"], gpu["memory_used_mib"], gpu["busy"], gpu["own_mib"]) for gpu in row["gpus"]]
    assert told == [(0, 40000, 87, 40000), (1, 40000, 85, None)]  # None: the driver does not tell how much
    assert telling.shown(row)["gpus"] == "0-1: 78 of 191 GiB, 86%"


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({"gpus": Answer(None, "", "[Errno 2] No such file or directory: 'nvidia-smi'")}, ""),
        ({"gpus": Answer(None, "", "it had not ended after 10 s")}, ""),
        ({"gpus": Answer(15, LOST), "holders": Answer(15, LOST)}, ""),  # one has fallen off, and none is told
        ({"holders": Answer(None)}, ""),  # whose the memory is cannot be told
        ({"gpus": Answer(15, GPUS)}, "0-1: 78 of 191 GiB, 86%"),  # one has fallen off, and the others tell
        ({"holders": Answer(14, f"{HOLDERS}WARNING: infoROM is corrupted at gpu 1\n")}, "0-1: 78 of 191 GiB, 86%"),
        ({"holders": Answer(0, "[Not Supported]\n")}, ""),
        ({"gpus": Answer(0, GPUS.replace(" 87,", " [N/A],"))}, "0-1: 78 of 191 GiB"),
        ({"gpus": Answer(0, GPUS.replace("40000,", "[N/A],"))}, "0-1: 86%"),
    ],
)
def test_what_nvidia_smi_does_not_tell_is_not_shown(more, gpus):
    (row,) = rows(**more)
    assert telling.shown(row)["gpus"] == gpus


@pytest.mark.parametrize("more", [{"at": "x"}, {"at": 1e300}, {"at": None}, {"words": 5}, {"words": ["a=1", 5]}])
def test_a_manifest_that_somebody_spoilt_spoils_no_table(more):
    (row,) = rows(run={"manifest": {"node": NODE.to_json(), **more}})
    assert (row["state"], row["launched"], row["by"]) == ("serving", None, None)
    assert list(row["drift"]) == (["error"] if "words" in more else ["keys"])


def test_since_is_by_our_own_clock():
    (row,) = rows(ahead=400.0)
    (other,) = rows()
    assert (row["since"], row["launched"]) == (telling.moment(600.0), telling.moment(500.0))
    assert other["since"] == telling.moment(1000.0)


def test_what_came_into_the_server_of_another_run_is_told_with_that_one():
    exchanged = {"server": "/w/r0", "draft": "/w/releases/abc"}
    (row,) = rows(run=exchanged)
    assert (row["run"], row["server"], row["loaded"]) == ("r1", "r0", "abc")
    told = {"metrics": "sglang:spec_accept_length 3.5\n"}
    heard = [rows(run=one, doing=told)[0]["accept_length_now"] for one in (
        {}, exchanged, {**exchanged, "verdict": {"accept_length": 3.4}}
    )]  # fmt: skip
    assert heard == [3.5, None, 3.5], "of the draft before, until that of this one is measured"
    (row,) = rows(run={**exchanged, "torn": True}, doing={"torn_at": 3000.0})
    assert (row["state"], row["draft"], row["loaded"]) == ("torn", "abc", None)
    assert row["since"] == telling.moment(3000.0)


def test_a_stopped_run_has_neither_pid_nor_gpus_nor_drift_and_says_since_when():
    (row,) = rows(run={"alive": False, "stopped": "by deploy"}, doing={"stopped": 2000.0})
    assert (row["state"], row["pid"], row["gpus"], row["drift"]) == ("stopped", None, [], None)
    assert row["since"] == telling.moment(2000.0)


def test_a_host_with_nothing_deployed_shows_all_its_gpus():
    found = answers()
    found["runs"].document["state"]["deployments"] = {}
    (row,) = telling.of_host("gpu1", standing.parse(found), None, Drift(Project(ROOT)))
    assert (row["state"], [gpu["index"] for gpu in row["gpus"]]) == ("nothing deployed", [0, 1, 2])


def test_a_manifest_that_cannot_be_read_is_told_and_the_rest_is_shown():
    (row,) = rows(run={"manifest": {"node": {"profile": 3}}})
    assert (row["run"], row["why"]) == ("r1", "its manifest cannot be read")


@pytest.mark.parametrize(
    ("indexes", "text"), [([0], "0"), ([3, 1, 2, 0], "0-3"), ([0, 2], "0,2"), ([7, 4, 5, 1], "1,4-5,7")]
)
def test_indexes_are_told_as_ranges(indexes, text):
    assert telling.ranges(indexes) == text
