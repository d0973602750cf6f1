"""What a profile says of the speculation, against the draft and the target; and versions that are not known."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from deploy.checkpoint import targets
from tests.drafts import ANY, GOOD, KIMI, NEW, OLD, TARGET, config, found, latent

STILL = "will not start"
SICK: list[tuple[str, str | None, dict[str, Any], str, str]] = [
    ("EAGLE", ANY, {"algorithm": "EAGLE"}, "FAIL gets one layer's states", "will serve at accept length 1.00"),
    ("NEXTN", OLD, {"algorithm": "nextn"}, "FAIL gets one layer's states", "will serve at accept length 1.00"),
    ("a longer chain", NEW, {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 8}, "WARN the server takes 4", ""),
    ("a tree that is too small", NEW, {"num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 9}, "FAIL 1 + 6", STILL),
    ("tokens without steps", NEW, {"num_draft_tokens": 4}, "FAIL said without num_steps", STILL),
    ("a long context", ANY, {"context_length": 4096}, "FAIL made for 2048 tokens of context", STILL),
    ("a latent backend", NEW, {"attention_backend": "trtllm_mla"}, "FAIL backend trtllm_mla takes no draft", STILL),
    ("its own", NEW, {"draft_attention_backend": "cutedsl_mla"}, "FAIL backend cutedsl_mla takes no draft", STILL),
]


@pytest.mark.parametrize(
    ("version", "how", "told", "outcome"), [case[1:] for case in SICK], ids=[case[0] for case in SICK]
)
def test_settings_that_fit_no_such_draft_are_told(version, how, told, outcome):
    verdict, _, what = told.partition(" ")
    (only,) = found(GOOD, version, **how)
    assert (only.verdict, only.outcome) == (verdict, outcome)
    assert what in only.what
    assert only.evidence
    assert only.remedy


FINE: list[dict[str, Any]] = [
    {"algorithm": "EAGLE3"},
    {"algorithm": None},
    {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4},
    {"num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 8},
    {"num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 7},
    {"context_length": 2048},
    {"context_length": 4096, "longer_context": True},
    {"attention_backend": "trtllm_mla", "draft_attention_backend": "flashinfer"},
]


@pytest.mark.parametrize("how", FINE)
def test_settings_that_fit_pass(how):
    assert [finding.verdict for finding in found(GOOD, ANY, **how)] == ["PASS"]


def test_a_latent_draft_takes_a_latent_backend():
    assert [f.verdict for f in found(latent(), NEW, KIMI, attention_backend="trtllm_mla")] == ["PASS"]


def test_without_a_profile_nobody_knows_the_context_that_is_served():
    (only,) = found(GOOD, NEW, {**TARGET, "max_position_embeddings": 8192}, algorithm=None)
    assert (only.verdict, "the target for 8192" in only.what) == ("WARN", True)


def test_a_draft_that_names_no_context_has_transformers_own():
    (only,) = found(config(max_position_embeddings=...)(GOOD), NEW, context_length=4096)
    assert "made for 2048 tokens" in only.what


def test_the_targets_own_context_counts_where_none_is_said():
    (only,) = found(GOOD, NEW, {**TARGET, "max_position_embeddings": 8192})
    assert "the target is served with 8192" in only.what
    assert [f.verdict for f in found(GOOD, NEW, {**TARGET, "max_position_embeddings": 8192}, context_length=1024)] == [
        "PASS"
    ]
    scaled = config(rope_scaling={"rope_type": "linear", "factor": 4.0})
    assert [f.verdict for f in found(scaled(GOOD), NEW, {**TARGET, "max_position_embeddings": 8192})] == ["PASS"]


HOOKS: list[tuple[str, str, bool | None]] = [
    ("LlamaForCausalLM", "0.5.8", True),
    ("KimiK25ForConditionalGeneration", "0.5.9", False),
    ("KimiK25ForConditionalGeneration", "0.5.10", True),
    ("Qwen3NextForCausalLM", "0.5.8", False),
    ("Qwen3NextForCausalLM", "0.5.10", None),  # between two wheels that were read
    ("Qwen3NextForCausalLM", "0.5.11", True),
    ("Gemma3ForCausalLM", "0.5.11", False),
    ("Gemma3ForCausalLM", "0.5.12.post1", True),
    ("MiMoV2FlashForCausalLM", "0.5.23", False),
    ("Glm4MoeForCausalLM", "0.6.0", True),
]


@pytest.mark.parametrize(("kind", "version", "there"), HOOKS)
def test_whether_a_target_hands_out_aux_states_depends_on_the_version(kind, version, there):
    assert targets.hook(kind, Version(version)) is there


TARGETS: list[tuple[str, str | None, list[str], str]] = [
    ("Gemma3ForCausalLM", "0.5.11", ["FAIL"], "upgrade to 0.5.12 or later"),
    ("MiMoV2FlashForCausalLM", "0.5.23", ["FAIL"], "without EAGLE-3"),
    ("MiMoV2FlashForCausalLM", "0.9.0", ["UNKNOWN"], "set_eagle3_layers_to_capture"),
    ("Qwen3NextForCausalLM", "0.5.10", ["UNKNOWN"], "set_eagle3_layers_to_capture"),
    ("Qwen3NextForCausalLM", "0.5.18", ["PASS"], ""),
]


@pytest.mark.parametrize(("kind", "version", "verdicts", "remedy"), TARGETS)
def test_a_target_without_aux_states_is_told(kind, version, verdicts, remedy):
    told = [one for one in found(GOOD, version, {**TARGET, "architectures": [kind]}) if "is newer than" not in one.what]
    assert [finding.verdict for finding in told] == verdicts
    assert remedy in told[0].remedy
