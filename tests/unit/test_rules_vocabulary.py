"""The map from the draft's tokens to the target's: is it there, is it of offsets, does it lead into the vocabulary?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.host.remedy import map_kind
from tests.drafts import ANY, GOOD, TARGET, Change, absolute, backwards, both, config, found, mapped, shaped, without

STILL = "will not start"
DEAD = "will serve at accept length 1.00"
TOKENS = [*range(100), *range(101, 257)]  # whose ids, taken for offsets, stay inside a vocabulary of 520
FEW = both(config(vocab_size=520), lambda facts: replace(facts, d2t=TOKENS, t2d=frozenset(TOKENS)))
SICK: list[tuple[str, Change, str, str, str]] = [
    ("no d2t", without("d2t"), "FAIL d2t is missing", "draft_vocab_size 256, vocab_size 512", DEAD),
    ("of floats", shaped("d2t", 256), "FAIL d2t does not hold integers", "dtype F32", "will not start"),
    (
        "too short",
        shaped("d2t", 255, dtype="I64"),
        "FAIL d2t maps [255] draft tokens, the draft has 256",
        "draft_vocab_size 256",
        "corrupt",
    ),
    (
        "for another head",
        both(config(draft_vocab_size=255), shaped("lm_head.weight", 255, 128)),
        "FAIL d2t maps [256] draft tokens",
        "255",
        "corrupt",
    ),
    ("config.json says no vocabulary", config(draft_vocab_size=None), "FAIL builds other shapes", "[512, 128]", STILL),
    ("config.json says another one", config(draft_vocab_size=300), "FAIL builds other shapes", "[300, 128]", STILL),
    ("config.json says it as text", config(draft_vocab_size="256"), "FAIL draft_vocab_size is '256'", '"256"', STILL),
    ("not read", lambda facts: replace(facts, d2t=None), "UNKNOWN cannot tell whether d2t", "shape [256]", ""),
    ("of ids", mapped(absolute), "FAIL d2t holds target ids", "t2d: ", "will not start"),
    ("of ids, no t2d", mapped(absolute, t2d=False), "FAIL d2t holds target ids", "d2t: ", "will not start"),
    ("of ids, unsorted", mapped(lambda d2t: absolute(d2t)[::-1]), "FAIL d2t holds target ids", "d2t: ", DEAD),
    ("of ids, of few tokens", FEW, "FAIL d2t holds target ids", "d2t: ", DEAD),
    ("of neither", mapped(lambda d2t: [n + 1 for n in d2t]), "UNKNOWN cannot tell whether d2t holds", "t2d: ", ""),
    ("of either", mapped(lambda d2t: [*range(256)], t2d=False), "UNKNOWN cannot tell whether d2t", "d2t: ", ""),
    (
        "out of the vocabulary",
        mapped(lambda d2t: [*d2t[:-1], d2t[-2] + 900], t2d=False),
        "FAIL d2t leads to 1 tokens that the target does not have",
        "vocab_size 512",
        "corrupt",
    ),
    ("flags of another vocabulary", shaped("t2d", 600, dtype="BOOL"), "WARN t2d has [600] flags", "vocab_size 512", ""),
]


@pytest.mark.parametrize(
    ("change", "told", "evidence", "outcome"), [case[1:] for case in SICK], ids=[case[0] for case in SICK]
)
def test_a_map_that_is_not_right_is_told(change, told, evidence, outcome):
    verdict, _, what = told.partition(" ")
    (matching,) = [finding for finding in found(change(GOOD), ANY) if what in finding.what]
    assert (matching.verdict, matching.outcome) == (verdict, outcome)
    assert evidence in matching.evidence
    assert matching.remedy


@pytest.mark.parametrize(
    "change",
    [
        without("d2t"),
        mapped(absolute),
        shaped("d2t", 256),
        *(config(draft_vocab_size=said) for said in (None, 300, "256", 256.0, True, [256], -1)),
    ],
)
def test_one_cause_is_told_once(change):
    assert len(found(change(GOOD), "0.5.8")) == 1


@pytest.mark.parametrize("change", [mapped(list), mapped(backwards), mapped(list, t2d=False)])
def test_a_healthy_map_passes_sorted_or_not(change):
    assert [finding.verdict for finding in found(change(GOOD), ANY)] == ["PASS"]


@pytest.mark.parametrize(("tp", "outcome"), [(1, "will not start"), (None, "will not start"), (8, DEAD)])
def test_ids_that_are_led_out_of_the_vocabulary_kill_a_server_on_one_gpu(tp, outcome):
    """Measured with the tiny pair on SGLang 0.5.23 on one CPU: it dies at its first request, which is its own."""
    (only,) = found(mapped(absolute)(GOOD), "0.5.23", tp=tp)
    assert only.outcome == outcome
    assert "out of the vocabulary" in only.what


def test_a_draft_of_the_whole_vocabulary_needs_no_map():
    change = both(without("d2t"), config(draft_vocab_size=512), shaped("lm_head.weight", 512, 128))
    assert [finding.verdict for finding in found(change(GOOD), ANY)] == ["PASS"]


@given(st.data())
def test_the_map_of_any_choice_of_tokens_is_told_by_its_flags(data):
    chosen = data.draw(st.lists(st.integers(0, 511), unique=True, min_size=1, max_size=256))
    offsets = [token - number for number, token in enumerate(chosen)]
    flags = frozenset(chosen)
    assert map_kind(offsets, flags, 512) == "offsets"
    if set(offsets) != flags:
        assert map_kind(chosen, flags, 512) in {"absolute", "offsets"}
    if {number + token for number, token in enumerate(chosen)} != flags:
        assert map_kind(chosen, flags, 512) == "absolute"


@given(st.lists(st.integers(0, 511), unique=True, min_size=8, max_size=256).map(sorted))
def test_without_flags_a_map_is_never_taken_for_the_other_kind(chosen):
    offsets = [token - number for number, token in enumerate(chosen)]
    assert map_kind(offsets, None, 512) in {"offsets", "neither"}
    assert map_kind(chosen, None, 512) in {"absolute", "neither"}


def test_a_map_for_a_larger_vocabulary_is_told_by_how_it_grows():
    offsets, ids = [0, 0, 5, 5, 2000], [0, 1, 7, 8, 2004]
    assert map_kind(offsets, None, 512) == "offsets"
    assert map_kind(ids, None, 512) == "absolute"
    assert map_kind([5, 0, 0, 900], None, 512) == "neither"


def test_the_targets_vocabulary_counts_for_more_than_the_drafts_own_word():
    target = {**TARGET, "vocab_size": 400}
    told = [finding.what for finding in found(GOOD, ANY, target)]
    assert any("tokens that the target does not have" in what for what in told)


# the target's vocabulary, the GPUs, what is told; the draft's own has 512 tokens
NEAR: list[tuple[int, int | None, str, str]] = [
    (515, 1, "WARN", ""),
    (515, None, "UNKNOWN", ""),
    (515, 8, "FAIL", DEAD),
    (511, 8, "WARN", ""),  # both are filled up to 512
    (600, 1, "FAIL", DEAD),
]


@pytest.mark.parametrize(("tokens", "tp", "verdict", "outcome"), NEAR)
def test_a_vocabulary_that_differs_by_a_few_tokens_may_be_the_same(tokens, tp, verdict, outcome):
    told = found(GOOD, ANY, {**TARGET, "vocab_size": tokens}, tp=tp)
    (matching,) = [finding for finding in told if "for a target of vocab_size 512" in finding.what]
    assert (matching.verdict, matching.outcome) == (verdict, outcome)


@pytest.mark.parametrize(("tp", "outcome"), [(1, STILL), (None, STILL), (8, DEAD)])
def test_a_sound_map_beside_a_smaller_target_is_not_corrupt(tp, outcome):
    told = found(GOOD, ANY, {**TARGET, "vocab_size": 300}, tp=tp)
    (matching,) = [finding for finding in told if "that the target does not have" in finding.what]
    assert (matching.verdict, matching.outcome) == ("FAIL", outcome)
    assert not any(finding.outcome == "corrupt" for finding in told)
