from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy import host
from deploy.host import header
from deploy.host.header import BITS, HeaderError, Tensor
from deploy.host.usual import usual as fast
from tests.checkpoints import entry, packed, raw, usual

DRAFT = Path(__file__).parents[2] / "examples/tiny-eagle3/draft/model.safetensors"
SAME_FOLDER = [HealthCheck.function_scoped_fixture]


def test_a_trained_drafts_header_is_read():
    found = header.read(DRAFT)
    assert found.tensors["fc.weight"] == Tensor("F32", (128, 384), 2048, 198656)
    assert (found.data_start, found.size) == (1352, DRAFT.stat().st_size)
    assert len(found.tensors) == 15


def test_one_tensors_bytes_are_read():
    found = header.read(DRAFT)
    assert len(header.load(DRAFT, found, "d2t")) == 2048


MALFORMED = [
    ("empty", b"", "is 0 bytes long"),
    ("short", b"\x01\x02", "is 2 bytes long"),
    (
        "a git-lfs pointer",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "git-lfs pointer of 64",
    ),
    ("header beyond the file", raw(b"{}", length=3), "3 bytes long, but only 2 bytes follow"),
    ("header beyond all measure", raw(b"{}", length=2**63), "9223372036854775808 bytes long; at most 100000000"),
    ("header of no bytes", raw(b""), "not a JSON object: b''"),
    ("not JSON", raw(b'{"a": '), "is not JSON"),
    ("not UTF-8", raw(b'{"\xff": 1}'), "is not JSON"),
    ("nested too deeply", raw(b'{"a": ' + b"[" * 500_000), "nested too deeply"),
    ("a list", raw(b"[]"), "not a JSON object: b'[]'"),
    ("spaces first", raw(b" {}"), "not a JSON object"),
    ("two objects", raw(b"{}{}"), "is not JSON"),
    ("a name twice", raw(b'{"a": 1, "b": 2, "a": 3}'), "names 'a' twice"),
    ("metadata of numbers", packed({"__metadata__": {"a": 1}}), "__metadata__ is not an object of strings"),
    ("metadata is a list", packed({"__metadata__": []}), "__metadata__ is not an object of strings"),
    ("a tensor is a number", packed({"a": 1}), "'a' is not an object of dtype, shape and data_offsets: 1"),
    ("no offsets", packed({"a": {"dtype": "U8", "shape": []}}), "'a' is not an object of dtype"),
    ("unknown dtype", packed({"a": entry(0, 1, dtype="X9")}, b"x"), "unknown dtype: 'X9'"),
    ("a negative size", packed({"a": entry(0, 1, [-1])}, b"x"), "shape that is not a list of sizes: [-1]"),
    ("a size of 1.0", packed({"a": entry(0, 1, [1.0])}, b"x"), "shape that is not a list of sizes: [1.0]"),
    ("a size of true", packed({"a": entry(0, 1, [True])}, b"x"), "shape that is not a list of sizes"),
    ("a size of a million digits", raw(b'{"a": ' + b"9" * 1_000_000 + b"}"), "a number of 1000000 digits"),
    ("huge rank", packed({"a": entry(0, 1, [2**60] * 10_000)}, b"x"), "'a' has 1 bytes"),
    ("one offset", packed({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1]}}, b"x"), "bad offsets: [1]"),
    ("backwards", packed({"a": entry(4, 0, [4])}, b"xxxx"), "bad offsets: [4, 0]"),
    ("shape and offsets differ", packed({"a": entry(0, 4, [3])}, b"xxxx"), "has 4 bytes ([0, 4]), but U8 [3] wants 3"),
    ("overlap", packed({"a": entry(0, 4), "b": entry(2, 6)}, b"x" * 6), "'b' at 2 overlaps 'a', which ends at 4"),
    ("hole", packed({"a": entry(0, 2), "b": entry(4, 6)}, b"x" * 6), "a hole of 2 bytes at 2 before 'b'"),
    ("hole at the start", packed({"a": entry(4, 6)}, b"x" * 6), "a hole of 4 bytes at 0 before 'a'"),
    ("truncated", packed({"a": entry(0, 9)}, b"x" * 5), "need 9 bytes, 5 are there, 4 missing"),
    ("bytes after the end", packed({"a": entry(0, 4)}, b"x" * 7), "has 3 bytes after its last tensor, which ends at 4"),
]


