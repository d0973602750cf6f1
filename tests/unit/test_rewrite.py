"""Files written anew under other names: the same bytes, whichever way the kernel takes."""

from __future__ import annotations

import errno
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.host import header, rewrite
from deploy.host.header import BITS, HeaderError

DRAFT = Path(__file__).parents[2] / "examples/tiny-eagle3/draft/model.safetensors"
SAME_FOLDER = [HealthCheck.function_scoped_fixture]


def entry(start: int, end: int, shape: list[Any] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


def packed(fields: dict[str, Any], data: bytes = b"", padding: int = 0) -> bytes:
    text = json.dumps(fields).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + data


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
TENSORS = st.dictionaries(
    NAMES,
    st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 4).map(lambda size: 4 * size), max_size=3)),
    max_size=6,
)


def generated(tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str], padding: int) -> bytes:
    fields: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        kind = dtype if shape else "U8"  # a scalar of half a byte does not exist
        start, end = end, end + math.prod(shape) * BITS[kind] // 8
        fields[name] = entry(start, end, shape, kind)
    return packed(fields, os.urandom(end), padding)


@settings(max_examples=50, deadline=None, suppress_health_check=SAME_FOLDER)
@given(
    tensors=TENSORS,
    metadata=st.dictionaries(st.text(), st.text(), max_size=2),
    padding=st.integers(0, 9),
    data=st.data(),
)
def test_a_rewritten_file_holds_the_same_bytes_under_other_names(tmp_path, tensors, metadata, padding, data):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    content = generated(tensors, metadata, padding)
    source.write_bytes(content)
    before = header.read(source)
    old = data.draw(st.lists(st.sampled_from(sorted(tensors)), unique=True)) if tensors else []
    rename = {name: f"renamed.{number}" for number, name in enumerate(old) if f"renamed.{number}" not in tensors}
    written = rewrite.rewrite(source, target, rename).header
    assert written == header.read(target)
    assert written.metadata == before.metadata == metadata
    assert {rename.get(name, name): header.load(source, before, name) for name in before.tensors} == {
        name: header.load(target, written, name) for name in written.tensors
    }
    assert source.read_bytes() == content


def test_a_rewritten_file_has_room_for_later_renames(tmp_path):
    written = rewrite.rewrite(DRAFT, tmp_path / "a.safetensors", {"fc.weight": "model.fc.weight"}).header
    with (tmp_path / "a.safetensors").open("rb") as file:
        text = file.read(written.data_start)[8:]
    assert written.data_start % rewrite.ALIGN == 1352  # as before, so that the data can be shared
    assert len(text) - len(text.rstrip(b" ")) >= 64 << 10
    back = {"model.fc.weight": "fc.weight"}
    again = rewrite.rewrite(tmp_path / "a.safetensors", tmp_path / "b.safetensors", back).header
    assert again.data_start % rewrite.ALIGN == 1352
    assert again.tensors == header.read(DRAFT).tensors


REFUSED = [
    ("two become one", {"fc.weight": "norm.weight"}, "both 'fc.weight' and 'norm.weight' would be named 'norm.weight'"),
    (
        "two given one name",
        {"fc.weight": "x", "norm.weight": "x"},
        "both 'fc.weight' and 'norm.weight' would be named 'x'",
    ),
    ("a name that is not there", {"a": "b"}, "has no tensor 'a' to rename"),
    ("the header's own field", {"fc.weight": "__metadata__"}, "would be named '__metadata__'"),
]


@pytest.mark.parametrize(("rename", "what"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_rename_that_loses_a_tensor_is_refused(tmp_path, rename, what):
    with pytest.raises(HeaderError, match=what):
        rewrite.rewrite(DRAFT, tmp_path / "a.safetensors", rename)
    assert list(tmp_path.iterdir()) == []


def test_two_names_may_change_places(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(packed({"a": entry(0, 1), "b": entry(1, 2)}, b"12"))
    written = rewrite.rewrite(path, path, {"a": "b", "b": "a"}).header
    assert header.load(path, written, "b") == b"1"


@pytest.mark.parametrize("broken", [[], ["copy_file_range"], ["copy_file_range", "sendfile"]])
@pytest.mark.parametrize("refusal", [OSError(errno.EXDEV, "cross-device"), 0, None])
def test_the_bytes_arrive_whichever_way_the_file_system_refuses(tmp_path, monkeypatch, broken, refusal):
    def refuse(*_args):
        if isinstance(refusal, OSError):
            raise refusal
        return refusal

    for name in broken:
        if refusal is None:
            monkeypatch.delattr(os, name)
        else:
            monkeypatch.setattr(os, name, refuse)
    target = tmp_path / "a.safetensors"
    written = rewrite.rewrite(DRAFT, target, {}).header
    assert target.read_bytes()[written.data_start :] == DRAFT.read_bytes()[1352:]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("copy_file_range", "sendfile", "write"):
        monkeypatch.setattr(os, name, full)
    (tmp_path / "a.safetensors").write_bytes(b"the old one")
    with pytest.raises(OSError, match="No space left"):
        rewrite.rewrite(DRAFT, tmp_path / "a.safetensors", {})
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    assert (tmp_path / "a.safetensors").read_bytes() == b"the old one"
