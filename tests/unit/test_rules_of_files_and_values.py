"""What is said of a checkpoint's files and values when it is judged, and what is said of a healthy one: nothing."""

from __future__ import annotations

import random
import shutil
import struct
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.checkpoint import facts, rules
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.rules import Serving, Target
from deploy.findings import Finding
from deploy.host import header
from tests.checkpoints import weights
from tests.project import EXAMPLES, ROOT

SERVING = Serving("sglang", "0.5.23")


def judged(folder: Path, target: Target | None = None) -> list[Finding]:
    """What is found in the files and the values; the other rules want a whole draft."""
    (case,) = rules.cases(facts.read(folder, values=True, deep=True), target, SERVING)
    names = ("files", "values")
    return [finding for name in names for finding in rules.topic(name, case)]


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "draft", tmp_path / "draft")
    return tmp_path / "draft"


TRAINED = sorted(path.parent for path in (ROOT / "examples").glob("*/*/model.safetensors"))


@pytest.mark.parametrize("folder", TRAINED, ids=[f"{path.parent.name}/{path.name}" for path in TRAINED])
def test_nothing_is_said_of_what_was_trained(folder):
    assert judged(folder) == []


def filled(name: str, numbers: Callable[[int], list[float]]) -> Callable[[Path], None]:
    """A tensor of the draft gets other values."""

    def act(folder: Path) -> None:
        found = header.read(folder / "model.safetensors")
        tensor = found.tensors[name]
        with (folder / "model.safetensors").open("r+b") as file:
            file.seek(found.data_start + tensor.start)
            file.write(array("f", numbers((tensor.end - tensor.start) // 4)).tobytes())

    return act


def silent(folder: Path) -> None:
    """Nothing leaves the layer: neither its attention nor its mlp."""
    filled("midlayer.self_attn.o_proj.weight", lambda n: [0.0] * n)(folder)
    filled("midlayer.mlp.down_proj.weight", lambda n: [-0.0] * n)(folder)


def normal(count: int) -> list[float]:
    chance = random.Random(1)
    return [chance.gauss(0, 0.02) for _ in range(count)]


def even(count: int) -> list[float]:
    chance = random.Random(1)
    return [chance.uniform(-1, 1) / 384**0.5 for _ in range(count)]


ONE_NAN = [1.0, float("nan")]
DEAD, FINE = "will serve at accept length 1.00", ""
VALUES = [
    ("NaN", filled("norm.weight", lambda n: ONE_NAN * (n // 2)), "FAIL", "1 tensor holds NaN or infinity", DEAD),
    ("a head of zeros", filled("lm_head.weight", lambda n: [0.0] * n), "FAIL", "are all zero", DEAD),
    ("a layer of zeros", silent, "FAIL", "nothing comes out of midlayer", DEAD),
    ("zeros somewhere", filled("midlayer.mlp.up_proj.weight", lambda n: [0.0] * n), "WARN", "are all zero", FINE),
    ("new ones", filled("midlayer.hidden_norm.weight", lambda n: [1.0] * n), "WARN", "before any training", FINE),
    ("a new normal one", filled("midlayer.self_attn.q_proj.weight", normal), "WARN", "before any training", FINE),
    ("a new even one", filled("fc.weight", even), "WARN", "before any training", FINE),
]


@pytest.mark.parametrize(
    ("change", "verdict", "words", "outcome"), [case[1:] for case in VALUES], ids=[case[0] for case in VALUES]
)
def test_odd_values_are_found(draft, change, verdict, words, outcome):
    change(draft)
    (found,) = judged(draft)
    assert (found.verdict, found.outcome) == (verdict, outcome)
    assert words in found.what
    assert found.evidence
    assert found.remedy


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("output.weight", "FAIL"),
        ("output_norm.weight", "FAIL"),
        ("blk.0.attn_output.weight", "WARN"),
        ("blk.0.ffn_down.weight", "WARN"),
    ],
)
def test_zeros_are_judged_by_the_names_of_a_gguf_too(name, verdict):
    zeros = facts.read(EXAMPLES / "draft.gguf", values=True)
    one = replace(zeros.values[name], zeros=zeros.values[name].seen)
    (case,) = rules.cases(replace(zeros, values={**zeros.values, name: one}), None, Serving("llamacpp"))
    assert [finding.verdict for finding in rules.topic("values", case)] == [verdict]


def test_a_normal_distribution_of_another_width_is_not_taken_for_new(draft):
    filled("fc.weight", lambda count: [number * 1.1 for number in normal(count)])(draft)
    assert judged(draft) == []


def test_nothing_is_said_of_values_that_were_not_asked_for(draft):
    filled("norm.weight", lambda n: ONE_NAN * (n // 2))(draft)
    (case,) = rules.cases(facts.read(draft), None, SERVING)
    assert list(rules.topic("values", case)) == []


def test_embeddings_that_are_the_targets_are_told(tmp_path):
    content = struct.pack("<32f", *range(32))
    for name, tensor in (("draft", "embed_tokens.weight"), ("target", "model.embed_tokens.weight")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        weights(tmp_path / name / "model.safetensors", {tensor: ("F32", [8, 4])}, content)
    target = Target({}, facts.read(tmp_path / "target", digests=["model.embed_tokens.weight"]))
    (found,) = judged(tmp_path / "draft", target)
    assert (found.verdict, found.what) == ("PASS", "its embeddings are the target's")


DTYPES = [
    ("integers", {"a.weight": ("I8", [2, 2])}, "FAIL", "are integers", DEAD),
    ("scaled floats", {"a.weight": ("F8_E4M3", [2, 2]), "a.weight_scale": ("F32", [1])}, "FAIL", "left out", DEAD),
    ("narrow floats", {"a.weight": ("F8_E4M3", [2, 2])}, "WARN", "taken as they are", FINE),
    ("double", {"a.weight": ("F64", [2, 2])}, "WARN", "are F64", FINE),
    ("mixed", {"a.weight": ("F16", [2, 2]), "b.weight": ("BF16", [2, 2])}, "WARN", "of BF16 and F16", FINE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tensors", "verdict", "words", "outcome"), [case[1:] for case in DTYPES], ids=[case[0] for case in DTYPES]
)
def test_a_dtype_that_a_server_turns_into_another_is_told(tmp_path, tensors, verdict, words, outcome):
    (tmp_path / "config.json").write_text("{}")
    weights(tmp_path / "model.safetensors", tensors)
    found = list(rules.topic("files", rules.cases(facts.read(tmp_path), None, SERVING)[0]))
    assert [(one.verdict, one.outcome) for one in found] == [(verdict, outcome)]
    assert words in found[0].what
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "fp8"}}')
    assert list(rules.topic("files", rules.cases(facts.read(tmp_path), None, SERVING)[0])) == []


FILES = [
    (facts.Problem("is truncated: ...", "a", 9, "corrupt"), "FAIL", "a, byte 9", "copy it again, whole"),
    (facts.Problem("is missing", "config.json", None, "will not start"), "FAIL", "config.json", "copy it beside"),
    (facts.Problem("the weights are pickles", "b", None, "could not tell"), "UNKNOWN", "b", "save them as"),
    (facts.Problem("is not read: ...", "c", None, ""), "WARN", "c", "take it away"),
    (facts.Problem("there is a hole of 3 bytes", "d", 8, "corrupt"), "FAIL", "d, byte 8", "save it anew"),
]


@pytest.mark.parametrize(("problem", "verdict", "evidence", "remedy"), FILES)
def test_what_is_wrong_with_the_files_becomes_a_finding(problem, verdict, evidence, remedy):
    (case,) = rules.cases(Facts("draft", problems=(problem,)), None, SERVING)
    (found,) = rules.topic("files", case)
    assert (found.verdict, found.evidence) == (verdict, evidence)
    assert found.outcome == (problem.outcome if verdict == "FAIL" else "")
    assert remedy in found.remedy
    assert problem.file in found.what