@pytest.mark.parametrize(("content", "what"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_a_malformed_file_is_refused_with_its_numbers(tmp_path, content, what):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(HeaderError) as error:
        header.read(path)
    assert what in error.value.what
    assert error.value.path == str(path)
    assert 0 <= error.value.at <= len(content)


PLACES = [  # (what is wrong, the file, the byte where it shows: in the header from its start, in the data from theirs)
    ("not JSON", raw(b'{"a": }'), 6, None),
    ("not JSON behind letters of several bytes", raw('{"\u00e9\u00e9": }'.encode()), 9, None),
    ("not UTF-8", raw(b'{"\xff": 1}'), 2, None),
    ("a name twice", raw(b'{"a": 1, "b": 2, "a": 3}'), 17, None),
    ("a number beyond belief", raw(b'{"a": ' + b"9" * 50 + b"}"), 6, None),
    ("a spoilt entry", packed({"a": 7}), 1, None),
    ("a spoilt entry, escaped", packed({"\u00e9": 7}), 1, None),
    ("an overlap", packed({"a": entry(0, 4), "b": entry(2, 6)}, b"x" * 6), None, 2),
    ("a hole", packed({"a": entry(0, 2), "b": entry(4, 6)}, b"x" * 6), None, 2),
    ("cut off", packed({"a": entry(0, 9)}, b"x" * 5), None, 5),
    ("bytes left over", packed({"a": entry(0, 4)}, b"x" * 7), None, 4),
]


@pytest.mark.parametrize(("content", "text", "data"), [case[1:] for case in PLACES], ids=[case[0] for case in PLACES])
def test_what_is_wrong_is_told_with_the_byte_where_it_shows(tmp_path, content, text, data):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(HeaderError) as error:
        header.read(path)
    data_start = 8 + int.from_bytes(content[:8], "little")
    assert error.value.at == (8 + text if data is None else data_start + data)


def test_a_shard_that_is_cut_off_still_says_what_was_in_it(tmp_path):
    path = tmp_path / "a.safetensors"
    content, size = usual({"a": ("F32", [2, 3]), "b": ("BF16", [8])})
    path.write_bytes(content + b"x" * (size - 1))
    found, faults = header.look(path)
    assert [fault.what for fault in faults] == ["is truncated: its tensors need 40 bytes, 39 are there, 1 missing"]
    assert {name: tensor.shape for name, tensor in found.tensors.items()} == {"a": (2, 3), "b": (8,)}


def test_every_fault_of_a_layout_is_told_up_to_a_number(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(packed({str(number): entry(3 * number, 3 * number + 2) for number in range(50)}, b"x" * 149))
    assert len(header.look(path)[1]) == header.TOLD
    path.write_bytes(packed({str(number): number for number in range(50)}))
    assert len(header.look(path)[1]) == header.TOLD


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HeaderError, match="is not a regular file"):
        header.read(tmp_path / "pipe")


def test_a_missing_file_is_the_file_systems_to_tell(tmp_path):
    with pytest.raises(FileNotFoundError):
        header.read(tmp_path / "nowhere")


FINE = [
    ("no tensors", packed({}), {}),
    ("padded", raw(b"{}" + b" " * 70_000), {}),
    ("a scalar", packed({"a": entry(0, 4, [], "F32")}, b"xxxx"), {"a": ()}),
    ("nothing inside", packed({"b": entry(0, 2), "a": entry(0, 0, [3, 0])}, b"xx"), {"a": (3, 0), "b": (2,)}),
    ("half bytes", packed({"a": entry(0, 3, [2, 3], "F4")}, b"xxx"), {"a": (2, 3)}),
]


@pytest.mark.parametrize(("content", "shapes"), [case[1:] for case in FINE], ids=[case[0] for case in FINE])
def test_an_odd_but_valid_file_is_read(tmp_path, content, shapes):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    assert {name: tensor.shape for name, tensor in header.read(path).tensors.items()} == shapes


NAMES = st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != "__metadata__")
SIZES = st.lists(st.integers(0, 4).map(lambda size: 4 * size), min_size=1, max_size=3)
TENSORS = st.dictionaries(NAMES, st.tuples(st.sampled_from(sorted(BITS)), SIZES), max_size=6)
SPELLINGS: list[dict[str, Any]] = [
    {"separators": (",", ":"), "ensure_ascii": False},
    {"separators": (",", ":")},
    {"indent": 1, "ensure_ascii": False},
    {"sort_keys": True},
]


@settings(max_examples=100, deadline=None, suppress_health_check=SAME_FOLDER)
@given(
    tensors=TENSORS,
    metadata=st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")), max_size=2),
    spelling=st.sampled_from(SPELLINGS),
    padding=st.integers(0, 64),
)
def test_a_header_is_read_the_same_however_it_is_spelled(tmp_path, tensors, metadata, spelling, padding):
    content, size = usual(tensors, metadata)
    fields = json.loads(content[8:])
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(json.dumps(fields, **spelling).encode() + b" " * padding, os.urandom(size)))
    found = header.read(path)
    assert found.metadata == metadata
    assert {name: (one.dtype, list(one.shape)) for name, one in found.tensors.items()} == tensors
    assert found.data_start + size == found.size == path.stat().st_size
    bytes_there = path.read_bytes()[found.data_start :]
    assert b"".join(header.load(path, found, name) for name in found.tensors) == bytes_there


