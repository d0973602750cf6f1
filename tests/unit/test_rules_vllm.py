"""vLLM's loader: it stops at a name that it does not know, keeps silent about what it misses, and counts otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.checkpoint import rules
from deploy.checkpoint.facts import Facts, Problem
from deploy.checkpoint.rules import Serving, Target
from deploy.findings import Finding
from tests.drafts import (
    GOOD,
    TARGET,
    Change,
    absolute,
    aux,
    backwards,
    both,
    config,
    layers0,
    mapped,
    renamed,
    shaped,
    unchanged,
    without,
)
from tests.unit.test_rules_trace import FC_NORM, FC_NORM_LEGACY, FOUR_AUX

VLLM = "0.32.0+cpu"


def on_vllm(facts: Facts, version: str | None = VLLM, target: dict[str, Any] | None = None) -> list[Finding]:
    return rules.judge(facts, Target(target or TARGET), Serving("vllm", version, algorithm="EAGLE3"))


FOR_VLLM = aux(1, 3, 5)(GOOD)  # it was trained for SGLang's count
HEALTHY: list[tuple[str, Change]] = [
    ("as it was trained", unchanged),
    ("layers.0 is known", renamed(layers0)),
    ("vLLM's own name of the class", config(architectures=["Eagle3LlamaForCausalLM"])),
    (
        "without draft_vocab_size it is the target's",
        both(without("lm_head.weight", "d2t"), config(draft_vocab_size=...)),
    ),
    ("no head and no vocabulary of its own", both(without("lm_head.weight", "d2t"), config(draft_vocab_size=None))),
    ("its own embeddings", shaped("embed_tokens.weight", 512, 128)),
    ("what is computed anew", shaped("midlayer.self_attn.rotary_emb.inv_freq", 16)),
    ("norm_before_residual is implemented", config(norm_before_residual=True)),
    (
        "a bias that is said",
        both(
            config(attention_bias=True),
            *[
                shaped(f"midlayer.self_attn.{n}_proj.bias", rows)
                for n, rows in {"q": 128, "k": 64, "v": 64, "o": 128}.items()
            ],
        ),
    ),
    ("a map may be unsorted", mapped(backwards)),
    ("a norm for each aux layer", FC_NORM),
    ("four aux layers", both(FOUR_AUX, aux(1, 2, 3, 5))),
    ("ids at the top level", config(eagle_config=..., eagle_aux_hidden_state_layer_ids=[1, 3, 5])),
]


@pytest.mark.parametrize("version", [VLLM, "0.33.0"])
@pytest.mark.parametrize("change", [case[1] for case in HEALTHY], ids=[case[0] for case in HEALTHY])
def test_a_healthy_variant_passes_on_vllm(version, change):
    assert [finding.verdict for finding in on_vllm(change(FOR_VLLM), version)] == ["PASS"]


NO_PLACE, LEFT = "FAIL vllm 0.32.0+cpu has no place for tensors", "FAIL vllm 0.32.0+cpu finds no tensor"
OTHER = "FAIL vllm 0.32.0+cpu builds other shapes"


def modelled(name: str) -> str:
    return f"model.{name}" if name == "lm_head.weight" else name


SICK: list[tuple[str, Change, str, str]] = [
    ("other prefix", renamed(lambda name: f"draft.{name}"), NO_PLACE, "draft.fc.weight"),
    ("model. prefix", renamed(lambda name: f"model.{layers0(name)}"), NO_PLACE, "model.layers.0.mlp.up_proj.weight"),
    ("SGLang's old names", FC_NORM_LEGACY, NO_PLACE, "aux_norm_low.weight"),
    ("a bias in silence", shaped("midlayer.self_attn.q_proj.bias", 128), "FAIL vllm 0.32.0+cpu drops", "q_proj.bias"),
    ("no head", without("lm_head.weight"), "FAIL lm_head is missing", "draft_vocab_size 256, vocab_size 512"),
    ("no fc", without("fc.weight"), LEFT, "fc.weight <- nothing"),
    ("no hidden_norm", without("midlayer.hidden_norm.weight"), LEFT, "layers.0.hidden_norm.weight <- nothing"),
    ("no d2t", without("d2t"), "FAIL d2t is missing", "draft_vocab_size 256"),
    ("absolute d2t", mapped(absolute), "FAIL d2t holds target ids", "d2t: ["),
    ("narrow fc", shaped("fc.weight", 128, 256), "FAIL vllm 0.32.0+cpu builds other shapes", "builds [128, 384]"),
    ("the embeddings are no layer", aux(-1, 2, 4), "FAIL aux layers [-1] do not exist", "[-1, 2, 4]"),
    ("a layer too many", config(eagle_aux_hidden_state_layer_ids=[1, 3, 9]), "FAIL aux layers [9]", "[1, 3, 9]"),
    ("another target", config(hidden_size=64), "FAIL the draft was made for a target of hidden_size 64", "draft 64"),
    ("a narrow o_proj", shaped("midlayer.self_attn.o_proj.weight", 128, 64), OTHER, "[128, 64]"),
    ("a short map", shaped("d2t", 128), OTHER, "d2t: [128], the server builds [256]"),
    ("a map and no vocabulary of its own", config(draft_vocab_size=None), NO_PLACE, "d2t: there is no"),
    ("a bias that is said, and not there", config(attention_bias=True), LEFT, "self_attn.o_proj.bias <- nothing"),
    ("q_norm", shaped("midlayer.self_attn.q_norm.weight", 32), NO_PLACE, "q_norm"),
    ("a bias of nothing", shaped("head.bias", 256), NO_PLACE, "head.bias"),
    ("a norm not asked for", shaped("input_norm.weight", 384), "FAIL vllm 0.32.0+cpu drops", "input_norm.weight"),
    ("a head that is refused is not borrowed", renamed(modelled), NO_PLACE, "model.lm_head.weight: there is no"),
    ("no model_type", config(model_type=...), "FAIL config.json names no model_type", "model_type: None"),
    ("heads that do not divide", config(num_attention_heads=3), "FAIL the hidden size (128)", "num_attention_heads 3"),
    ("a null width", config(target_hidden_size=None), "FAIL vllm 0.32.0+cpu stops at this config", "config.json"),
    ("Speculators", config(speculators_model_type="eagle3"), "UNKNOWN no table says where vllm", ""),
    ("another class", config(architectures=["Qwen3Eagle3"]), "UNKNOWN no table says where vllm", "Qwen3Eagle3"),
    ("quantized", config(quantization_config={"bits": 4}), "UNKNOWN no table says where vllm", ""),
]


@pytest.mark.parametrize(("change", "told", "evidence"), [case[1:] for case in SICK], ids=[case[0] for case in SICK])
def test_what_is_wrong_on_vllm_is_told(change, told, evidence):
    findings = on_vllm(change(FOR_VLLM))
    matching = [f for f in findings if f"{f.verdict} {f.what}".startswith(told)]
    assert matching, findings
    assert evidence in matching[0].evidence
    assert "PASS" not in {finding.verdict for finding in findings}


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (config(draft_vocab_size=None), "say draft_vocab_size"),
        (shaped("midlayer.self_attn.q_norm.weight", 32), "Eagle3Qwen3ForCausalLM"),
        (renamed(lambda name: f"model.{layers0(name)}"), "without model. in front"),
        (shaped("input_norm.weight", 384), "say norm_before_fc: true"),
        (shaped("midlayer.self_attn.q_proj.bias", 128), "say attention_bias: true"),
    ],
)
def test_the_remedy_is_for_what_is_wrong(change, remedy):
    assert [finding for finding in on_vllm(change(FOR_VLLM)) if remedy in finding.remedy]


def test_of_two_layouts_in_one_folder_vllm_reads_mistrals_alone():
    """Called with such a folder, 0.32.0's DefaultModelLoader takes consolidated.safetensors and nothing else."""
    beside = replace(FOR_VLLM, problems=(Problem("is not read", "consolidated.safetensors"),))
    (told,) = [finding for finding in on_vllm(beside) if finding.verdict == "UNKNOWN"]
    assert "vLLM reads consolidated.safetensors alone" in told.what
    on_sglang = rules.judge(beside, Target(TARGET), Serving("sglang", "0.5.23", algorithm="EAGLE3"))
    assert not [finding for finding in on_sglang if "vLLM" in finding.what]


