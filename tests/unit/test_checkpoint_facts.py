"""What is read of a checkpoint's files, here by the same function that runs on hosts."""

from __future__ import annotations

import ast
import json
import shutil
import struct
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy import host
from deploy.checkpoint import facts
from deploy.checkpoint.facts import Facts, Problem
from deploy.errors import ConfigError
from deploy.host.gguf import Gguf, GgufError
from tests.checkpoints import entry, packed, raw, sharded, weights

TINY = Path(__file__).parents[2] / "examples/tiny-eagle3"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
SAME_FOLDER = [HealthCheck.function_scoped_fixture]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards, an index, a config; nothing is wrong with it."""
    return sharded(tmp_path / "model", {ONE: {"a.weight": ("BF16", [8, 4])}, TWO: {"b.weight": ("BF16", [4])}})


def test_a_trained_draft_is_read():
    found = facts.read(TINY / "draft")
    assert (found.format, found.problems, found.index) == ("safetensors", (), None)
    assert found.files["model.safetensors"] == facts.File(1054536, 1352, 15)
    assert found.tensors["fc.weight"] == facts.Tensor("F32", (128, 384), 2048, 198656, "model.safetensors")
    assert found.config["draft_vocab_size"] == 256
    assert (len(found.d2t or ()), len(found.t2d or ())) == (256, 256)
    assert frozenset(number + offset for number, offset in enumerate(found.d2t or ())) == found.t2d
    assert (found.values, found.digests) == ({}, {})


def test_a_whole_folder_has_no_problems(folder):
    found = facts.read(folder)
    assert found.problems == ()
    assert list(found.tensors) == ["a.weight", "b.weight"]
    assert found.index == {"a.weight": ONE, "b.weight": TWO}


# ---- what is wrong with the files ----------------------------------------------------------------------------------

Change = Callable[[Path], object]


def cut(name: str, count: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-count])


def write(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def delete(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def index(**files: str) -> Change:
    return write(
        INDEX, json.dumps({"weight_map": {name.replace("_", "."): file for name, file in files.items()}}).encode()
    )


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
OVERLAP = packed({"a.weight": entry(0, 4), "c": entry(2, 6)}, b"x" * 6)
HOLE = packed({"a.weight": entry(4, 6)}, b"x" * 6)
TWICE = raw(b'{"a.weight":1,"a.weight":2}')
COPY, LINK, PICKLE = "consolidated.safetensors", "model-3.safetensors", "pytorch_model.bin"


def copied(folder: Path) -> None:
    weights(folder / COPY, {"a": ("U8", [1])})


def linked(folder: Path) -> None:
    (folder / LINK).symlink_to("gone")


FAULTS: list[tuple[str, Change, str, str, bool, str]] = [  # name, change, file, words, whether a byte is told, outcome
    ("a shard that is cut off", cut(TWO, 3), TWO, "truncated", True, "corrupt"),
    ("half a header", write(ONE, raw(b"{}", length=99)), ONE, "99 bytes long, but only 2", True, "corrupt"),
    ("a header beyond all measure", write(ONE, raw(b"{}", length=1 << 60)), ONE, "at most 100000000", True, "corrupt"),
    ("not JSON", write(ONE, raw(b"{}}")), ONE, "not JSON", True, "corrupt"),
    ("overlap", write(ONE, OVERLAP), ONE, "overlaps", True, "corrupt"),
    ("hole", write(ONE, HOLE), ONE, "a hole of 4 bytes", True, "corrupt"),
    ("a name twice", write(ONE, TWICE), ONE, "names 'a.weight' twice", True, "corrupt"),
    ("an empty file", write(ONE, b""), ONE, "is 0 bytes long", True, "corrupt"),
    ("git-lfs", write(ONE, LFS), ONE, "git-lfs pointer", True, "will not start"),
    ("a missing shard", delete(TWO), TWO, "named by the index, missing", False, "corrupt"),
    ("a dead link", linked, LINK, "cannot be read", False, ""),
    ("a shard that is not in the index", index(a_weight=ONE), TWO, "is not read: the index names", False, ""),
    ("a tensor that no shard has", index(a_weight=ONE, b_weight=TWO, c=ONE), ONE, "does not have c,", False, ""),
    ("a tensor in another shard", index(a_weight=TWO, b_weight=TWO, d=ONE), ONE, "does not have d,", False, ""),
    ("an index that has less", index(b_weight=TWO, d=ONE), ONE, "has a.weight, of which the index", False, ""),
    ("an index that is no JSON", write(INDEX, b"{"), INDEX, "is not JSON", True, "corrupt"),
    ("an index of a list", write(INDEX, b'{"weight_map": []}'), INDEX, "no weight_map", True, "will not start"),
    ("an index of numbers", write(INDEX, b'{"weight_map": {"a": 1}}'), INDEX, "no weight_map", True, "will not start"),
    ("an empty index", write(INDEX, b'{"weight_map": {}}'), INDEX, "empty weight_map", False, "will not start"),
    ("a missing shard, no index", delete(TWO, INDEX), TWO, "is missing: 1 of 2 shards", False, "corrupt"),
    ("consolidated beside", copied, COPY, "is not read", False, ""),
    ("a pickle beside", write(PICKLE, b"x"), PICKLE, "is a pickle beside", False, ""),
    ("no config", delete("config.json"), "config.json", "is missing", False, "will not start"),
    ("config of nulls", write("config.json", b'{"a": 1\0\0\0'), "config.json", "from byte 7", True, "corrupt"),
    ("config that is no JSON", write("config.json", b'{"a": }'), "config.json", "is not JSON", True, "corrupt"),
    ("config that is a list", write("config.json", b"[]"), "config.json", "is not a JSON object", True, "corrupt"),
    ("config not in UTF-8", write("config.json", b'{"a": "\xff"}'), "config.json", "is not JSON", True, "corrupt"),
]


@pytest.mark.parametrize(
    ("change", "file", "words", "has_byte", "outcome"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS]
)
def test_what_is_wrong_with_the_files_is_told_with_file_and_byte(folder, change, file, words, has_byte, outcome):
    change(folder)
    problems = facts.read(folder).problems
    (problem,) = [problem for problem in problems if words in problem.what]
    assert (problem.file, problem.at is not None, problem.outcome) == (file, has_byte, outcome)
    assert problem.at is None or 0 <= problem.at <= (folder / file).stat().st_size


def test_a_tensor_that_two_files_have_cannot_be_told_apart(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    weights(tmp_path / "a-model.safetensors", {"x": ("U8", [1]), "y": ("U8", [1])})
    weights(tmp_path / "b-model.safetensors", {"x": ("U8", [2])})
    (twice, beside) = sorted(facts.read(tmp_path).problems, key=lambda problem: problem.outcome, reverse=True)
    assert twice == Problem(
        "has 'x', which a-model.safetensors has too (1 such): which one is served?", "b-model.safetensors", None,
        "could not tell",
    )  # fmt: skip
    assert "lies beside weights under another name" in beside.what


def test_of_a_pair_that_sglang_knows_one_file_is_read(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    weights(tmp_path / "consolidated.safetensors", {"x": ("U8", [1])})
    weights(tmp_path / "model.safetensors", {"y": ("U8", [2])})
    found = facts.read(tmp_path)
    assert list(found.tensors) == ["y"]
    assert "SGLang takes the other, vLLM this one alone" in found.problems[0].what


def test_of_a_shard_that_is_cut_off_its_tensors_are_known(folder):
    cut(TWO, 1)(folder)
    found = facts.read(folder, values=True, digests=["a.weight", "b.weight"])
    assert "b.weight" in found.tensors
    assert set(found.values) == set(found.digests) == {"a.weight"}


def test_a_vocabulary_map_that_is_cut_off_is_none(tmp_path):
    shutil.copytree(TINY / "draft", tmp_path, dirs_exist_ok=True)
    cut("model.safetensors", 600)(tmp_path)  # t2d, the last one, is 512 bytes
    found = facts.read(tmp_path)
    assert (found.d2t is not None, found.t2d, found.problems[0].outcome) == (True, None, "corrupt")


def pickles(folder: Path) -> None:
    for name in (ONE, TWO, INDEX):
        (folder / name).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")


def nothing(folder: Path) -> None:
    pickles(folder)
    (folder / "pytorch_model.bin").unlink()


@pytest.mark.parametrize(
    ("change", "kind", "outcome"), [(pickles, "pickle", "could not tell"), (nothing, "none", "will not start")]
)
def test_weights_that_nobody_can_read_are_a_problem(folder, change, kind, outcome):
    change(folder)
    found = facts.read(folder)
    assert (found.format, found.problems[0].outcome) == (kind, outcome)


NO_CHECKPOINT: list[tuple[str, str]] = [
    ("nowhere", "does not exist"),
    ("empty", "is empty"),
    (f"model/{ONE}", "is one shard of several"),
    ("lone/lone.safetensors", "there is no config.json beside"),
    ("model/config.json", "is not a checkpoint"),
    ("model/x.bin", "is a pickle"),
    ("model/x-00001-of-00002.gguf", "one of 2 parts, and some are missing"),
    ("a\0b", "does not exist"),
]


@pytest.mark.parametrize(("path", "words"), NO_CHECKPOINT)
def test_where_there_is_no_checkpoint_is_told(folder, path, words):
    (folder.parent / "empty").mkdir()
    (folder.parent / "lone").mkdir()
    weights(folder.parent / "lone/lone.safetensors", {})
    for name in ("x.bin", "x-00001-of-00002.gguf"):
        (folder / name).write_bytes(b"x")
    with pytest.raises(ConfigError, match=words):
        facts.read(folder.parent / path)


def test_one_file_with_its_config_beside_it_is_a_checkpoint():
    found = facts.read(TINY / "draft/model.safetensors")
    assert replace(found, path="") == replace(facts.read(TINY / "draft"), path="")


# ---- values and digests --------------------------------------------------------------------------------------------


def filled(folder: Path, dtype: str, shape: list[int], data: bytes) -> Facts:
    (folder / "config.json").write_text("{}")
    weights(folder / "model.safetensors", {"x.weight": (dtype, shape)}, data)
    return facts.read(folder, values=True)


NUMBERS = [0.0, 1.0, -1.5, 0.25, 448.0, -0.015625]
FLOATS = [
    ("F64", struct.pack("<6d", *NUMBERS)),
    ("F32", struct.pack("<6f", *NUMBERS)),
    ("F16", struct.pack("<6e", *NUMBERS)),
    ("BF16", b"".join(struct.pack("<f", number)[2:] for number in NUMBERS)),
    ("F8_E4M3", bytes([0x00, 0x38, 0xBC, 0x28, 0x7E, 0x88])),
    ("F8_E5M2", bytes([0x00, 0x3C, 0xBE, 0x34, 0x5F, 0xA4])),
]


@pytest.mark.parametrize(("dtype", "data"), FLOATS)
def test_every_float_is_decoded(tmp_path, dtype, data):
    one = filled(tmp_path, dtype, [6], data).values["x.weight"]
    assert (one.seen, one.least, one.zeros, one.not_finite) == (6, -1.5, 1, 0)
    assert one.most == 448.0
    assert one.mean == pytest.approx(sum(NUMBERS) / 6)


SPOILT = [
    ("F32", struct.pack("<4f", 1, float("nan"), float("inf"), 2), 2),
    ("F64", struct.pack("<4d", 1, float("nan"), -float("inf"), 1e300), 2),
    ("F16", struct.pack("<4e", 1, float("nan"), float("inf"), 65504), 2),
    ("BF16", bytes.fromhex("803f c07f 80ff 7f7f"), 2),
    ("F8_E4M3", bytes([0x38, 0x7F, 0xFF, 0x7E]), 2),
    ("F8_E5M2", bytes([0x3C, 0x7F, 0xFC, 0x7B]), 2),
    ("F8_E4M3FNUZ", bytes([0x38, 0x80, 0x7F, 0xFF]), 1),
]


@pytest.mark.parametrize(("dtype", "data", "count"), SPOILT)
def test_what_is_not_finite_is_counted(tmp_path, dtype, data, count):
    assert filled(tmp_path, dtype, [4], data).values["x.weight"].not_finite == count
    assert facts.read(tmp_path, values=True, deep=True).values["x.weight"].not_finite == count


LONE = [
    (dtype, width, bytes.fromhex(value))
    for dtype, width, values in (
        ("BF16", 2, ("c07f", "c0ff", "807f", "80ff")),
        ("F16", 2, ("007c", "00fc", "007e", "01ff")),
        ("F32", 4, ("0000c07f", "000080ff")),
        ("F64", 8, ("000000000000f07f", "000000000000f8ff")),
        ("F8_E4M3", 1, ("7f", "ff")),
        ("F8_E5M2", 1, ("7c", "fd")),
        ("F8_E4M3FNUZ", 1, ("80",)),
    )
    for value in values
]


@pytest.mark.parametrize(("dtype", "width", "value"), LONE)
def test_a_single_nan_in_a_large_tensor_is_found_when_all_is_searched(tmp_path, dtype, width, value):
    count, at = 300_000, 123_456  # the sample is of 8192
    data = bytearray(width * count)
    data[width * at : width * (at + 1)] = value
    sampled = filled(tmp_path, dtype, [count], bytes(data)).values["x.weight"]
    assert (sampled.not_finite, sampled.searched, sampled.zeros == sampled.seen) == (0, 8192, True)
    searched = facts.read(tmp_path, values=True, deep=True).values["x.weight"]
    assert (searched.not_finite, searched.searched, searched.zeros == searched.seen) == (1, count, False)


def test_the_same_elements_are_looked_at_wherever_a_tensor_lies(tmp_path):
    data = bytes(range(256)) * 1000
    weights(tmp_path / "one.safetensors", {"x": ("U8", [256_000])}, data)
    weights(tmp_path / "two.safetensors", {"before": ("U8", [9]), "x": ("U8", [256_000])}, b"123456789" + data)
    (tmp_path / "config.json").write_text("{}")
    one, two = (facts.read(tmp_path / f"{name}.safetensors", digests=["x"]) for name in ("one", "two"))
    assert one.digests == two.digests != {}
    looked = facts.read(tmp_path / "one.safetensors", values=True).values["x"]
    assert looked.digest == one.digests["x"]
    assert facts.read(tmp_path / "one.safetensors", digests=["x"], deep=True).digests != one.digests


def test_values_of_a_type_that_is_not_understood_are_left_out(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    weights(
        tmp_path / "model.safetensors", {"a": ("F4", [4, 4]), "b": ("F32", [0]), "c": ("C64", [1]), "d": ("U8", [1])}
    )
    found = facts.read(tmp_path, values=True, deep=True)
    assert (set(found.values), found.unseen) == ({"d"}, 0)


def test_there_is_a_limit_to_the_time_that_values_take(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    weights(tmp_path / "model.safetensors", {f"{n}.weight": ("BF16", [64, 1024]) for n in range(3000)})
    found = facts.read(tmp_path, values=True)
    assert 0 < len(found.values) < 3000
    assert found.unseen == 3000 - len(found.values)


# ---- .gguf ---------------------------------------------------------------------------------------------------------


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf(keys: bytes = b"", lines: bytes = b"", data: bytes = b"", counts: tuple[int, int] = (0, 0)) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, *counts) + keys + lines
    return head + b"\0" * (-len(head) % 32 if lines else 0) + data


def line(name: bytes, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + value


def test_a_trained_gguf_is_read():
    found = facts.read(TINY / "draft.gguf")
    assert (found.format, found.problems) == ("gguf", ())
    assert found.tensors["fc.weight"] == facts.Tensor("F32", (128, 384), 0, 196608, "draft.gguf")
    assert found.config["eagle3.target_layers"] == [1, 3, 5]
    assert found.config["tokenizer.ggml.tokens"] == "512 strings"


GGUF_FAULTS = [
    ("another magic", b"GGML" + bytes(20), "is no GGUF file", 0),
    ("another version", b"GGUF" + struct.pack("<IQQ", 7, 0, 0), "GGUF version 7", 4),
    ("cut off", gguf(counts=(1, 0)), "ends at byte 24", 24),
    ("tensors beyond belief", gguf(counts=(1 << 40, 0)), "holds 1099511627776 tensors", 8),
    ("a string beyond the file", gguf(struct.pack("<Q", 1 << 50) + b"x", counts=(0, 1)), "but 1 bytes follow", 24),
    ("an array beyond the file", gguf(key(b"a", 9, struct.pack("<IQ", 8, 1 << 50)), counts=(0, 1)), "more than", 41),
    ("numbers beyond the file", gguf(key(b"a", 9, struct.pack("<IQ", 4, 1 << 50)), counts=(0, 1)), "ends at byte", 49),
    ("an unknown value", gguf(key(b"a", 77, b""), counts=(0, 1)), "type 77", 33),
    ("a key twice", gguf(key(b"a", 7, b"\1") * 2, counts=(0, 2)), "names 'a' twice", 38),
    ("no power of two", gguf(key(b"general.alignment", 4, struct.pack("<I", 24)), counts=(0, 1)), "no power of two", 8),
    ("five dimensions", gguf(lines=line(b"a", [1] * 5), counts=(1, 0)), "5 dimensions", 24),
    ("an unknown type", gguf(lines=line(b"a", [1], kind=99), counts=(1, 0)), "of type 99", 24),
    ("half a block", gguf(lines=line(b"a", [33], kind=8), data=bytes(99), counts=(1, 0)), "packs them by 32", 24),
    ("another offset", gguf(lines=line(b"a", [8], offset=32), data=bytes(99), counts=(1, 0)), "offset 32, but 0", 24),
    ("truncated", gguf(lines=line(b"a", [8]), data=bytes(31), counts=(1, 0)), "need 32 bytes, 31 are there", 95),
    ("twice", gguf(lines=line(b"a", [8]) + line(b"a", [8], 0, 32), data=bytes(64), counts=(2, 0)), "'a' twice", 57),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words", "at"), [case[1:] for case in GGUF_FAULTS], ids=[c[0] for c in GGUF_FAULTS]
)
def test_what_is_wrong_with_a_gguf_is_told_with_its_byte(tmp_path, content, words, at):
    (tmp_path / "a.gguf").write_bytes(content)
    (problem, *_) = facts.read(tmp_path / "a.gguf").problems
    assert words in problem.what
    assert (problem.file, problem.at, problem.outcome) == ("a.gguf", at, "corrupt")


@settings(max_examples=200, deadline=None, suppress_health_check=SAME_FOLDER)
@given(at=st.integers(0, 12_000), new=st.binary(max_size=9), keep=st.integers(0, 14_000))
def test_a_spoilt_gguf_is_read_or_refused_at_a_byte_in_bounded_memory(tmp_path, at, new, keep):
    content = bytearray((TINY / "draft.gguf").read_bytes()[:13_000])
    content[at : at + len(new)] = new
    (tmp_path / "a.gguf").write_bytes(content[:keep])
    size = (tmp_path / "a.gguf").stat().st_size
    tracemalloc.start()
    try:
        faults = Gguf(str(tmp_path / "a.gguf")).faults
    except GgufError as error:
        faults = [(error.what, error.at)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert faults  # its data are cut off in any case
    assert all(0 <= place <= size for _, place in faults)
    assert peak < (2 << 20) + 20 * size


# ---- on hosts ------------------------------------------------------------------------------------------------------

# The oldest Python of this machine that the programs promise to run with, if it has one.
PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.[89].*/bin/python")) or [Path(sys.executable)]
PROGRAMS = ["checkpoint", "outline"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parts_of_a_program_have_no_name_in_common(name):
    tree = ast.parse(host.source(name), feature_version=(3, 8))
    defined: Counter[str] = Counter()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] += 1
        elif isinstance(node, ast.Assign):
            defined.update(n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
    assert [name for name, count in defined.items() if count > 1] == []


@pytest.mark.parametrize("path", ["draft", "draft.gguf", "nowhere"])
def test_the_program_says_on_a_host_what_is_read_here(path):
    ask = {"values": True, "deep": True, "digests": ["fc.weight"]}
    argv = [str(PYTHONS[0]), "-I", "-c", host.source("checkpoint"), str(TINY / path), "-"]
    done = subprocess.run(argv, input=json.dumps(ask), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    if path == "nowhere":
        assert answer["error"].endswith("does not exist")
        return
    found, here = facts.from_json(answer), facts.read(TINY / path, **ask)
    assert replace(found, values={}) == replace(here, values={})
    for name, one in here.values.items():  # Python 3.12 sums floats more exactly
        assert found.values[name].mean == pytest.approx(one.mean)
        assert found.values[name].digest == one.digest
