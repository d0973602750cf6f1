"""What a repair changes, told from facts alone: names, the vocabulary map, the config; and what no repair mends."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.checkpoint import repair
from deploy.checkpoint.facts import Facts, Problem, Tensor
from deploy.host import remedy
from deploy.host.counting import AS_THEY_ARE

HIDDEN, ROWS, VOCABULARY = 8, 4, 16
LAYER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "hidden_norm"]
SPOKEN = [1, 4, 5, 9]  # target ids that the draft can say
OFFSETS = [number - place for place, number in enumerate(SPOKEN)]
SGLANG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "vocab_size": VOCABULARY,
    "draft_vocab_size": ROWS,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 9], "use_aux_hidden_state": True},
}
INNER = {"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": 1, "vocab_size": VOCABULARY}
RAW: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "speculators_version": "0.9.0",
    "draft_vocab_size": ROWS,
    "norm_before_residual": False,
    "target_hidden_size": None,
    "eagle_aux_hidden_state_layer_ids": [2, 6, 10],
    "transformer_layer_config": {**INNER, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
    "speculators_config": {"algorithm": "eagle3", "verifier": {"architectures": ["LlamaForCausalLM"]}},
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY}
KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"vocab_size": VOCABULARY}}

# SGLang asks the class that holds the text model, not the text model's own
OUTER = {
    "architectures": ["Glm5NextForConditionalGeneration"],
    "text_config": {"architectures": ["GlmMoeDsaForCausalLM"]},
}


def tensors(layer: str = "midlayer.", top: str = "", **more: tuple[str, tuple[int, ...]] | None) -> dict[str, Tensor]:
    """A draft's tensors; `more` adds some by name (with __ for a dot), or takes them away."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        f"{layer}{name}.weight": ("BF16", (HIDDEN, HIDDEN)) for name in LAYER
    }
    found |= {f"{top}fc.weight": ("BF16", (HIDDEN, 3 * HIDDEN)), f"{top}norm.weight": ("BF16", (HIDDEN,))}
    found |= {"lm_head.weight": ("BF16", (ROWS, HIDDEN)), "d2t": ("I64", (ROWS,)), "t2d": ("BOOL", (VOCABULARY,))}
    for name, shape in more.items():
        if shape is None:
            del found[name.replace("__", ".")]
        else:
            found[name.replace("__", ".")] = shape
    return {name: Tensor(dtype, shape, 0, 0, "model.safetensors") for name, (dtype, shape) in found.items()}


def facts(config: Mapping[str, Any] = SGLANG, **fields: Any) -> Facts:
    given: dict[str, Any] = {"tensors": tensors(), "d2t": OFFSETS, "t2d": frozenset(SPOKEN), **fields}
    return Facts("/draft", config=config, **given)


def planned(
    found: Facts, target: Mapping[str, Any] | None = None, engine: str = "sglang", version: str | None = None
) -> remedy.Plan:
    return repair.plan(found, target, engine, version)


def after(found: Facts, what: remedy.Plan) -> dict[str, Any]:
    """The config as the plan would leave it."""
    config = json.loads(json.dumps(found.config))
    for setting in what.settings:
        inner = config
        for key in setting.key[:-1]:
            inner = inner[key]
        assert ([inner[setting.key[-1]]] if setting.key[-1] in inner else []) == list(setting.old)
        if setting.new:
            inner[setting.key[-1]] = setting.new[0]
        else:
            del inner[setting.key[-1]]
    return dict(config)


NAMES = [
    ("nothing to do", "midlayer.", "", {}),
    ("layers.0", "layers.0.", "", {"layers.0.hidden_norm.weight": "midlayer.hidden_norm.weight"}),
    ("model. before all", "model.layers.0.", "model.", {"model.fc.weight": "fc.weight"}),
    ("model.midlayer", "model.midlayer.", "", {"model.midlayer.hidden_norm.weight": "midlayer.hidden_norm.weight"}),
]


@pytest.mark.parametrize(("layer", "top", "some"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES])
def test_names_become_those_that_load_everywhere(layer, top, some):
    what = planned(facts(tensors=tensors(layer, top)))
    renames = what.rename.get("model.safetensors", {})
    assert renames.items() >= some.items()
    assert {renames.get(name, name) for name in tensors(layer, top)} == set(tensors())
    assert not what.settings


