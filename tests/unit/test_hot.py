"""Which draft may take the place of another one in a server that runs, and which of its tensors are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.version import Version

from deploy.checkpoint import hot
from deploy.checkpoint.facts import Facts, Problem
from deploy.checkpoint.rules import Case, Serving, Target
from tests.drafts import (
    GOOD,
    KIMI,
    TARGET,
    absolute,
    both,
    config,
    latent,
    layers0,
    mapped,
    renamed,
    shaped,
    unchanged,
    without,
)

WEIGHT = "midlayer.mlp.up_proj.weight"
ROWS, COLUMNS = GOOD.tensors[WEIGHT].shape


def case(draft: Facts, target: dict[str, object] = TARGET, version: str = "0.5.23") -> Case:
    return Case(draft, Serving("sglang", version, algorithm="EAGLE3"), Version(version), Target(target))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (unchanged, ""),
        (config(transformers_version="9.9"), ""),
        (config(_name_or_path="elsewhere"), ""),
        (lambda facts: replace(facts, path="elsewhere", files={}), ""),
        (config(rope_theta=1.0), "config.json: rope_theta is 1.0, the served one has"),
        (config(rms_norm_eps=...), "config.json: rms_norm_eps is None"),
        (
            config(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}),
            "eagle_aux_hidden_state_layer_ids is [1",
        ),
        (mapped(absolute), "d2t differs"),
        (lambda facts: replace(facts, d2t=None), "d2t differs"),
        (renamed(layers0), "midlayer"),
        (without(WEIGHT), f"{WEIGHT} is in the served one alone"),
        (shaped("midlayer.more.weight", 1), "midlayer.more.weight is in this one alone"),
        (shaped(WEIGHT, ROWS, COLUMNS + 1), f"[{ROWS}, {COLUMNS + 1}]"),
        (shaped(WEIGHT, ROWS, COLUMNS, dtype="F16"), f"{WEIGHT} is F16"),
        (lambda facts: replace(facts, format="gguf"), "one of the two is gguf"),
        (lambda facts: replace(facts, problems=(Problem("cut off", outcome="will not start"),)), "cut off"),
    ],
)
def test_a_draft_takes_the_place_of_one_that_is_alike_in_all_but_values(change, told):
    found = list(hot.obstacles(GOOD, case(change(GOOD))))
    assert any(told in line for line in found) if told else found == []


@pytest.mark.parametrize(
    ("both_have", "told"),
    [
        (without("lm_head.weight"), "nothing in it fills lm_head.weight"),
        (config(quantization_config={"quant_method": "fp8"}), "it is quantized"),
        (config(architectures=["Unheard"]), "how sglang 0.5.23 loads Unheard is not known"),
        (shaped(WEIGHT, ROWS, COLUMNS + 1, dtype="F32"), f"the server refuses {WEIGHT}"),
        (config(draft_vocab_size=...), "it does not load: "),
    ],
)
def test_what_no_server_could_take_over_is_told_though_both_are_alike(both_have, told):
    draft = both_have(GOOD)
    assert any(told in line for line in hot.obstacles(draft, case(draft)))


def test_a_class_that_makes_parameters_of_its_weights_is_restarted():
    draft = latent()
    assert [line for line in hot.obstacles(draft, case(draft, KIMI)) if "w_kc" in line]


def test_many_differences_are_cut_short():
    found = list(hot.obstacles(GOOD, case(config(**{f"key{n}": n for n in range(20)})(GOOD))))
    assert len(found) == hot.SHOWN + 1
    assert found[-1] == "and 14 more: deploy ckpt diff"


EMBEDDED = shaped("embed_tokens.weight", TARGET["vocab_size"], TARGET["hidden_size"])


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (unchanged, {"d2t", "t2d"}),
        (EMBEDDED, {"d2t", "t2d", "embed_tokens.weight"}),  # the target's: the loader would write into it
        (config(draft_vocab_size=None), {"d2t", "t2d", "lm_head.weight"}),  # then the head is the target's as well
        (both(EMBEDDED, config(target_hidden_size=2 * TARGET["hidden_size"])), {"d2t", "t2d"}),  # its own embeddings
        (shaped("midlayer.unheard", 3), {"d2t", "t2d", "midlayer.unheard"}),
    ],
)
def test_what_is_the_targets_is_never_sent(change, left_out):
    draft = change(GOOD)
    sent = hot.sent(case(draft))
    assert set(draft.tensors) - set(sent) == left_out
    assert (
        sent["midlayer.self_attn.k_proj.weight"] == "model.layers.0.self_attn.qkv_proj.weight"
    )  # as checksums have it
