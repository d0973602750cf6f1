from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.checkpoint import draft, draft_vllm
from deploy.checkpoint.draft import DraftFacts, Serving
from deploy.checks import Finding
from deploy.errors import ConfigError
from deploy.host import header

TINY = Path(__file__).parents[2] / "examples/tiny-eagle3"
GOOD = draft.load_facts(TINY / "draft")
TARGET: dict[str, Any] = json.loads((TINY / "target/config.json").read_text())
OLD, NEW, ANY = "0.5.11", "0.5.12.post1", None

Change = Callable[[DraftFacts], DraftFacts]


def found(facts: DraftFacts, version: str | None, target: dict[str, Any] | None = None) -> list[Finding]:
    return draft.findings(facts, target or TARGET, Serving("sglang", version, "EAGLE3"))


def config(**keys: Any) -> Change:
    """Keys set; one that is ... is taken out."""
    return lambda facts: replace(facts, config={k: v for k, v in {**facts.config, **keys}.items() if v is not ...})


def aux(*ids: Any) -> Change:
    return config(eagle_config={"eagle_aux_hidden_state_layer_ids": list(ids)})


def renamed(rename: Callable[[str], str]) -> Change:
    return lambda facts: replace(facts, tensors={rename(name): tensor for name, tensor in facts.tensors.items()})


def without(*names: str) -> Change:
    return lambda facts: replace(facts, tensors={k: t for k, t in facts.tensors.items() if k not in names})


def shaped(name: str, *shape: int, dtype: str = "F32") -> Change:
    tensor = header.Tensor(dtype, shape, 0, 0)
    return lambda facts: replace(facts, tensors={**facts.tensors, name: tensor})


def mapped(change: Callable[[list[int]], list[int]], *, t2d: bool = True) -> Change:
    return lambda facts: replace(facts, d2t=change(list(facts.d2t or [])), t2d=facts.t2d if t2d else None)


def both(*changes: Change) -> Change:
    def change(facts: DraftFacts) -> DraftFacts:
        for one in changes:
            facts = one(facts)
        return facts

    return change


def layers0(name: str) -> str:
    return name.replace("midlayer.", "layers.0.")


def absolute(d2t: list[int]) -> list[int]:
    return [number + offset for number, offset in enumerate(d2t)]


def backwards(d2t: list[int]) -> list[int]:
    """The same targets in another order: healthy for the server."""
    return [target - number for number, target in enumerate(reversed(absolute(d2t)))]


@pytest.mark.parametrize("version", ["0.5.8", OLD, "0.5.12", "0.5.23", "0.6.0rc1", "0.0.0.dev1+g1234", ANY])
def test_the_trained_draft_passes(version):
    (only,) = found(GOOD, version)
    assert only.verdict == "PASS"
    assert "loads this draft as LlamaForCausalLMEagle3" in only.what


FC_NORM = both(config(fc_norm=True), *[shaped(f"fc_norm.{number}.weight", 128) for number in range(3)])
FC_NORM_LEGACY = both(
    config(fc_norm=True), *[shaped(f"aux_norm_{name}.weight", 128) for name in ("low", "mid", "high")]
)
QKV = [f"midlayer.self_attn.{name}_proj.weight" for name in "qkv"]
FOUR_AUX = both(aux(0, 1, 2, 4), shaped("fc.weight", 128, 512))

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
    ("ids may be absent", ANY, config(eagle_config={})),
    ("-1 captures the embeddings", ANY, aux(-1, 2, 4)),
    ("a map may be unsorted", ANY, mapped(backwards)),
    ("offsets without t2d", ANY, mapped(list, t2d=False)),
    ("another key may be null", ANY, config(rope_scaling=None, pad_token_id=None)),
    ("a norm for each aux layer", NEW, FC_NORM),
    ("its old names", NEW, FC_NORM_LEGACY),
    ("four aux layers", NEW, FOUR_AUX),
]


@pytest.mark.parametrize(("version", "change"), [case[1:] for case in HEALTHY], ids=[case[0] for case in HEALTHY])
def test_a_healthy_variant_passes(version, change):
    assert [finding.verdict for finding in found(change(GOOD), version)] == ["PASS"]


