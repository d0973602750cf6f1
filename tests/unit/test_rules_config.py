"""config.json: keys that SGLang reads otherwise than they were meant, ignores, or dies of; by its version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drafts import ANY, GOOD, KIMI, NEW, OLD, TARGET, Change, both, config, found, latent, without

DEAD, STILL = "will serve at accept length 1.00", "will not start"
SICK: list[tuple[str, str | None, Change, str, str, str]] = [
    ("norm_before_residual", ANY, config(norm_before_residual=True), "FAIL norm_before_residual", "true", DEAD),
    (
        "Speculators",
        ANY,
        config(speculators_model_type="eagle3"),
        "FAIL raw Speculators folder",
        "LlamaForCausalLMEagle3",
        STILL,
    ),
    (
        "vLLM's name of the class",
        ANY,
        config(architectures=["Eagle3LlamaForCausalLM"]),
        "FAIL has no class Eagle3LlamaForCausalLM",
        "architectures",
        STILL,
    ),
    (
        "a class that may come",
        "0.7.0",
        config(architectures=["Qwen9ForCausalLMEagle3"]),
        "UNKNOWN a class Qwen9ForCausalLMEagle3",
        "none has up to 0.5.23",
        "",
    ),
    ("no model_type", ANY, config(model_type=...), "FAIL names no model_type", "None", STILL),
    ("kimi_k2", OLD, config(model_type="kimi_k2"), "FAIL does not know the model_type kimi_k2", "kimi_k2", STILL),
    ("kimi_k2", ANY, config(model_type="kimi_k2"), "UNKNOWN the model_type kimi_k2", "sglang <0.5.12", ""),
    ("a model_type nobody knows", NEW, config(model_type="eagle9"), "UNKNOWN model_type eagle9", "eagle9", ""),
    (
        "a class that is no list",
        ANY,
        config(architectures="LlamaForCausalLMEagle3"),
        "FAIL letter by letter",
        "Llama",
        STILL,
    ),
    ("heads", NEW, config(num_attention_heads=3, head_dim=...), "FAIL not a multiple of", "hidden_size 128", STILL),
    ("a window", NEW, config(sliding_window=2048), "WARN sliding window", "2048", ""),
    ("windows by layer", NEW, config(layer_types=["sliding_attention"]), "WARN sliding window", "sliding_atten", ""),
    ("norm_output", OLD, config(norm_output=True), "WARN does not read norm_output", "true", ""),
    (
        "rope_parameters",
        "0.5.8",
        config(rope_theta=..., rope_parameters={"rope_theta": 5e5}),
        "WARN takes 10000",
        "5",
        "",
    ),
    (
        "scaled positions",
        "0.5.8",
        config(rope_parameters={"rope_type": "llama3", "factor": 8.0}),
        "WARN the positions are not scaled",
        "llama3",
        "",
    ),
    ("two thetas", NEW, config(rope_parameters={"rope_theta": 5e5}), "WARN two values of rope_theta", "500000", ""),
    (
        "a tied head",
        ANY,
        both(without("lm_head.weight"), config(tie_word_embeddings=True)),
        "FAIL tied to embeddings of another number",
        "draft_vocab_size 256",
        DEAD,
    ),
    ("a tied head that is there", ANY, config(tie_word_embeddings=True), "FAIL drops tensors", "lm_head.weight", DEAD),
]


@pytest.mark.parametrize(
    ("version", "change", "told", "evidence", "outcome"),
    [case[1:] for case in SICK],
    ids=[f"{case[0]} on {case[1]}" for case in SICK],
)
def test_a_key_that_will_not_do_is_told(version, change, told, evidence, outcome):
    verdict, _, what = told.partition(" ")
    (matching,) = [finding for finding in found(change(GOOD), version) if what in finding.what]
    assert (matching.verdict, matching.outcome) == (verdict, outcome)
    assert evidence in matching.evidence
    assert matching.remedy


HARMLESS: list[tuple[str, str, Change]] = [
    ("window, turned off", NEW, config(sliding_window=4096, use_sliding_window=False)),
    ("layer types without one", NEW, config(layer_types=["full_attention"])),
    ("norm_output is read", NEW, config(norm_output=True)),
    ("kimi_k2 is known", NEW, config(model_type="kimi_k2")),
    ("own code", OLD, config(model_type="kimi_k2", auto_map={"AutoConfig": "x.Y"})),
    ("rope in both spellings", "0.5.8", config(rope_theta=1e4, rope_parameters={"rope_theta": 1e4})),
    ("rope in the new spelling", NEW, config(rope_theta=..., rope_parameters={"rope_theta": 1e4})),
    ("no rope at all", "0.5.8", config(rope_theta=...)),
]


@pytest.mark.parametrize(("version", "change"), [case[1:] for case in HARMLESS], ids=[case[0] for case in HARMLESS])
def test_what_harms_nothing_is_not_told(version, change):
    assert [finding.verdict for finding in found(change(GOOD), version)] == ["PASS"]


def test_heads_are_asked_since_transformers_5():
    change = config(num_attention_heads=3, head_dim=...)
    assert not any("not a multiple" in finding.what for finding in found(change(GOOD), "0.5.8"))


def test_a_window_that_the_server_is_told_of_is_no_matter():
    change = config(sliding_window=2048)
    assert [finding.verdict for finding in found(change(GOOD), NEW, draft_window=2048)] == ["PASS"]


def test_a_head_tied_to_the_targets_embeddings_is_told_where_the_targets_own_is_not():
    change = both(without("lm_head.weight", "d2t"), config(tie_word_embeddings=True, draft_vocab_size=512))
    (only,) = found(change(GOOD), NEW)
    assert (only.verdict, "the target's own is not" in only.what) == ("WARN", True)
    tied: dict[str, Any] = {**TARGET, "tie_word_embeddings": True}
    assert [finding.verdict for finding in found(change(GOOD), NEW, tied)] == ["PASS"]


def test_norm_output_of_a_latent_draft_is_read_a_version_later():
    verdicts = {
        v: [f.verdict for f in found(config(norm_output=True)(latent()), v, KIMI)] for v in ("0.5.12", "0.5.13")
    }
    assert verdicts == {"0.5.12": ["WARN"], "0.5.13": ["PASS"]}