TRAINED = DRAFT.read_bytes()
BIG = usual({f"model.layers.{n}.weight": ("BF16", [n, 8]) for n in range(40)}, {"format": "pt"})
SEEDS = [TRAINED[: 1352 + 64], BIG[0] + bytes(BIG[1]), packed({"a": entry(0, 2), "b": entry(2, 4)}, b"xxxx")]
CHANGE = st.tuples(
    st.integers(0, 3000), st.binary(min_size=0, max_size=4) | st.sampled_from([b'"', b"}", b"[", b"\\u"])
)


@settings(max_examples=400, deadline=None, suppress_health_check=SAME_FOLDER)
@given(seed=st.sampled_from(SEEDS), changes=st.lists(CHANGE, max_size=4), keep=st.integers(0, 4000))
def test_a_spoilt_file_is_read_or_refused_at_a_byte_in_bounded_memory(tmp_path, seed, changes, keep):
    content = bytearray(seed)
    for at, new in changes:
        content[at % len(content) : at % len(content) + len(new)] = new
    path = tmp_path / "a.safetensors"
    path.write_bytes(content[: keep if keep < 2000 else None])
    size = path.stat().st_size
    tracemalloc.start()
    try:
        found = header.read(path)
    except HeaderError as error:
        assert 0 <= error.at <= size
        assert str(path) in str(error)
        assert len(error.what) < 1000
    else:
        assert found.data_start + max([0, *(tensor.end for tensor in found.tensors.values())]) == found.size
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 200_000 + 40 * size


@settings(max_examples=300, deadline=None)
@given(changes=st.lists(CHANGE, max_size=3), which=st.booleans())
def test_the_fast_way_takes_nothing_that_the_careful_way_refuses(changes, which):
    content, size = BIG if which else usual({"a": ("U8", [3]), "b": ("F4", [2, 2]), "c": ("BOOL", [0])})
    text = bytearray(content[8:])
    for at, new in changes:
        text[at % len(text) : at % len(text) + len(new)] = new
    found = fast(bytes(text), size)
    if found is not None:
        fields = header._fields("a", bytes(text))
        metadata = fields.pop("__metadata__", {})
        assert not any(header._misfit(entry) for entry in fields.values())
        assert found == (
            {n: Tensor(e["dtype"], tuple(e["shape"]), *e["data_offsets"]) for n, e in fields.items()},
            metadata,
        )


NOT_USUAL = [
    ("a name twice", {"a": entry(0, 2), "b": entry(2, 4)}, ('"b"', '"a"')),
    ("metadata twice", {"__metadata__": {"a": "1", "b": "2"}, "x": entry(0, 4)}, ('"b"', '"a"')),
    ("a size that is no number", {"a": entry(0, 4)}, ("[4]", "[4.0]")),
    ("a size with a zero before it", {"a": entry(0, 4)}, ("[4]", "[04]")),
    ("a hole", {"a": entry(0, 2), "b": entry(2, 4)}, ("[2,4]", "[3,4]")),
    ("another object behind", {"a": entry(0, 4)}, ("}}", "}}{}")),
    ("another end in the middle", {"a": entry(0, 2), "b": entry(2, 4)}, ("},", "}}")),
    ("a control character", {"aXb": entry(0, 4)}, ("X", "\x01")),
    ("unknown dtype", {"a": entry(0, 4)}, ("U8", "U9")),
    ("an entry as metadata", {"a": entry(0, 4)}, ('"a"', '"__metadata__"')),
]


@pytest.mark.parametrize(("fields", "change"), [case[1:] for case in NOT_USUAL], ids=[case[0] for case in NOT_USUAL])
def test_the_fast_way_leaves_what_is_odd_to_the_careful_one(fields, change):
    text = json.dumps(fields, separators=(",", ":"))
    assert fast(text.encode(), 4) is not None
    assert text.count(change[0]) >= 1
    assert fast(text.replace(change[0], change[1], 1).encode(), 4) is None


def test_a_header_of_nothing_but_brackets_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(b'{"a":[' + b"[]," * header.STRAY + b"[]]}"))
    tracemalloc.start()
    with pytest.raises(HeaderError, match="strings, lists and objects for 0 tensors") as error:
        header.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.value.at == 8
    assert peak < 3 * path.stat().st_size


@settings(max_examples=120, deadline=None, suppress_health_check=SAME_FOLDER)
@given(
    text=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.floats() | st.text() | st.integers(),
        lambda below: (
            st.lists(below) | st.dictionaries(st.text() | st.sampled_from(["dtype", "shape", "data_offsets"]), below)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_header_is_read_or_refused(tmp_path, text):
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(text))
    try:
        header.read(path)
    except HeaderError:
        return


def test_it_needs_nothing_but_the_standard_library(tmp_path):
    # hooks carry this text to hosts
    (tmp_path / "header.py").write_text(host.source("header"))
    program = "import sys; sys.path.insert(0, sys.argv[1]); import header; print(len(header.read(sys.argv[2]).tensors))"
    argv = [sys.executable, "-I", "-S", "-c", program, str(tmp_path), str(DRAFT)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("15\n", "")