DROPPED, RANDOM, SHAPES = "drops tensors of the draft", "finds no tensor", "builds other shapes"
SICK: list[tuple[str, str | None, Change, str, str]] = [
    # what, on which version, the change, "VERDICT words of what", words of the evidence
    ("layers.0", OLD, renamed(layers0), f"FAIL {DROPPED}", "layers.0.mlp.up_proj.weight -> dropped"),
    ("layers.0", "0.0.0.dev1", renamed(layers0), f"UNKNOWN {DROPPED}", "layers.0.mlp.up_proj.weight -> dropped"),
    ("layers.0", ANY, renamed(layers0), f"UNKNOWN {DROPPED}", "layers.0.mlp.up_proj.weight -> dropped"),
    ("other prefix", NEW, renamed(lambda name: f"draft.{name}"), f"FAIL {DROPPED}", "draft.fc.weight -> dropped"),
    ("model. prefix", ANY, renamed(lambda name: f"model.{name}"), f"FAIL {DROPPED}", "model.lm_head.weight -> dropped"),
    ("q_norm", ANY, shaped("midlayer.self_attn.q_norm.weight", 32), f"FAIL {DROPPED}", "q_norm.weight -> dropped"),
    ("attention bias", ANY, shaped("midlayer.self_attn.q_proj.bias", 128), f"FAIL {DROPPED}", "q_proj.bias -> dropped"),
    ("fc_norm", OLD, FC_NORM, f"FAIL {DROPPED}", "fc_norm.2.weight -> dropped"),
    ("no lm_head", ANY, without("lm_head.weight"), f"FAIL {RANDOM}", "lm_head.weight <- nothing"),
    ("no fc", ANY, without("fc.weight"), f"FAIL {RANDOM}", "fc.weight <- nothing"),
    ("no norm", ANY, without("norm.weight"), f"FAIL {RANDOM}", "norm.weight <- nothing"),
    ("no hidden_norm", ANY, without("midlayer.hidden_norm.weight"), f"FAIL {RANDOM}", "hidden_norm.weight <- nothing"),
    ("no k_proj", ANY, without("midlayer.self_attn.k_proj.weight"), f"FAIL {RANDOM}", "k_proj.weight <- nothing"),
    ("no v_proj", ANY, without(QKV[2]), f"FAIL {RANDOM}", "v_proj.weight <- nothing"),
    ("narrow fc", ANY, shaped("fc.weight", 128, 128), f"FAIL {SHAPES}", "[128, 128], the server builds [128, 384]"),
    ("four aux layers", OLD, FOUR_AUX, f"FAIL {SHAPES}", "fc.weight: [128, 512], the server builds [128, 384]"),
    ("plain q_proj", ANY, shaped("midlayer.self_attn.q_proj.weight", 128, 128), f"FAIL {SHAPES}", "builds [128, 256]"),
    ("wide lm_head", ANY, shaped("lm_head.weight", 512, 128), f"FAIL {SHAPES}", "builds [256, 128]"),
    ("no d2t", ANY, without("d2t"), "FAIL d2t is missing", "draft_vocab_size 256, vocab_size 512"),
    ("d2t of floats", ANY, shaped("d2t", 256), "FAIL d2t does not hold integers", "dtype F32"),
    ("d2t too short", ANY, shaped("d2t", 255, dtype="I64"), "FAIL d2t maps [255] draft tokens, the draft has 256", ""),
    ("d2t not read", ANY, lambda facts: replace(facts, d2t=None), "UNKNOWN cannot tell whether d2t", "shape [256]"),
    ("d2t of ids", ANY, mapped(absolute), "FAIL d2t holds target ids", "t2d: "),
    ("d2t of ids, no t2d", ANY, mapped(absolute, t2d=False), "FAIL d2t holds target ids", "d2t: "),
    ("d2t of ids, unsorted", ANY, mapped(lambda d2t: absolute(d2t)[::-1]), "FAIL d2t holds target ids", "d2t: "),
    ("d2t of neither", ANY, mapped(lambda d2t: [n + 1 for n in d2t]), "UNKNOWN cannot tell whether d2t holds", "t2d: "),
    ("d2t of either", ANY, mapped(lambda d2t: [*range(256)], t2d=False), "UNKNOWN cannot tell whether d2t", "d2t: "),
    ("other width", ANY, config(target_hidden_size=96), "FAIL a target of hidden_size 96, this one has 128", "96"),
    ("other vocabulary", ANY, config(vocab_size=513), "FAIL a target of vocab_size 513, this one has 512", "513"),
    ("aux layer above", ANY, aux(2, 30, 58), "FAIL aux layers [30, 58] do not exist", "[2, 30, 58]"),
    ("aux layer at the end", ANY, aux(2, 4, 6), "FAIL aux layers [6] do not exist", "[2, 4, 6]"),
    ("aux layer below", ANY, aux(-2, 1, 2), "FAIL aux layers [-2] do not exist", "[-2, 1, 2]"),
    ("aux layer of text", ANY, aux("1", 1, 2), "FAIL aux layers ['1'] do not exist", "['1', 1, 2]"),
    ("a null width", ANY, config(target_hidden_size=None), "FAIL target_hidden_size is null", "null"),
    ("no draft_vocab_size", ANY, config(draft_vocab_size=...), "FAIL has no draft_vocab_size", "architectures"),
    ("norm_before_residual", ANY, config(norm_before_residual=True), "FAIL norm_before_residual", "true"),
    ("two layers", OLD, config(num_hidden_layers=2), "FAIL takes drafts of one layer only", "num_hidden_layers: 2"),
    ("two layers", ANY, config(num_hidden_layers=2), "UNKNOWN takes drafts of one layer only", "num_hidden_layers: 2"),
    ("two layers", NEW, config(num_hidden_layers=2), f"FAIL {RANDOM}", "layers.1.mlp.up_proj.weight <- nothing"),
    ("Speculators", ANY, config(speculators_model_type="eagle3"), "FAIL raw Speculators", "LlamaForCausalLMEagle3"),
    ("EAGLE-1", ANY, config(architectures=["LlamaForCausalLMEagle"]), "WARN class LlamaForCausalLMEagle", ""),
    ("no class", ANY, config(architectures=...), "WARN no rules for a draft of class None", ""),
    ("MLA", ANY, config(architectures=["Eagle3DeepseekV2ForCausalLM"]), "WARN no rules for the tensors", ""),
    ("quantized", ANY, config(quantization_config={"bits": 4}), "WARN no rules for the tensors", ""),
    ("broken", ANY, lambda facts: replace(facts, broken=("it is truncated",)), "FAIL files are broken", "is truncated"),
]


