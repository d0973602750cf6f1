"""The aux layers: do they exist, are they read, are they as many as `fc` fuses, and which are they by the version?"""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from deploy.checkpoint import targets
from tests.drafts import (
    ANY,
    GOOD,
    KIMI,
    LATENT_CONFIG,
    NEW,
    OLD,
    TARGET,
    Change,
    aux,
    both,
    config,
    found,
    latent,
    shaped,
)

STILL = "will not start"
DEAD = "will serve at accept length 1.00"
LARGER = {**TARGET, "num_hidden_layers": 8}  # of six layers the default names one twice
IDS = "eagle_aux_hidden_state_layer_ids"
SICK: list[tuple[str, str | None, Change, str, str, str]] = [
    ("above", ANY, aux(2, 30, 58), "FAIL aux layers [30, 58] do not exist", "[2, 30, 58]", STILL),
    ("at the end", ANY, aux(2, 4, 6), "FAIL aux layers [6] do not exist", "[2, 4, 6]", STILL),
    ("the last, which is captured by none", ANY, aux(2, 4, 5), "FAIL aux layers [5] do not exist", "5", STILL),
    ("below", ANY, aux(-2, 1, 2), "FAIL aux layers [-2] do not exist", "[-2, 1, 2]", STILL),
    ("of text", ANY, aux("1", 1, 2), "FAIL aux layers ['1'] do not exist", "['1', 1, 2]", STILL),
    ("fewer than fc fuses", OLD, aux(1, 2), "FAIL 2 aux layers are captured, fc fuses 3", "[128, 384]", STILL),
    (
        "turned off",
        ANY,
        config(eagle_config={"use_aux_hidden_state": False}),
        "FAIL use_aux_hidden_state is false",
        "false",
        "will serve at accept length 1.00",
    ),
    (
        "at the top level",
        ANY,
        config(eagle_config=..., eagle_aux_hidden_state_layer_ids=[1, 2, 4]),
        "WARN stand at the top level",
        "the default captures [2, 3, 3]",
        "",
    ),
    (
        "turned off by null",
        ANY,
        config(eagle_config={"use_aux_hidden_state": None}),
        "FAIL its fc is skipped",
        "null",
        DEAD,
    ),
    ("none", ANY, aux(), "FAIL aux layers [] name no layer", "[]", STILL),
    ("in one text", ANY, config(eagle_config={IDS: "1,2,4"}), "FAIL aux layers '1,2,4' name no layer", "1,2,4", STILL),
    ("one twice", ANY, aux(2, 2, 4), "FAIL 2 aux layers are captured, fc fuses 3", "[2, 2, 4]", STILL),
    ("one thrice", ANY, aux(2, 2, 2), "FAIL one aux layer is captured, fc fuses 3", "[2, 2, 2]", DEAD),
    ("the default of six layers", ANY, config(eagle_config=...), "FAIL 2 aux layers are captured", "[2, 3, 3]", STILL),
    (
        "one",
        NEW,
        both(aux(2), shaped("fc.weight", 128, 128)),
        "FAIL one aux layer is captured, fc fuses 1",
        "[2]",
        DEAD,
    ),
    ("counted as vLLM does", ANY, aux(2, 3, 3), "WARN look like the count of vLLM", "captures the input of", ""),
]


@pytest.mark.parametrize(
    ("version", "change", "told", "evidence", "outcome"), [case[1:] for case in SICK], ids=[case[0] for case in SICK]
)
def test_aux_layers_that_will_not_do_are_told(version, change, told, evidence, outcome):
    verdict, _, what = told.partition(" ")
    (matching,) = [finding for finding in found(change(GOOD), version) if what in finding.what]
    assert (matching.verdict, matching.outcome) == (verdict, outcome)
    assert evidence in matching.evidence
    assert matching.remedy


@pytest.mark.parametrize(
    "change",
    [
        aux(0, 2, 4),
        aux(-1, 2, 4),
        aux(1.0, 2.0, 4.0),
        config(eagle_config={IDS: None}),
        config(eagle_config=None),
        config(eagle_config={}),
        config(eagle_config=..., **{IDS: [2, 4, 5]}),
    ],
)
def test_layers_that_are_there_or_are_the_default_pass(change):
    assert [finding.verdict for finding in found(change(GOOD), ANY, LARGER)] == ["PASS"]


def test_the_last_states_of_a_target_that_has_them_can_be_captured():
    target = {**TARGET, "architectures": ["GptOssForCausalLM"]}
    assert [finding.verdict for finding in found(aux(2, 4, 6)(GOOD), NEW, target)] == ["PASS"]
    assert [finding.verdict for finding in found(aux(2, 4, 5)(GOOD), NEW, target)] == ["PASS"]


CAPTURED: list[tuple[str, list[int], str, list[int]]] = [
    ("LlamaForCausalLM", [1, 15, 28], "0.5.8", [2, 16, 29]),
    ("LlamaForCausalLM", [1, 15, 28], "0.5.23", [2, 16, 29]),
    ("LlamaForCausalLM", [2, 16, 29], "0.5.23", [3, 17, 30]),
    ("LlamaForCausalLM", [], "0.5.8", [2, 16, 29]),
    ("DeepseekV3ForCausalLM", [2, 16, 29], "0.5.12.post1", [3, 17, 30]),
    ("DeepseekV3ForCausalLM", [2, 16, 29], "0.5.13", [2, 16, 29]),
    ("KimiK25ForConditionalGeneration", [1, 15, 28], "0.5.12", [2, 16, 29]),
    ("KimiK25ForConditionalGeneration", [1, 15, 28], "0.5.23", [2, 16, 29]),
    ("GptOssForCausalLM", [2, 16, 32], "0.5.23", [2, 16, 32]),
    ("GptOssForCausalLM", [1, 15, 28], "0.5.23", [2, 16, 29]),
]


@pytest.mark.parametrize(("kind", "ids", "version", "captured"), CAPTURED)
def test_which_layers_are_captured_depends_on_the_target_and_the_version(kind, ids, version, captured):
    assert targets.captured(kind, ids, 32, Version(version)) == captured


KIMI_IDS: list[tuple[list[int], str | None, str]] = [
    ([1, 29, 57], ANY, ""),
    ([2, 30, 58], "0.5.12", "look like the count of vLLM"),
    ([2, 30, 58], "0.5.13", ""),
    ([2, 30, 58], ANY, "look like the count of vLLM"),  # a WARN for the versions where it is so
    ([5, 30, 55], "0.5.23", "mean one layer higher before 0.5.13"),
]


@pytest.mark.parametrize(("ids", "version", "told"), KIMI_IDS)
def test_of_a_latent_target_the_same_ids_mean_other_layers_by_the_version(ids, version, told):
    draft = latent()
    draft = config(eagle_config={IDS: ids})(draft)
    warned = [finding.what for finding in found(draft, version, KIMI) if finding.verdict == "WARN"]
    assert (told in warned[0]) if told else not warned


def test_ids_at_the_top_level_count_for_the_width_of_a_latent_draft_and_not_for_what_is_captured():
    wide: dict[str, Any] = {**LATENT_CONFIG, "eagle_config": None, IDS: [1, 20, 40, 57]}
    draft = both(config(**wide), lambda facts: facts)(latent())
    shape = draft.tensors["fc.weight"]._replace(shape=(64, 256))
    draft = type(draft)(**{**vars(draft), "tensors": {**draft.tensors, "fc.weight": shape}})
    told = [finding.what for finding in found(draft, "0.5.23", KIMI)]
    assert any("3 aux layers are captured, fc fuses 4" in what for what in told)