def test_what_was_repaired_needs_nothing():
    for config in (SGLANG, RAW):
        found = facts(config, tensors=tensors("model.layers.0.", "model."), d2t=SPOKEN)
        what = planned(found)
        assert (bool(what), what.refusals) == (True, ())
        patch = what.patch["model.safetensors"]["d2t"]
        fixed = facts(after(found, what), d2t=list(struct.unpack(f"<{ROWS}q", patch.content)))
        assert fixed.d2t == OFFSETS
        again = planned(fixed)
        assert (bool(again), again.refusals, list(repair.rows(again))) == (False, (), [])


MAPS = [
    ("offsets", {"d2t": OFFSETS}, None),
    ("offsets, unsorted", {"d2t": [9, 3, -1, 2]}, None),
    ("absolute", {"d2t": SPOKEN}, OFFSETS),
    ("absolute, unsorted", {"d2t": [9, 4, 1, 5]}, [9, 3, -1, 2]),
    ("absolute, without t2d, by range", {"d2t": [1, 4, 13, 15], "t2d": None}, [1, 3, 11, 12]),
    ("offsets, without t2d, an id twice", {"d2t": [0, 0, 0, 7], "t2d": None}, None),
]


@pytest.mark.parametrize(("fields", "new"), [case[1:] for case in MAPS], ids=[case[0] for case in MAPS])
def test_a_map_of_ids_becomes_one_of_offsets(fields, new):
    what = planned(facts(**fields))
    assert what.refusals == ()
    assert bool(what.patch) == (new is not None)
    if new is not None:
        assert list(struct.unpack(f"<{ROWS}q", what.patch["model.safetensors"]["d2t"].content)) == new


CONFIGS = [
    ("a null target_hidden_size kills", {"target_hidden_size": None}, {}, {"target_hidden_size": ()}),
    ("no draft_vocab_size", {"draft_vocab_size": ...}, {}, {"draft_vocab_size": (ROWS,)}),
    ("null beside a smaller head", {"draft_vocab_size": None}, {}, {"draft_vocab_size": (ROWS,)}),
    (
        "a number, and no head: random",
        {"draft_vocab_size": VOCABULARY},
        {"lm_head__weight": None, "d2t": None, "t2d": None},
        {"draft_vocab_size": (None,)},
    ),
    ("null and no head is meant", {"draft_vocab_size": None}, {"lm_head__weight": None, "d2t": None}, {}),
    ("vLLM's class", {"architectures": ["Eagle3LlamaForCausalLM"]}, {}, {"architectures": (SGLANG["architectures"],)}),
    ("no model_type", {"model_type": ...}, {}, {"model_type": ("llama",)}),
    (
        "ids at the top, as vLLM counts",
        {"eagle_config": ..., "eagle_aux_hidden_state_layer_ids": [2, 6, 10]},
        {},
        {"eagle_aux_hidden_state_layer_ids": (), "eagle_config": (SGLANG["eagle_config"],)},
    ),
    (
        "ids at the top, as SGLang counts",
        {"eagle_config": None, "eagle_aux_hidden_state_layer_ids": [1, 5, 9]},
        {},
        {"eagle_aux_hidden_state_layer_ids": (), "eagle_config": (SGLANG["eagle_config"],)},
    ),
    (
        "one layer's states for an fc of three",
        {"eagle_config": {"use_aux_hidden_state": False}},
        {},
        {"eagle_config": ({"use_aux_hidden_state": True},)},
    ),
    (
        "rope of transformers 5",
        {"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4}},
        {},
        {"rope_theta": (1e6,), "rope_scaling": ({"rope_type": "yarn", "factor": 4},)},
    ),
    (
        "nulls inside of rope, which 0.5.8 takes for numbers",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": None}},
        {},
        {"rope_scaling": ({"rope_type": "yarn", "factor": 4},)},
    ),
    ("rope of both", {"rope_parameters": {"rope_theta": 1e6}, "rope_theta": 1e6}, {}, {}),
]


@pytest.mark.parametrize(
    ("config", "names", "wanted"), [case[1:] for case in CONFIGS], ids=[case[0] for case in CONFIGS]
)
def test_keys_are_written_as_sglang_reads_them(config, names, wanted):
    old = {key: value for key, value in {**SGLANG, **config}.items() if value is not ...}
    found = facts(old, tensors=tensors(**names), d2t=OFFSETS if "d2t" not in names else None)
    what = planned(found)
    assert what.refusals == ()
    new = {**old, **{key: value[0] for key, value in wanted.items() if value}}
    assert after(found, what) == {key: value for key, value in new.items() if wanted.get(key) != ()}


def test_a_speculators_folder_becomes_sglangs():
    found = facts(RAW, tensors=tensors("layers.0."))
    what = planned(found)
    assert what.refusals == ()
    assert after(found, what) == {
        **{key: value for key, value in SGLANG.items() if key != "eagle_config"},
        "norm_before_residual": False,
        "rope_theta": 5e5,
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 9], "use_aux_hidden_state": True},
    }