@pytest.mark.parametrize("version", [None, "0.11.0", "0.34.0", "0.320.0", "0.0.0.dev1"])
def test_of_another_version_of_vllm_nothing_is_certain(version):
    for change in (unchanged, without("d2t")):
        assert {finding.verdict for finding in on_vllm(change(FOR_VLLM), version)} == {"UNKNOWN"}


@pytest.mark.parametrize(("ids", "layers", "meant"), [((0, 2, 4), 6, "[1, 3, 5]"), ((1, 15, 28), 32, "[2, 16, 29]")])
def test_aux_layers_that_are_counted_as_sglang_does_are_told(ids, layers, meant):
    (only,) = on_vllm(aux(*ids)(GOOD), target={**TARGET, "num_hidden_layers": layers})
    assert (only.verdict, meant in only.remedy) == ("WARN", True)


@pytest.mark.parametrize("engine", ["llamacpp", "command"])
def test_other_engines_have_no_rules_yet(engine):
    """llama.cpp stops with a word at what it does not know or misses, so a header that is whole is all there is."""
    told = rules.judge(without("fc.weight")(GOOD), Target(TARGET), Serving(engine))
    assert [finding.verdict for finding in told] == ["PASS"]


@pytest.mark.parametrize(("engine", "verdict"), [("llamacpp", "PASS"), ("sglang", "UNKNOWN"), ("vllm", "UNKNOWN")])
def test_of_a_gguf_its_header_is_all_that_is_looked_at(engine, verdict):
    told = rules.judge(Facts("a.gguf", "gguf"), Target(TARGET), Serving(engine, "0.32.0"))
    assert [finding.verdict for finding in told] == [verdict]
