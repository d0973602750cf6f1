"""What a measured accept length says of a draft: each fault is told as itself, by drafts broken one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoint import facts as files
from deploy.checkpoint import rules
from deploy.checkpoint.rules import Serving, Target
from deploy.measuring import diagnosing
from deploy.measuring.diagnosing import Cause, Diagnosis, Doctor
from deploy.measuring.measurement import Measurement
from tests import measurements, places
from tests.project import EXAMPLES, TELLING

TARGET = Target(files.read(TELLING / "target").config)
NONE, PART = "not one drafted token is accepted", "only a part of the draft is accepted"


def doctor(path: Path, version: str | None = "0.5.23", **how: Any) -> Doctor:
    """What the checkpoint doctor has of a draft, as SGLang serves it."""
    serving = Serving("sglang", version, **{"algorithm": "EAGLE3", "tp": 1, **how})
    return Doctor(rules.cases(files.read(path, values=True), TARGET, serving), by="by our table")


def measured(length: float, **more: Any) -> Measurement:
    return measurements.made(length, 30.0, "20261201-090000-0000e1", **more)


def named(found: Diagnosis, name: str) -> Cause:
    return next(cause for cause in found.causes if cause.name == name)


@dataclass(frozen=True)
class Case:
    """A draft's fault, what was measured of it, and the cause that is told first, with what the files say."""

    fault: str
    length: float
    first: str
    says: str
    what: str
    how: dict[str, Any]


def case(fault: str, length: float, first: str, says: str, what: str, **how: Any) -> Case:
    return Case(fault, length, first, says, what, how)


CASES = [
    case("unknown-prefix", 1.0, "loader", "FAIL", "drops tensors of the draft without a word"),
    case("unknown-prefix", 1.38, "loader", "FAIL", "drops tensors of the draft without a word"),
    case("layers0", 1.0, "loader", "FAIL", "drops tensors of the draft", version="0.5.11"),
    case("no-fc", 1.0, "loader", "FAIL", "finds no tensor for parameters"),
    case("attention-bias", 1.6, "loader", "FAIL", "will not run as it was trained"),
    case("no-d2t", 1.0, "d2t", "FAIL", "d2t is missing"),
    case("absolute-d2t", 1.0, "d2t", "FAIL", "d2t holds target ids", tp=8),
    case("healthy", 1.03, "algorithm", "FAIL", "algorithm EAGLE with an EAGLE-3 draft", algorithm="EAGLE"),
    case("no-lm-head", 1.0, "head", "FAIL", "finds no tensor for parameters"),
    case("nan-norm", 1.0, "values", "FAIL", "NaN or infinity"),
    case("zero-layer", 1.02, "values", "FAIL", "nothing comes out of midlayer"),
    case("random-layer", 1.02, "values", "WARN", "look as they are made before any training"),
    case("norm-before-residual", 1.5, "training", "FAIL", "norm_before_residual"),
    case("flat-aux", 1.81, "aux ids", "WARN", "stand at the top level"),
    case("shifted-aux", 1.65, "aux ids", "cannot tell", "which ones it was trained with no file says"),
    case("rope-theta", 1.63, "aux ids", "cannot tell", "which ones it was trained with no file says"),
    case("swapped-norms", 1.59, "aux ids", "cannot tell", "which ones it was trained with no file says"),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.fault}-{case.length}") for case in CASES])
def test_a_fault_is_told_first_and_as_itself(tmp_path, case):
    path = TELLING / "draft" if case.fault == "healthy" else places.broken(case.fault, tmp_path, TELLING / "draft")
    found = diagnosing.of(measured(case.length), doctor(path, **case.how), 3.0)
    assert found.title.startswith(NONE if case.length < 1.15 else PART)
    assert (found.causes[0].name, found.causes[0].says) == (case.first, case.says), found.lines()
    assert case.what in found.causes[0].what
    assert found.causes[0].next
    others = [one.name for one in found.causes if one.says == "FAIL" and one.name != case.first]
    assert others == []


def test_all_causes_of_an_accept_length_of_one_are_told_with_what_rules_them_out():
    found = diagnosing.of(measured(1.0), doctor(TELLING / "draft"), 2.0)
    assert {cause.name: cause.says for cause in found.causes} == {
        **dict.fromkeys(("loader", "fusion", "d2t", "algorithm", "head", "values", "training", "target"), "ok"),
    }
    assert "sglang 0.5.23 takes 15 tensors" in named(found, "loader").what
    assert "fc fuses 3 states" in named(found, "fusion").what
    assert "256 draft tokens by offsets" in named(found, "d2t").what
    assert found.guilty == ()


def test_the_text_has_what_is_wrong_in_full_and_the_rest_in_short(tmp_path):
    path = places.broken("no-d2t", tmp_path, TELLING / "draft")
    assert diagnosing.of(measured(1.0), doctor(path), 2.0).lines() == [
        f"{NONE} (0 of 23040 drafted tokens in 7680 verify steps)",
        "what may be why, the likeliest first, and what the draft's files say of it (by our table):",
        "- the draft's token ids are taken for the target's",
        "  FAIL: d2t is missing: the draft's token ids would be taken for the target's",
        "    draft_vocab_size 256, vocab_size 512",
        "  next: save the draft with its d2t",
        "- ruled out: loader, fusion, algorithm, head, values, training, target",
    ]


