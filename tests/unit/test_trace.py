"""The trace itself: where each row of the table puts a tensor, under the server's full names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from deploy.checkpoint import loaders, versions
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.trace import Landing, Trace, differences, trace
from tests.drafts import GOOD, aux, both, config, latent, layers0, renamed, shaped, without


def traced(draft: Facts, engine: str = "sglang", version: str = "0.5.23") -> Trace:
    loader = loaders.choose(engine, draft.config["architectures"][0], Version(version))
    assert loader
    return trace(loader, draft.tensors, draft.config)


PLACES: list[tuple[str, str, str, str, str]] = [
    ("0.5.11", "midlayer.self_attn.q_proj.weight", "stacked", "model.midlayer.self_attn.qkv_proj.weight", "q"),
    ("0.5.11", "model.midlayer.mlp.up_proj.weight", "stacked", "model.midlayer.mlp.gate_up_proj.weight", "1"),
    ("0.5.11", "midlayer.hidden_norm.weight", "model. prefix", "model.midlayer.hidden_norm.weight", ""),
    ("0.5.11", "model.fc.weight", "as-is", "model.fc.weight", ""),
    ("0.5.11", "layers.0.hidden_norm.weight", "dropped", "", ""),
    ("0.5.12", "layers.0.hidden_norm.weight", "model. prefix", "model.layers.0.hidden_norm.weight", ""),
    ("0.5.12", "midlayer.hidden_norm.weight", "legacy name", "model.layers.0.hidden_norm.weight", ""),
    ("0.5.12", "model.midlayer.self_attn.v_proj.weight", "stacked", "model.layers.0.self_attn.qkv_proj.weight", "v"),
    ("0.5.12", "my_midlayer.hidden_norm.weight", "dropped", "", ""),
    ("0.5.8", "lm_head.weight", "as-is", "lm_head.weight", ""),
    ("0.5.8", "model.lm_head.weight", "dropped", "", ""),
    ("0.5.8", "some.d2t.map", "vocabulary map", "hot_token_id", ""),
    ("0.5.8", "t2d", "ignored", "", ""),
]


@pytest.mark.parametrize(("version", "name", "how", "parameter", "shard"), PLACES)
def test_a_tensor_lands_where_the_version_puts_it(version, name, how, parameter, shard):
    shape = next((t.shape for n, t in GOOD.tensors.items() if name.endswith(n.removeprefix("midlayer."))), (256,))
    found = traced(shaped(name, *shape)(GOOD), version=version)
    (landing,) = [landing for landing in found.landings if landing.tensor == name]
    assert landing == Landing(name, parameter or None, how, shard or None)


@pytest.mark.parametrize(
    ("name", "how", "parameter", "shard"),
    [
        ("layers.0.self_attn.q_a_proj.weight", "fused", "self_attn.fused_qkv_a_proj_with_mqa.weight", "q_a"),
        ("layers.0.self_attn.kv_a_proj_with_mqa.weight", "fused", "self_attn.fused_qkv_a_proj_with_mqa.weight", "kv_a"),
        ("layers.0.self_attn.q_b_proj.weight", "legacy name", "self_attn.q_b_proj.weight", None),
        ("layers.0.mlp.gate_proj.weight", "stacked", "mlp.gate_up_proj.weight", "0"),
    ],
)
def test_a_latent_draft_lands_in_its_fused_projection(name, how, parameter, shard):
    (landing,) = [landing for landing in traced(latent(layers0)).landings if landing.tensor == name]
    assert landing == Landing(name, f"model.midlayer.{parameter}", how, shard)


def test_a_refused_tensor_fills_nothing():
    found = traced(shaped("fc.weight", 128, 256)(GOOD))
    assert "model.fc.weight" in found.unfilled
    (refused,) = [landing for landing in found.landings if landing.how == "refused"]
    assert (refused.parameter, refused.place) == ("model.fc.weight", "refused")
    halves = traced(shaped("midlayer.self_attn.q_a_proj.weight", 50, 128)(latent()))
    assert halves.unfilled == ("model.midlayer.self_attn.fused_qkv_a_proj_with_mqa.weight",)


def test_of_a_constructor_that_raises_nothing_has_landed():
    found = traced(config(target_hidden_size=None)(GOOD))
    assert (found.landings, found.unfilled, "target_hidden_size is null" in found.error) == ((), (), True)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_each_version_has_one_row_at_most(engine):
    for architecture in {name for row in loaders.everything() if row.engine == engine for name in row.architectures}:
        for minor in range(45):
            version = Version(f"0.{minor}.0" if engine == "vllm" else f"0.5.{minor}")
            rows = [row for row in loaders.of(engine, architecture) if row.covers(version)]
            assert len(rows) <= 1, (architecture, version)
            assert all(SpecifierSet(row.versions) for row in rows)


def test_a_version_that_makes_a_difference_begins_a_range():
    """Else a draft would be judged for no version between two that differ: who adds a row adds its range."""
    bounds = {(row.engine, spec.version) for row in loaders.everything() for spec in SpecifierSet(row.versions)}
    rules = Path(loaders.__file__).parent.parent / "rules"
    source = "".join(path.read_text(encoding="utf-8") for path in [*rules.glob("*.py"), rules.parent / "targets.py"])
    bounds |= {("sglang", found) for found in re.findall(r'(?:since|>= Version)\("([0-9.]+)"\)', source)}
    known = {(engine, first) for engine, firsts in versions.RANGES.items() for first in firsts}
    assert bounds - known == {("vllm", "0.34")}, "what comes after the last range of vLLM is in no table"
    assert {"0.5.12", "0.5.13", "0.5.18", "0.5.10"} <= {version for _, version in bounds}


def test_what_comes_after_a_release_is_that_release():
    rows = [loaders.choose("sglang", "LlamaForCausalLMEagle3", Version(v)) for v in ("0.5.12", "0.5.12.post1+cu130")]
    assert rows[0] is rows[1] is not None


DIFFERING = [
    (layers0, "layers.0.hidden_norm.weight: the table says model.layers.0.hidden_norm.weight, the engine None"),
    (lambda name: name, ""),
]


@pytest.mark.parametrize(("rename", "line"), DIFFERING)
def test_where_the_table_and_the_engine_differ_is_told_by_name(rename, line):
    told = differences(traced(renamed(rename)(GOOD)), traced(GOOD))
    assert (line in told) if line else told == []


def test_what_one_of_them_leaves_unfilled_is_told():
    ours, theirs = traced(without("fc.weight")(GOOD)), traced(GOOD)
    assert "model.fc.weight: only the table leaves it unfilled" in differences(ours, theirs)
    assert "model.fc.weight: only the engine leaves it unfilled" in differences(theirs, ours)
    stopped = replace(theirs, error="it died")
    assert differences(ours, stopped) == ["the table: it loads; the engine: it died"]


def test_a_draft_of_four_aux_layers_has_a_wider_fc():
    wide = both(aux(0, 1, 2, 4), config(fc_norm=True))(GOOD)
    assert traced(wide).shapes["model.fc.weight"] == (128, 512)
    assert "model.fc_norm.3.weight" in traced(wide).shapes
    assert traced(wide, version="0.5.8").shapes["model.fc.weight"] == (128, 384)


PARTS = [
    "model.",
    "midlayer.",
    "layers.0.",
    "layers.1.",
    "self_attn.",
    "mlp.",
    "q_a_proj",
    "kv_a_proj_with_mqa",
    "q_proj",
]
PARTS += [
    "gate_proj",
    "up_proj",
    "fc",
    "fc_norm.0",
    "aux_norm_low",
    "lm_head",
    "norm",
    "d2t",
    "t2d",
    ".weight",
    ".bias",
    "é",
    "\n",
]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("".join)
SHAPES = st.lists(st.integers(0, 400), max_size=3).map(tuple)


@given(st.dictionaries(NAMES, SHAPES, max_size=8), st.sampled_from(loaders.everything()))
def test_any_names_and_shapes_are_traced(shapes, loader):
    tensors = {name: Tensor("F32", shape, 0, 0, "") for name, shape in shapes.items()}
    found = trace(loader, tensors, latent().config)
    assert found.error or [landing.tensor for landing in found.landings] == list(tensors)
    assert set(found.unfilled) <= set(found.shapes)


@pytest.mark.parametrize("shape", [(), (48,), (48, 2, 2), (48, 64), (50, 128)])
def test_halves_that_do_not_make_the_whole_are_refused(shape):
    halves = [f"midlayer.self_attn.{name}.weight" for name in ("q_a_proj", "kv_a_proj_with_mqa")]
    found = traced(both(*[shaped(name, *shape) for name in halves])(latent()))
    assert [landing.tensor for landing in found.landings if landing.how == "refused"] == [
        "midlayer.self_attn.q_a_proj.weight",
        "midlayer.self_attn.kv_a_proj_with_mqa.weight",
    ]
