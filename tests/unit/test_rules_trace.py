"""Names and shapes: where SGLang puts the tensors of a draft, and what becomes of one whose names or shapes differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.checkpoint.facts import Facts
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
    backwards,
    both,
    config,
    found,
    latent,
    layers0,
    mapped,
    renamed,
    shaped,
    unchanged,
    without,
)


@pytest.mark.parametrize("version", ["0.5.8", OLD, "0.5.12", "0.5.23", "0.0.0.dev1+g1234", "nonsense", ANY])
def test_the_trained_draft_passes(version):
    (only,) = found(GOOD, version)
    assert only.verdict == "PASS"
    assert "loads this draft as LlamaForCausalLMEagle3" in only.what


def test_by_a_server_that_is_newer_than_what_was_read_the_draft_passes_with_a_word():
    passed, newer = found(GOOD, "0.6.0rc1")
    assert (passed.verdict, newer.verdict) == ("PASS", "WARN")
    assert "is newer than 0.5.23" in newer.what


FC_NORM = both(config(fc_norm=True), *[shaped(f"fc_norm.{number}.weight", 128) for number in range(3)])
FC_NORM_LEGACY = both(
    config(fc_norm=True), *[shaped(f"aux_norm_{name}.weight", 128) for name in ("low", "mid", "high")]
)
QKV = [f"midlayer.self_attn.{name}_proj.weight" for name in "qkv"]
INNER = {"q_proj": (128, 128), "k_proj": (64, 128), "v_proj": (64, 128), "o_proj": (128, 128)}
TWO_LAYERS = both(
    config(num_hidden_layers=2),
    *[shaped(f"layers.1.self_attn.{name}.weight", *shape) for name, shape in INNER.items()],
    *[shaped(f"layers.1.mlp.{name}_proj.weight", 256, 128) for name in ("gate", "up")],
    shaped("layers.1.mlp.down_proj.weight", 128, 256),
    *[shaped(f"layers.1.{name}.weight", 128) for name in ("hidden_norm", "post_attention_layernorm")],
)
FOUR_AUX = both(aux(0, 1, 2, 4), shaped("fc.weight", 128, 512))
INPUT_NORM = both(config(norm_before_fc=True), shaped("input_norm.weight", 384))

HEALTHY: list[tuple[str, str | None, Change]] = [
    ("layers.0 is known", NEW, renamed(layers0)),
    ("model.layers.0 is known", NEW, renamed(lambda name: f"model.{layers0(name)}" if "midlayer" in name else name)),
    ("model.midlayer is known", OLD, renamed(lambda name: f"model.{name}" if "midlayer" in name else name)),
    (
        "no head of its own: null takes the target's",
        ANY,
        both(without("lm_head.weight", "d2t"), config(draft_vocab_size=None)),
    ),
    ("embeddings are thrown away, not missed", ANY, shaped("embed_tokens.weight", 512, 128)),
    ("what is computed anew may be dropped", ANY, shaped("midlayer.self_attn.rotary_emb.inv_freq", 16)),
    ("saved with q, k, v in one", ANY, both(without(*QKV), shaped("midlayer.self_attn.qkv_proj.weight", 256, 256))),
    ("-1 captures the embeddings", ANY, aux(-1, 2, 4)),
    ("a map may be unsorted", ANY, mapped(backwards)),
    ("offsets without t2d", ANY, mapped(list, t2d=False)),
    ("another key may be null", ANY, config(rope_scaling=None, pad_token_id=None, quantization_config=None)),
    ("a norm for each aux layer", NEW, FC_NORM),
    ("its old names", NEW, FC_NORM_LEGACY),
    ("four aux layers", NEW, FOUR_AUX),
    ("a norm before fc", "0.5.18", INPUT_NORM),
    ("two layers, of which the first alone takes embeddings", NEW, TWO_LAYERS),
]


@pytest.mark.parametrize(("version", "change"), [case[1:] for case in HEALTHY], ids=[case[0] for case in HEALTHY])
def test_a_healthy_variant_passes(version, change):
    assert [finding.verdict for finding in found(change(GOOD), version)] == ["PASS"]


DROPPED, RANDOM, SHAPES = "drops tensors of the draft", "finds no tensor", "builds other shapes"
DEAD, STILL = "will serve at accept length 1.00", "will not start"
SICK: list[tuple[str, str | None, Change, str, str, str]] = [
    # what, on which version, the change, "VERDICT words of what", words of the evidence, outcome
    ("layers.0", OLD, renamed(layers0), f"FAIL {DROPPED}", "layers.0.mlp.up_proj.weight -> dropped", DEAD),
    ("layers.0", "0.0.0.dev1", renamed(layers0), f"UNKNOWN {DROPPED}", "layers.0.mlp.up_proj.weight -> dropped", ""),
    ("layers.0", ANY, renamed(layers0), f"UNKNOWN {DROPPED}", "so it is with sglang <0.5.12", ""),
    ("other prefix", NEW, renamed(lambda name: f"draft.{name}"), f"FAIL {DROPPED}", "draft.fc.weight -> dropped", DEAD),
    ("model.", ANY, renamed(lambda name: f"model.{name}"), f"FAIL {DROPPED}", "model.lm_head.weight -> dropped", DEAD),
    (
        "q_norm",
        ANY,
        shaped("midlayer.self_attn.q_norm.weight", 32),
        f"FAIL {DROPPED}",
        "q_norm.weight -> dropped",
        DEAD,
    ),
    ("bias", ANY, shaped("midlayer.self_attn.q_proj.bias", 128), f"FAIL {DROPPED}", "q_proj.bias -> dropped", DEAD),
    ("fc_norm", OLD, FC_NORM, f"FAIL {DROPPED}", "fc_norm.2.weight -> dropped", DEAD),
    ("input_norm", "0.5.13", INPUT_NORM, f"FAIL {DROPPED}", "input_norm.weight -> dropped", DEAD),
    ("no lm_head", ANY, without("lm_head.weight"), f"FAIL {RANDOM}", "lm_head.weight <- nothing", DEAD),
    ("no fc", ANY, without("fc.weight"), f"FAIL {RANDOM}", "fc.weight <- nothing", DEAD),
    ("no norm", ANY, without("norm.weight"), f"FAIL {RANDOM}", "model.norm.weight <- nothing", DEAD),
    ("no hidden_norm", ANY, without("midlayer.hidden_norm.weight"), f"FAIL {RANDOM}", "norm.weight <- nothing", DEAD),
    ("no k_proj", ANY, without(QKV[1]), f"FAIL {RANDOM}", "qkv_proj.weight <- only q,v, the rest is random", DEAD),
    ("no v_proj", ANY, without(QKV[2]), f"FAIL {RANDOM}", "qkv_proj.weight <- only k,q, the rest is random", DEAD),
    (
        "narrow fc",
        ANY,
        shaped("fc.weight", 128, 128),
        f"FAIL {SHAPES}",
        "[128, 128], the server builds [128, 384]",
        STILL,
    ),
    ("four aux layers", OLD, FOUR_AUX, f"FAIL {SHAPES}", "fc.weight: [128, 512], the server builds [128, 384]", STILL),
    ("plain q_proj", ANY, shaped(QKV[0], 128, 128), f"FAIL {SHAPES}", "builds [128, 256]", STILL),
    ("short q_proj", ANY, shaped(QKV[0], 96, 256), f"FAIL {SHAPES}", "builds [128, 256]", STILL),
    ("long q_proj", ANY, shaped(QKV[0], 160, 256), "FAIL only in part", "what is over is cut off", DEAD),
    (
        "narrow down_proj",
        ANY,
        shaped("midlayer.mlp.down_proj.weight", 128, 100),
        "FAIL only in part",
        "the rest is filled with zeros",
        DEAD,
    ),
    ("wide lm_head", ANY, shaped("lm_head.weight", 512, 128), f"FAIL {SHAPES}", "builds [256, 128]", STILL),
    (
        "other width",
        ANY,
        config(target_hidden_size=96),
        "FAIL a target of hidden_size 96, this one has 128",
        "96",
        STILL,
    ),
    ("its embeddings", ANY, config(target_hidden_size=96), f"FAIL {RANDOM}", "embed_tokens.weight <- nothing", DEAD),
    ("other vocabulary", ANY, config(vocab_size=640), "FAIL a target of vocab_size 640, this one has 512", "640", DEAD),
    ("a null width", ANY, config(target_hidden_size=None), "FAIL target_hidden_size is null", "config.json", STILL),
    ("no draft_vocab_size", ANY, config(draft_vocab_size=...), "FAIL no attribute 'draft_vocab_size'", "model", STILL),
    ("a size beyond belief", ANY, config(hidden_size=10**400), "FAIL which is no size", "hidden_size: 1000", STILL),
    ("eagle_config is a list", NEW, config(eagle_config=[1]), "FAIL eagle_config is [1]", "eagle_config: [1]", STILL),
    ("a size of text", ANY, config(hidden_size="128"), "FAIL hidden_size is '128'", "hidden_size", STILL),
    ("two layers", OLD, config(num_hidden_layers=2), "FAIL num_hidden_layers is 2", "config.json", STILL),
    ("two layers", ANY, config(num_hidden_layers=2), "UNKNOWN num_hidden_layers is 2", "sglang <0.5.12", ""),
    (
        "two layers",
        NEW,
        config(num_hidden_layers=2),
        f"FAIL {RANDOM}",
        "layers.1.mlp.gate_up_proj.weight <- nothing",
        DEAD,
    ),
    ("one more tensor", ANY, shaped("extra.weight", 4, 4), "UNKNOWN that it does not know", "extra.weight", ""),
    ("one more layer", NEW, shaped("layers.1.hidden_norm.weight", 128), f"FAIL {DROPPED}", "layers.1.hidden", DEAD),
    ("a wrapper", ANY, renamed("module.{}".format), f"FAIL {DROPPED}", "module.fc.weight -> dropped", DEAD),
    ("a map of one number", ANY, shaped("d2t", dtype="I64"), "FAIL d2t is one number", "d2t []", STILL),
    (
        "EAGLE-1",
        ANY,
        both(without("d2t"), config(architectures=["LlamaForCausalLMEagle"])),
        "UNKNOWN LlamaForCausalLMEagle",
        "architectures",
        "",
    ),
    ("EAGLE-3", ANY, config(architectures=["LlamaForCausalLM"]), "FAIL names LlamaForCausalLM", "architectures", STILL),
    ("no class", ANY, config(architectures=...), "FAIL names no class", "architectures: None", STILL),
    ("quantized", ANY, config(quantization_config={"bits": 4}), "UNKNOWN a quantized draft", "architectures", ""),
]


@pytest.mark.parametrize(
    ("version", "change", "told", "evidence", "outcome"),
    [case[1:] for case in SICK],
    ids=[f"{case[0]} on {case[1]}" for case in SICK],
)
def test_a_sick_draft_is_told_with_evidence_and_remedy(version, change, told, evidence, outcome):
    verdict, _, what = told.partition(" ")
    matching = [finding for finding in found(change(GOOD), version) if what in finding.what]
    assert [finding.verdict for finding in matching] == [verdict]
    assert evidence in matching[0].evidence
    assert matching[0].outcome == outcome
    assert matching[0].remedy
    assert matching[0].check == "ckpt"


ONE_CAUSE = [
    case for case in SICK if case[0] in {"layers.0", "no lm_head", "narrow fc", "q_norm", "two layers", "bias"}
]


@pytest.mark.parametrize(("version", "change"), [case[1:3] for case in ONE_CAUSE if case[:2] != ("two layers", ANY)])
def test_one_cause_is_told_once(version, change):
    assert len(found(change(GOOD), version)) == 1


REMEDIES: list[tuple[str, str, Change, str]] = [
    ("renaming helps", OLD, renamed(layers0), "hooks/fix_eagle3_keys"),
    ("renaming helps", NEW, renamed(lambda name: f"model.{name}"), "hooks/fix_eagle3_keys"),
    ("a newer server helps", OLD, FC_NORM, "upgrade to 0.5.12"),
    ("a newer server helps", "0.5.13", INPUT_NORM, "upgrade to 0.5.18"),
    ("nothing helps", OLD, shaped("midlayer.self_attn.q_norm.weight", 32), "cannot be repaired: convert the draft"),
    ("nothing helps", OLD, shaped("midlayer.self_attn.k_proj.bias", 64), "cannot be repaired: convert the draft"),
    ("nothing is known", NEW, shaped("what.norm.is.this", 64), "convert the draft, or train it"),
]


@pytest.mark.parametrize(("version", "change", "remedy"), [case[1:] for case in REMEDIES])
def test_the_remedy_for_dropped_tensors_is_one_that_helps(version, change, remedy):
    (dropped,) = [finding for finding in found(change(GOOD), version) if DROPPED in finding.what]
    assert remedy in dropped.remedy


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (without("lm_head.weight"), "the rows of the target's head that d2t names"),
        (both(without("lm_head.weight", "d2t"), config(draft_vocab_size=512)), "make draft_vocab_size null"),
        (without("lm_head.weight", "fc.weight"), "save the draft with all of them"),
    ],
)
def test_the_remedy_for_a_missing_head_depends_on_its_vocabulary(change, remedy):
    (missing,) = [finding for finding in found(change(GOOD), NEW) if RANDOM in finding.what]
    assert remedy in missing.remedy


# ---- the latent class


def on_kimi(draft: Facts, version: str | None) -> list[Any]:
    return found(draft, version, KIMI)


@pytest.mark.parametrize("version", ["0.5.12", "0.5.13", "0.5.18", "0.5.23"])
def test_a_latent_draft_passes_in_both_spellings(version):
    for draft in (latent(), latent(layers0)):
        assert [finding.verdict for finding in on_kimi(draft, version)] == ["PASS"]


LATENT_SICK: list[tuple[str, str, Change, str, str, str]] = [
    ("no class yet", OLD, unchanged, "has no class Eagle3DeepseekV2ForCausalLM", "it is there since 0.5.12", STILL),
    (
        "no head of its own, which no version takes from the target",
        "0.5.23",
        without("lm_head.weight"),
        RANDOM,
        "lm_head.weight <- nothing",
        DEAD,
    ),
    ("a prefix", NEW, renamed(lambda name: f"model.{name}"), "with a warning", "model.fc.weight -> dropped", DEAD),
    ("a half alone", NEW, without("midlayer.self_attn.q_a_proj.weight"), DROPPED, "kv_a_proj_with_mqa.weight", DEAD),
    (
        "halves of two widths",
        NEW,
        shaped("midlayer.self_attn.q_a_proj.weight", 48, 64, dtype="BF16"),
        SHAPES,
        "[48, 64] and [40, 128], the server builds [88, 128]",
        STILL,
    ),
    ("two layers", NEW, config(num_hidden_layers=2), "only supports 1 layer", "config.json", STILL),
    ("no rank", NEW, config(q_lora_rank=None), "requires q_lora_rank", "config.json", STILL),
    (
        "fc_norm",
        NEW,
        both(config(fc_norm=True), *[shaped(f"fc_norm.{n}.weight", 64, dtype="BF16") for n in range(3)]),
        DROPPED,
        "fc_norm.0.weight -> dropped",
        DEAD,
    ),
]


@pytest.mark.parametrize(
    ("version", "change", "what", "evidence", "outcome"),
    [case[1:] for case in LATENT_SICK],
    ids=[case[0] for case in LATENT_SICK],
)
def test_a_sick_latent_draft_is_told(version, change, what, evidence, outcome):
    (only,) = on_kimi(change(latent()), version)
    assert (only.verdict, only.outcome) == ("FAIL", outcome)
    assert what in only.what
    assert evidence in only.evidence
    assert only.remedy


def test_a_latent_draft_that_names_no_vocabulary_of_its_own_takes_the_targets_head():
    draft = without("lm_head.weight", "d2t")(replace(latent(), config={**LATENT_CONFIG, "draft_vocab_size": None}))
    assert [finding.verdict for finding in on_kimi(draft, "0.5.23")] == ["PASS"]


# ---- without a target, and without sense


def test_a_target_that_is_not_known_is_not_told_as_fine():
    (only,) = found(GOOD, NEW, {})
    assert only.verdict == "UNKNOWN"
    assert "not compared with its target" in only.what


def test_a_target_that_also_sees_has_its_text_config_inside():
    assert [f.verdict for f in found(GOOD, NEW, {"hidden_size": 1, "text_config": TARGET})] == ["PASS"]
    assert [f.verdict for f in found(GOOD, NEW, {"text_config": {**TARGET, "hidden_size": 64}})] == ["FAIL"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)
READ = sorted(
    {*GOOD.config, *LATENT_CONFIG, "fc_norm", "bias", "norm_before_fc", "num_aux_hidden_states", "target_hidden_size"}
    | {"rope_parameters", "rope_scaling", "layer_types", "sliding_window", "norm_output", "speculators_model_type"}
    | {"eagle_aux_hidden_state_layer_ids", "text_config", "quantization_config", "auto_map", "norm_before_residual"}
)


@settings(max_examples=150, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(READ), JSON, max_size=5),
    nested=st.dictionaries(st.sampled_from(["eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state"]), JSON),
    target=st.dictionaries(st.sampled_from(READ), JSON, max_size=5),
    version=st.sampled_from(["0.5.8", OLD, NEW, "0.5.23", ANY]),
    base=st.sampled_from([GOOD, latent()]),
)
def test_no_config_makes_it_crash(changes, nested, target, version, base):
    facts = config(**changes)(config(eagle_config=nested)(base))
    assert found(facts, version, {**TARGET, **target})