def test_where_no_file_says_why_each_is_told_with_what_shows_it():
    lines = diagnosing.of(measured(1.0), doctor(TELLING / "draft"), 2.0).lines()
    captured = "as many layers are captured: ids [1, 3, 4], the input of layers [2, 4, 5]"
    assert f"- not fusion: fc fuses 3 states, and {captured}" in lines
    title, _, *partial = diagnosing.of(measured(1.6), doctor(TELLING / "draft"), 2.0).lines()
    assert title.startswith(PART)
    assert partial[0] == "- the aux layers' ids are counted otherwise than in the training, mostly by one?"
    assert partial[2].startswith("  next: try each id one lower and one higher")
    assert "- not temperature: asked at temperature 0" in partial


def test_an_algorithm_that_captures_no_aux_states_does_not_rule_their_fusion_out():
    found = diagnosing.of(measured(1.03), doctor(TELLING / "draft", algorithm="EAGLE"), 2.0)
    assert (named(found, "algorithm").says, named(found, "fusion").says) == ("FAIL", "cannot tell")


@pytest.mark.parametrize("length", [1.0, 1.6])
def test_the_text_is_as_long_as_a_box_of_the_terminal_shows(length):
    """30 lines, of which the gates take some."""
    sick = replace(files.read(TELLING / "draft", values=True), tensors={}, values={}, d2t=None)
    (case,) = rules.cases(sick, TARGET, Serving("sglang", "0.5.23", algorithm="EAGLE"))
    for told in (doctor(TELLING / "draft"), Doctor([case]), Doctor(why="gone")):
        assert len(diagnosing.of(measured(length), told, 3.0).lines()) <= 24


def test_what_is_kept_by_chance_is_told_as_such():
    assert diagnosing.of(measured(1.03), Doctor(), None).title.startswith(f"{NONE}, but by chance (")


QUIET = [
    pytest.param(measured(3.1), 2.0, "accept length 3.10: nothing speaks against the draft", id="as-expected"),
    pytest.param(measured(1.6), None, "accept length 1.60: nothing speaks against the draft", id="nothing-expected"),
    pytest.param(measurements.baseline(), 2.0, "no accept length: nothing is drafted", id="no-draft"),
    pytest.param(measurements.nothing(), 2.0, "no accept length: others asked meanwhile", id="no-figures"),
]


@pytest.mark.parametrize(("told", "expected", "title"), QUIET)
def test_where_acceptance_is_not_why_no_cause_is_made_up(told, expected, title):
    found = diagnosing.of(told, Doctor(why="not looked at"), expected)
    assert (found.title, found.causes, found.lines()) == (title, (), [title])


def test_where_nearly_all_that_is_drafted_is_accepted_the_draft_is_not_to_blame():
    counts = {"accept_length": 1.94, "low": 1.9, "high": 1.98, "steps": 1320, "accepted": 1240, "drafted": 1256}
    whole = measured(1.94, acceptance=measurements.accepted(1.94).model_copy(update=counts))
    whole = whole.model_copy(update={"on": whole.on.model_copy(update={"num_steps": 1})})
    found = diagnosing.of(whole, Doctor(why="not looked at"), 2.0)
    assert found.title.startswith("nearly the whole draft is accepted: accept length 1.94 of at most 2.00 with")
    assert [cause.name for cause in found.causes] == ["num_steps"]


def test_what_could_not_be_looked_at_is_said_and_not_taken_for_right():
    found = diagnosing.of(measured(1.0), Doctor(why="gpu1 is gone"), None)
    assert {(cause.says, cause.what) for cause in found.causes} == {("cannot tell", "gpu1 is gone")}


@pytest.mark.parametrize(("version", "says"), [("0.32.0", "FAIL"), ("99.0", "cannot tell")])
def test_a_version_whose_source_was_not_read_is_not_certain(tmp_path, version, says):
    path = places.broken("no-d2t", tmp_path, TELLING / "draft")
    (case,) = rules.cases(files.read(path, values=True), TARGET, Serving("vllm", version))
    assert named(diagnosing.of(measured(1.0), Doctor([case]), None), "d2t").says == says


def test_of_a_gguf_only_files_and_values_are_judged():
    (case,) = rules.cases(files.read(EXAMPLES / "draft.gguf", values=True), None, Serving("llamacpp", "1.0"))
    found = diagnosing.of(measured(1.0), Doctor([case]), None)
    assert {cause.says for cause in found.causes if cause.name != "values"} == {"cannot tell"}
    assert named(found, "loader").what == "no rules for a .gguf"
    assert sum("no rules for a .gguf" in line for line in found.lines()) == 1


def test_the_measurement_itself_speaks_of_what_no_file_can():
    healthy = doctor(TELLING / "draft")
    by_class = {"code": measurements.share(2.6), "prose": measurements.share(1.2)}
    falling = measurements.accepted(1.6).model_copy(update={"by_class": by_class, "positions": (0.5, 0.05, 0.01)})
    found = diagnosing.of(measured(1.6, acceptance=falling), healthy, 3.0)
    assert named(found, "template").seen == "prose 1.20, code 2.60"
    assert named(found, "norm flags").seen == "the first draft holds, those after it do not: 0.50, 0.05, 0.01"
    assert named(found, "temperature").says == "ok"
    drawn = diagnosing.of(measured(1.6, on=measurements.on("a", temperature=0.8)), healthy, 3.0)
    assert (drawn.causes[0].name, drawn.causes[0].says) == ("temperature", "WARN")


def test_a_diagnosis_reads_back_from_its_record():
    found = diagnosing.of(measured(1.0), doctor(TELLING / "draft"), 2.0)
    assert Diagnosis.model_validate_json(found.model_dump_json()) == found