@pytest.mark.parametrize(
    ("version", "change", "told", "evidence"),
    [case[1:] for case in SICK],
    ids=[f"{case[0]} on {case[1]}" for case in SICK],
)
def test_a_sick_draft_is_told_with_evidence_and_remedy(version, change, told, evidence):
    verdict, _, what = told.partition(" ")
    matching = [finding for finding in found(change(GOOD), version) if what in finding.what]
    assert [finding.verdict for finding in matching] == [verdict]
    assert evidence in matching[0].evidence
    assert matching[0].remedy
    assert matching[0].check == "ckpt"


ONE_CAUSE = [case for case in SICK if case[0] in {"layers.0", "no lm_head", "no d2t", "d2t of ids", "fc too narrow"}]


@pytest.mark.parametrize(("version", "change"), [case[1:3] for case in ONE_CAUSE])
def test_one_cause_is_told_once(version, change):
    assert len(found(change(GOOD), version)) == 1


REMEDIES: list[tuple[str, str, Change, str]] = [
    ("renaming helps", OLD, renamed(layers0), "hooks/fix_eagle3_keys"),
    ("renaming helps", NEW, renamed(lambda name: f"model.{name}"), "hooks/fix_eagle3_keys"),
    ("a newer server helps", OLD, FC_NORM, "upgrade to 0.5.12"),
    ("nothing helps", OLD, shaped("midlayer.self_attn.q_norm.weight", 32), "convert the draft, or train it"),
]


@pytest.mark.parametrize(("version", "change", "remedy"), [case[1:] for case in REMEDIES])
def test_the_remedy_for_dropped_tensors_is_one_that_helps(version, change, remedy):
    (dropped,) = [finding for finding in found(change(GOOD), version) if DROPPED in finding.what]
    assert remedy in dropped.remedy


@pytest.mark.parametrize(
    ("algorithm", "verdict"), [("EAGLE3", "PASS"), ("EAGLE", "FAIL"), ("NEXTN", "FAIL"), (None, "PASS")]
)
def test_the_algorithm_must_capture_the_aux_layers(algorithm, verdict):
    assert [f.verdict for f in draft.findings(GOOD, TARGET, Serving("sglang", OLD, algorithm))] == [verdict]


