"""Servers whose answers have any shape but the right one: an exit code with their words, and never a bug of ours."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.project import EXAMPLES, PATIENCE, Done, Project, until

ODD = Path(__file__).parent.parent / "odd_server.py"


def up(project: Project, odd: dict[str, Any], *words: str, **fields: Any) -> Done:
    """Bring the odd server up as SGLang, or as what `fields` say."""
    project.fake(
        **{
            "engine": {"name": "sglang", "python": str(ODD)},
            "env": {"ODD": json.dumps(odd), "FAKE": json.dumps({"lifetime": 60})},
            **fields,
        }
    )
    done = project.run("up", "profile=fake", *words)
    assert "bug" not in done.err
    assert "Traceback" not in done.err
    return done


COUNTERS: dict[str, tuple[dict[str, Any], int, str]] = {
    "more than there was": (
        {"spec_verify_ct": 5, "spec_num_correct_drafts": 500000, "spec_num_proposed_drafts": 10**6},
        10, "500000 drafts accepted in 5 verify steps of 3 drafted tokens each",
    ),
    "more than was drafted": (
        {"spec_verify_ct": 5, "spec_num_correct_drafts": 14, "spec_num_proposed_drafts": 10},
        10, "14 drafts accepted in 5 verify steps, of 10 drafted tokens",
    ),
    "true": ({"spec_verify_ct": True, "spec_num_correct_drafts": True}, 10, "tells no acceptance"),
    "negative": ({"spec_num_correct_drafts": -3}, 10, "tells no acceptance"),
    "a word": ({"spec_num_correct_drafts": "12"}, 10, "tells no acceptance"),
    "a list": ({"spec_verify_ct": [4]}, 10, "tells no acceptance"),
    "a fraction": ({"spec_verify_ct": 4.5}, 10, "tells no acceptance"),
    "beyond all numbers": ({"spec_num_correct_drafts": 10**400}, 10, "tells no acceptance"),
    "no tokens": ({"completion_tokens": None}, 8, "an answer without token counts"),
    "tokens that are a word": ({"completion_tokens": "many"}, 8, "an answer without token counts"),
    "a negative number of tokens": ({"completion_tokens": -1}, 8, "an answer without token counts"),
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTERS)
def test_counters_that_cannot_be_true_are_not_measured(project: Project, case: str) -> None:
    odd, code, words = COUNTERS[case]
    done = up(project, {"meta": odd})
    assert (done.code, words in done.err) == (code, True), done.err
    if code == 10:
        assert "accept length not measured, wanted" in done.err


GOOD = {"predicted_n": 40, "draft_n": 30, "draft_n_accepted": 20}
METRICS: dict[str, dict[str, Any]] = {
    "reset": {"reset": True},
    "no HTTP": {"raw": "nonsense\r\n\r\n"},
    "no numbers": {"body": "llamacpp:spec_decode_num_accepted_tokens_total 1.2.3e\nllamacpp:x_total e+\n\x00"},
    "beyond all numbers": {"body": "llamacpp:spec_decode_num_accepted_tokens_total 1e999\n"},
    "slow": {"seconds": 8},
}


@pytest.mark.parametrize("case", METRICS)
def test_metrics_are_a_second_opinion_and_fail_nothing(project: Project, case: str) -> None:
    done = up(
        project,
        {"/metrics": METRICS[case], "timings": GOOD},
        engine={"name": "llamacpp", "binary": str(ODD)},
        model={"path": str(EXAMPLES / "target"), "name": "tiny"},
        draft=None,
        speculative=None,
    )
    assert (done.code, "accept length 2.00" in done.err) == (0, True), done.err


TOTALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "half of them": ({"kept": 1}, 0, "accept length 2.00"),
    "counted after the answer": ({"kept": 1, "late": 0.4}, 0, "accept length 2.00"),
    "none of them": ({"kept": 0}, 9, "not one drafted token is accepted"),
    "others ask, and get their answers": (
        {"kept": 1, "strangers": 2},
        10,
        "others asked meanwhile: the server counted",
    ),
    "others ask, and still wait": ({"kept": 1, "unfinished": 7}, 10, "others asked meanwhile: the server counted"),
    "more than was drafted": ({"kept": 4}, 10, "of 3 drafted tokens each"),
}


@pytest.mark.parametrize("case", TOTALS)
def test_vllm_is_measured_by_its_totals_where_nobody_else_asks(project: Project, case: str) -> None:
    odd, code, words = TOTALS[case]
    wish = {"engine": {"name": "vllm", "python": str(ODD)}, "waive": ["engine"]}
    done = up(project, {"vllm": odd}, **wish)
    assert (done.code, words in done.err) == (code, True), done.err


def test_an_engine_whose_metrics_tell_nothing_is_not_asked_for_them(project: Project) -> None:
    assert up(project, {"/metrics": {"seconds": 60}}).code == 0
    assert "/metrics" not in project.run("logs").out


def test_without_prompts_an_old_measurement_is_no_measurement(project: Project) -> None:
    assert up(project, {}).code == 0
    done = project.run("up", "profile=fake", "bench.prompts=[]")
    assert (done.code, "could not be measured" in done.err) == (10, True), done.err


def test_ctrl_c_is_heard_between_two_prompts(project: Project) -> None:
    project.fake(fake={"slow_seconds": 1.5}, bench={"prompts": ["one", "two"] * 20})
    with project.started("up", "profile=fake") as client:
        until(lambda: _prompts(project) > 1, what="the second prompt")
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, "detached in bench" in err, "FAILED" in err) == (130, True, False), err
    assert _prompts(project) < 6


def _prompts(project: Project) -> int:
    try:
        return sum(event.get("step") == "bench" and "done" in event.get("facts", {}) for event in project.events())
    except (OSError, IndexError, json.JSONDecodeError):
        return 0