def test_for_vllm_a_speculators_folder_stays_one():
    what = planned(facts({**RAW, "norm_before_residual": True}, d2t=SPOKEN), engine="vllm")
    assert (what.settings, what.refusals, len(what.patch)) == ((), (), 1)


def test_for_vllm_a_null_that_kills_is_dropped_and_the_counting_stays():
    found = facts({**SGLANG, "target_hidden_size": None, "eagle_aux_hidden_state_layer_ids": [2, 6, 10]}, d2t=OFFSETS)
    what = planned(found, engine="vllm")
    assert [(one.key, one.old, one.new) for one in what.settings] == [(("target_hidden_size",), (None,), ())]


IDS = [  # aux ids as vLLM counts, target, version, as SGLang counts
    ([2, 6, 10], None, None, [1, 5, 9]),
    ([2, 6, 10], KIMI, None, [1, 5, 9]),
    ([3, 6, 10], LLAMA, None, [2, 5, 9]),
    ([3, 6, 10], KIMI, "0.5.12", [2, 5, 9]),
    ([3, 6, 10], KIMI, "0.5.13", [3, 6, 10]),
    ([1, 6, 10], KIMI, "0.5.12", [0, 5, 9]),
    *(([3, 6, 10], {"architectures": [name]}, "0.5.13", [3, 6, 10]) for name in sorted(AS_THEY_ARE)),
    ([3, 6, 10], {"architectures": "GlmMoeDsaForCausalLM"}, "0.5.13", [3, 6, 10]),
    ([3, 6, 10], {"architectures": ["Glm4MoeForCausalLM"]}, "0.5.13", [2, 5, 9]),
    ([3, 6, 10], OUTER, "0.5.13", [2, 5, 9]),
    ([3, 6, 10], KIMI, None, "say --for sglang==VERSION"),
    ([1, 6, 10], KIMI, "0.5.13", "serve it with vLLM"),
]