def test_a_target_that_is_not_known_is_not_told_as_fine():
    (only,) = draft.findings(GOOD, None, Serving("sglang", NEW, "EAGLE3"))
    assert only.verdict == "UNKNOWN"
    assert "not compared with its target" in only.what


def test_a_target_that_also_sees_has_its_text_config_inside():
    assert [f.verdict for f in found(GOOD, NEW, {"hidden_size": 1, "text_config": TARGET})] == ["PASS"]
    assert [f.verdict for f in found(GOOD, NEW, {"text_config": {**TARGET, "hidden_size": 64}})] == ["FAIL"]


@pytest.mark.parametrize("engine", ["llamacpp", "command", "vllm"])
def test_other_engines_have_no_rules_yet(engine):
    assert draft.findings(without("fc.weight")(GOOD), TARGET, Serving(engine)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(sorted(GOOD.config)), JSON, max_size=4),
    ids=JSON,
    version=st.sampled_from([OLD, NEW, ANY]),
)
def test_no_config_makes_it_crash(changes, ids, version):
    facts = config(**changes)(config(eagle_config={"eagle_aux_hidden_state_layer_ids": ids})(GOOD))
    assert found(facts, version)


def test_a_drafts_maps_are_read():
    assert GOOD.d2t is not None
    assert GOOD.t2d is not None
    assert len(GOOD.d2t) == 256
    assert GOOD.t2d == frozenset(absolute(list(GOOD.d2t)))
    assert (len(GOOD.tensors), GOOD.format, GOOD.broken) == (15, "safetensors", ())


def test_a_single_weights_file_is_read_alone(tmp_path):
    shutil.copytree(TINY / "draft", tmp_path / "draft")
    (tmp_path / "draft/older.safetensors").write_bytes(b"")
    assert draft.load_facts(tmp_path / "draft/model.safetensors") == replace(
        GOOD, path=str(tmp_path / "draft/model.safetensors")
    )
    assert "older.safetensors" in draft.load_facts(tmp_path / "draft").broken[0]


def test_a_gguf_has_no_findings_yet(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    for path in (tmp_path, tmp_path / "a.gguf"):
        facts = draft.load_facts(path)
        assert facts.format == "gguf"
        assert found(facts, NEW) == []


BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("truncated", lambda path: (path / "model.safetensors").write_bytes(b"\x01"), "is 1 bytes long"),
    ("no config", lambda path: (path / "config.json").unlink(), "config.json"),
    ("config is no JSON", lambda path: (path / "config.json").write_text("{"), "config.json"),
    ("config is a list", lambda path: (path / "config.json").write_text("[]"), "is not a JSON object"),
    ("no weights", lambda path: (path / "model.safetensors").unlink(), "there is no .safetensors file"),
    (
        "a shard is missing",
        lambda path: (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}'),
        "b.safetensors: named by the index, missing",
    ),
]


