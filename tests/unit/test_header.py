from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.host import header
from deploy.host.header import HeaderError, Tensor

DRAFT = Path(__file__).parents[2] / "examples/tiny-eagle3/draft/model.safetensors"
SAME_FOLDER = [HealthCheck.function_scoped_fixture]


def entry(start: int, end: int, shape: list[Any] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


def raw(text: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def packed(fields: dict[str, Any], data: bytes = b"") -> bytes:
    return raw(json.dumps(fields).encode(), data)


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


@settings(max_examples=120, deadline=None, suppress_health_check=SAME_FOLDER)
@given(at=st.integers(0, 1400), byte=st.integers(0, 255), keep=st.integers(0, 2000) | st.just(1 << 30))
def test_a_spoilt_file_is_read_or_refused_but_never_a_crash(tmp_path, at, byte, keep):
    content = bytearray(DRAFT.read_bytes())
    content[at] = byte
    path = tmp_path / "a.safetensors"
    path.write_bytes(content[:keep])
    try:
        found = header.read(path)
    except HeaderError as error:
        assert str(path) in str(error)
    else:
        assert found.data_start + max(tensor.end for tensor in found.tensors.values()) == found.size


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
    # hooks carry this one file to hosts
    (tmp_path / "header.py").write_text(Path(header.__file__).read_text())
    program = "import sys; sys.path.insert(0, sys.argv[1]); import header; print(len(header.read(sys.argv[2]).tensors))"
    argv = [sys.executable, "-I", "-S", "-c", program, str(tmp_path), str(DRAFT)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("15\n", "")
