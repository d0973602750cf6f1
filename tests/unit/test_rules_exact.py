"""What the installed engine itself says counts for more than our table, and where the two differ, that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.version import Version

from deploy.checkpoint import loaders, rules
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.rules import Serving, Target
from deploy.checkpoint.trace import Trace, trace
from tests.drafts import GOOD, TARGET, config, layers0, renamed, shaped, without

NEW = "0.5.23"
LAYERS0 = renamed(layers0)(GOOD)


def said(draft: Facts, version: str) -> Trace:
    """As the engine of this version would answer."""
    loader = loaders.choose("sglang", "LlamaForCausalLMEagle3", Version(version))
    assert loader
    return trace(loader, draft.tensors, draft.config)


def judged(draft: Facts, version: str | None, exact: Trace) -> list[str]:
    serving = Serving("sglang", version, algorithm="EAGLE3")
    return [finding.verdict for finding in rules.judge(draft, Target(TARGET), serving, exact)]


@pytest.mark.parametrize(
    ("version", "really", "verdicts"),
    [
        ("0.5.11", NEW, ["PASS"]),  # one that somebody has patched
        (NEW, "0.5.11", ["FAIL"]),
        ("0.0.0.dev1", NEW, ["PASS"]),  # an editable install that does not know its version
        ("0.0.0.dev1", "0.5.11", ["FAIL"]),
        (None, NEW, ["PASS"]),
    ],
)
def test_the_engines_word_counts(version, really, verdicts):
    assert judged(LAYERS0, version, said(LAYERS0, really)) == verdicts


def test_where_our_table_says_otherwise_that_is_a_warning_with_the_names():
    (case,) = rules.cases(LAYERS0, Target(TARGET), Serving("sglang", NEW), said(LAYERS0, "0.5.11"))
    (warned,) = rules.compared(case)
    assert (warned.verdict, "please report it" in warned.remedy) == ("WARN", True)
    assert "layers.0.hidden_norm.weight: the table says model.layers.0.hidden_norm.weight" in warned.evidence
    (agreeing,) = rules.cases(LAYERS0, Target(TARGET), Serving("sglang", NEW), said(LAYERS0, NEW))
    assert rules.compared(agreeing) == []


def test_nothing_is_compared_where_no_loader_was_reached():
    draft = config(model_type=...)(GOOD)
    stopped = Trace((), error="ValueError: Unrecognized model in the draft")
    (case,) = rules.cases(draft, Target(TARGET), Serving("sglang", NEW), stopped)
    assert rules.compared(case) == []
    (only,) = rules.found(case)
    assert (only.verdict, only.outcome) == ("FAIL", "will not start")
    assert "names no model_type" in only.what


def test_what_the_engine_dies_of_is_told_in_its_words():
    stopped = Trace((), error="AttributeError: no such thing\n  File x.py, line 3")
    (case,) = rules.cases(GOOD, Target(TARGET), Serving("sglang", NEW), stopped)
    told = rules.found(case)
    assert [finding.outcome for finding in told] == ["will not start"]
    assert "AttributeError: no such thing" in told[0].what
    assert "File x.py, line 3" in told[0].evidence
    assert len(rules.compared(case)) == 1


def test_the_engines_words_of_a_shape_are_shown():
    draft = shaped("fc.weight", 128, 256)(GOOD)
    exact = said(draft, NEW)
    words = "Attempted to load weight (torch.Size([128, 256])) into parameter (torch.Size([128, 384]))"
    landings = [replace(landing, why=words) if landing.how == "refused" else landing for landing in exact.landings]
    (case,) = rules.cases(draft, Target(TARGET), Serving("sglang", NEW), replace(exact, landings=tuple(landings)))
    (only,) = rules.found(case)
    assert words in only.evidence


def test_a_class_without_a_table_is_judged_by_the_engine_alone():
    draft = without("fc.weight")(config(architectures=["Qwen9ForCausalLMEagle3"])(GOOD))
    exact = said(without("fc.weight")(GOOD), NEW)
    (case,) = rules.cases(draft, Target(TARGET), Serving("sglang", "0.7.0"), exact)
    (only,) = rules.found(case)
    assert (only.verdict, "finds no tensor for parameters" in only.what) == ("FAIL", True)