@pytest.mark.parametrize(("ids", "target", "version", "wanted"), IDS)
def test_aux_layers_are_counted_as_the_target_does(ids, target, version, wanted):
    found = facts({**RAW, "eagle_aux_hidden_state_layer_ids": ids, "speculators_config": {}})
    what = planned(found, target, version=version)
    if isinstance(wanted, str):
        assert [refusal.remedy for refusal in what.refusals] == [wanted]
    else:
        assert after(found, what)["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == wanted


def test_the_verifier_of_a_speculators_folder_stands_for_the_target():
    found = facts({**RAW, "eagle_aux_hidden_state_layer_ids": [3, 6, 10]})
    assert after(found, planned(found))["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 5, 9]
    unknown = facts({**found.config, "speculators_config": {}})
    assert [refusal.remedy for refusal in planned(unknown).refusals] == ["say --target PATH"]


NORM: tuple[str, tuple[int, ...]] = ("BF16", (HIDDEN,))
REFUSED: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("norm_before_residual", {"config": {**RAW, "norm_before_residual": True}}, None, "norm_before_residual"),
    ("in a converted one too", {"config": {**SGLANG, "norm_before_residual": True}}, None, "norm_before_residual"),
    ("q_norm", {"tensors": tensors(midlayer__self_attn__q_norm__weight=NORM)}, None, "normalizes q and k"),
    ("biases", {"tensors": tensors(midlayer__self_attn__q_proj__bias=NORM)}, None, "has biases"),
    ("a window, at an old version", {"config": {**SGLANG, "sliding_window": 2048}}, "0.5.11", "window of 2048 tokens"),
    ("input_norm", {"tensors": tensors(input_norm__weight=NORM)}, "0.5.17", "since 0.5.18 only"),
    ("two layers", {"tensors": tensors(layers__1__hidden_norm__weight=NORM)}, "0.5.11", "its 2 layers"),
    ("a map that is neither", {"d2t": [7, 7, 7, 7]}, None, "offsets or ids cannot be told"),
    ("a map that may be either", {"d2t": [0, 2, 4, 6], "t2d": None}, None, "offsets or ids cannot be told"),
    ("a map of floats", {"tensors": tensors(d2t=("F32", (ROWS,))), "d2t": None}, None, "not of integers"),
    ("a map beyond belief", {"tensors": tensors(d2t=("I64", (1 << 24,))), "d2t": None}, None, "longer than any"),
    ("colliding names", {"tensors": tensors(model__fc__weight=NORM)}, None, "the same name: fc.weight"),
    ("a head that is missing", {"tensors": tensors(lm_head__weight=None)}, None, "no head for its own vocabulary"),
    ("another Speculators model", {"config": {**RAW, "speculators_model_type": "mtp"}}, None, "of kind 'mtp'"),
    ("a truncated file", {"problems": (Problem("is truncated", "a", 8, "corrupt"),)}, None, "the files are broken"),
    ("pickles", {"format": "pickle"}, None, "pickles"),
    (
        "two thetas",
        {"config": {**SGLANG, "rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}}},
        None,
        "which rope theta",
    ),
    (
        "ids in nobody's counting",
        {"config": {**SGLANG, "eagle_config": {}, "eagle_aux_hidden_state_layer_ids": [7, 8, 9]}},
        None,
        "how the aux layers are counted",
    ),
]


@pytest.mark.parametrize(("fields", "version", "said"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_no_repair_mends_is_refused_with_the_reason(fields, version, said):
    what = planned(facts(**fields), version=version)
    assert [refusal.what for refusal in what.refusals if said in refusal.what] != [], what.refusals
    assert all(refusal.remedy for refusal in what.refusals)


NO_CONFIG = Problem("is missing", "config.json", None, "will not start")
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.floats() | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=2),
    max_leaves=6,
)
KEYS = sorted({*SGLANG, *RAW, *INNER, "rope_parameters", "rope_theta", "sliding_window", "layer_types", "norm_output"})
KEYS += ["tie_word_embeddings", "use_sliding_window", "num_hidden_layers", "eagle_config"]


@settings(max_examples=300, deadline=None)
@given(
    config=st.dictionaries(st.sampled_from(KEYS), ANY, max_size=5),
    base=st.sampled_from([SGLANG, RAW]),
    target=st.none() | st.dictionaries(st.sampled_from(["architectures", "vocab_size", "text_config"]), ANY),
    d2t=st.none() | st.lists(st.integers(-9, 20), max_size=5),
    version=st.sampled_from([None, "0.5.8", "0.5.23"]),
)
def test_whatever_a_config_says_a_plan_is_made_and_what_it_leaves_needs_no_other(config, base, target, d2t, version):
    found = facts({**base, **config}, d2t=d2t)
    what = planned(found, target, version=version)
    if not what.refusals:
        again = planned(facts(after(found, what), d2t=OFFSETS), target, version=version)
        assert (list(repair.rows(again)), again.refusals) == ([], ())


FINE: list[tuple[str, dict[str, Any], str | None]] = [
    ("a window, where there is the option", {"config": {**SGLANG, "sliding_window": 2048}}, "0.5.12"),
    ("a window that is off", {"config": {**SGLANG, "sliding_window": 9, "use_sliding_window": False}}, "0.5.8"),
    ("input_norm, where it is read", {"tensors": tensors(input_norm__weight=NORM)}, "0.5.18"),
    (
        "no config.json",
        {"config": {}, "problems": (Problem("is missing", "config.json", None, "will not start"),)},
        None,
    ),
    ("a file that nobody reads", {"problems": (Problem("is not in the index", "b"),)}, None),
]


@pytest.mark.parametrize(("fields", "version"), [case[1:] for case in FINE], ids=[case[0] for case in FINE])
def test_what_can_be_served_is_not_refused(fields, version):
    what = planned(facts(**fields), version=version)
    assert (what.refusals, bool(what)) == ((), False)


def test_a_window_needs_a_flag_and_that_is_said():
    (note,) = planned(facts({**SGLANG, "sliding_window": 2048}), version="0.5.12").notes
    assert "--speculative-draft-window-size 2048" in note


@pytest.mark.parametrize("fields", [{"format": "gguf", "tensors": {}}, {"tensors": {"norm.weight": tensors()["d2t"]}}])
def test_what_is_no_draft_is_left_alone(fields):
    what = planned(facts(**fields))
    assert (bool(what), what.refusals, "no EAGLE-3 draft" in what.notes[0]) == (False, (), True)


def test_layers_above_the_first_get_the_name_that_sglang_gives_their_norm():
    names: dict[str, Any] = {"layers__1__input_layernorm__weight": NORM}
    found = facts({**SGLANG, "num_hidden_layers": 2}, tensors=tensors(**names))
    assert planned(found).rename == {
        "model.safetensors": {"layers.1.input_layernorm.weight": "layers.1.hidden_norm.weight"}
    }
    assert planned(found, engine="vllm").rename == {}