@pytest.mark.parametrize(("change", "what"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_files_that_cannot_be_read_are_told(tmp_path, change, what):
    shutil.copytree(TINY / "draft", tmp_path / "draft")
    change(tmp_path / "draft")
    facts = draft.load_facts(tmp_path / "draft")
    assert what in facts.broken[0]
    assert [finding.verdict for finding in found(facts, NEW)] == ["FAIL"]


def test_a_draft_that_is_not_there_is_the_users_error(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        draft.load_facts(tmp_path / "nowhere")


# ---- vLLM


VLLM = "0.32.0+cpu"


def on_vllm(facts: DraftFacts, version: str | None = VLLM, target: dict[str, Any] | None = None) -> list[Finding]:
    return draft_vllm.findings(facts, target or TARGET, Serving("vllm", version, "EAGLE3"))


FOR_VLLM = aux(1, 3, 5)(GOOD)  # it was trained for SGLang's count
VLLM_HEALTHY: list[tuple[str, Change]] = [
    ("as it was trained", lambda facts: facts),
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
    ("a bias that is said", both(config(attention_bias=True), shaped("midlayer.self_attn.q_proj.bias", 128))),
    ("a map may be unsorted", mapped(backwards)),
    ("a norm for each aux layer", FC_NORM),
    ("four aux layers", both(FOUR_AUX, aux(1, 2, 3, 5))),
    ("ids may be absent", config(eagle_config={})),
]


@pytest.mark.parametrize("change", [case[1] for case in VLLM_HEALTHY], ids=[case[0] for case in VLLM_HEALTHY])
def test_a_healthy_variant_passes_on_vllm(change):
    assert [finding.verdict for finding in on_vllm(change(FOR_VLLM))] == ["PASS"]


NO_PLACE, LEFT = "FAIL vllm 0.32.0+cpu has no place for tensors", "FAIL vllm 0.32.0+cpu finds no tensor"
VLLM_SICK: list[tuple[str, Change, str, str]] = [
    ("other prefix", renamed(lambda name: f"draft.{name}"), NO_PLACE, "draft.fc.weight"),
    ("model. prefix", renamed(lambda name: f"model.{layers0(name)}"), NO_PLACE, "model.layers.0.mlp.up_proj.weight"),
    ("SGLang's old names", FC_NORM_LEGACY, NO_PLACE, "aux_norm_low.weight"),
    ("a bias in silence", shaped("midlayer.self_attn.q_proj.bias", 128), "FAIL vllm 0.32.0+cpu drops", "q_proj.bias"),
    ("no head", without("lm_head.weight"), "FAIL lm_head is missing", "draft_vocab_size 256, vocab_size 512"),
    ("no fc", without("fc.weight"), LEFT, "fc.weight <- nothing"),
    ("no hidden_norm", without("midlayer.hidden_norm.weight"), LEFT, "midlayer.hidden_norm.weight <- nothing"),
    ("no d2t", without("d2t"), "FAIL d2t is missing", "draft_vocab_size 256"),
    ("absolute d2t", mapped(absolute), "FAIL d2t holds target ids", "d2t: ["),
    ("narrow fc", shaped("fc.weight", 128, 256), "FAIL vllm 0.32.0+cpu builds other shapes", "builds [128, 384]"),
    ("the embeddings are no layer", aux(-1, 2, 4), "FAIL aux layers [-1] do not exist", "[-1, 2, 4]"),
    ("a layer too many", config(eagle_aux_hidden_state_layer_ids=[1, 3, 9]), "FAIL aux layers [9]", "[1, 3, 9]"),
    ("another target", config(hidden_size=64), "FAIL the draft was made for a target of hidden_size 64", "draft 64"),
    ("Speculators", config(speculators_model_type="eagle3"), "UNKNOWN no rules for a Speculators folder", ""),
    ("another class", config(architectures=["Qwen3Eagle3"]), "UNKNOWN no rules for a draft of class Qwen3Eagle3", ""),
    ("quantized", config(quantization_config={"bits": 4}), "UNKNOWN no rules for a quantized draft", ""),
    ("half a file", lambda facts: replace(facts, broken=("cut",)), "FAIL the draft's files are broken", "cut"),
]


@pytest.mark.parametrize(
    ("change", "told", "evidence"), [case[1:] for case in VLLM_SICK], ids=[case[0] for case in VLLM_SICK]
)
def test_what_is_wrong_on_vllm_is_told(change, told, evidence):
    findings = on_vllm(change(FOR_VLLM))
    matching = [f for f in findings if f"{f.verdict} {f.what}".startswith(told)]
    assert matching, findings
    assert evidence in matching[0].evidence
    assert "PASS" not in {finding.verdict for finding in findings}


@pytest.mark.parametrize("version", [None, "0.11.0", "0.33.0", "0.320.0"])
def test_of_another_version_of_vllm_nothing_is_certain(version):
    for change in (lambda facts: facts, without("d2t")):
        assert {finding.verdict for finding in on_vllm(change(FOR_VLLM), version)} == {"UNKNOWN"}


@pytest.mark.parametrize(("ids", "layers", "meant"), [((0, 2, 4), 6, "[1, 3, 5]"), ((1, 15, 28), 32, "[2, 16, 29]")])
def test_aux_layers_that_are_counted_as_sglang_does_are_told(ids, layers, meant):
    (only,) = on_vllm(aux(*ids)(GOOD), target={**TARGET, "num_hidden_layers": layers})
    assert (only.verdict, meant in only.remedy) == ("WARN", True)
