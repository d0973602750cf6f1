"""Whether what is loaded is what was handed over: which tensors differ, and what the checksums must say then."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from deploy.host.swap_proof import COMPARED, LOOKED, Differing, Unproven, differing, prove
from deploy.host.swap_shm import weights
from tests import checkpoints

NEIGHBOURS = struct.unpack("<2f", struct.pack("<2I", 0x3F80FFFF, 0x3F810000))  # both become 0x3F81 in bfloat16
KINDS = {"F32": "f", "F64": "d", "F16": "e", "BF16": "H", "I64": "q", "U8": "B"}


def told(tmp_path: Path, dtype: str, one: list[float], other: list[float]) -> str:
    """What is said of a tensor with such elements, first and then."""
    found = []
    for name, values in (("1", one), ("2", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        data = struct.pack(f"<{len(values)}{KINDS[dtype]}", *values)
        checkpoints.weights(tmp_path / name / "model.safetensors", {"a": (dtype, [len(values)])}, data)
        found.append(weights(str(tmp_path / name), "a"))
    surely, perhaps = differing(*found)
    return "surely" if surely else "perhaps" if perhaps else "same"


@pytest.mark.parametrize(
    ("dtype", "one", "other", "how"),
    [
        ("F32", [1.0, 2.0], [1.0, 2.0], "same"),
        ("F32", [1.0, 2.0], [1.0, 2.5], "surely"),
        ("F32", [1.0, 2.0], [1.0, -2.0], "surely"),
        ("F32", [1.0, 2.0], [1.0, 2.00001], "perhaps"),  # one number in bfloat16
        ("F32", [1.0, 1.0000001, 2.0], [1.0, 1.0, 3.0], "surely"),
        ("F32", [1.0, NEIGHBOURS[0]], [1.0, NEIGHBOURS[1]], "perhaps"),
        ("F64", [1.0], [1.0 + 1e-9], "perhaps"),
        ("F64", [1.0], [2.0], "surely"),
        ("F16", [1.0], [1.001], "perhaps"),
        ("F16", [1.0], [1.1], "surely"),
        ("BF16", [0x3F80], [0x3F81], "surely"),
        ("I64", [1], [2], "surely"),
        ("U8", list(range(200)), [*range(199), 7], "surely"),
    ],
)
def test_what_a_server_sees_of_a_difference(
    tmp_path: Path, dtype: str, one: list[float], other: list[float], how: str
) -> None:
    assert told(tmp_path, dtype, one, other) == how


def test_one_that_is_long_is_looked_at_piece_by_piece(tmp_path: Path) -> None:
    one = [1.0] * (COMPARED // 2)
    assert told(tmp_path, "F32", one, [*one[:-1], 2.0]) == "surely"


def test_of_many_small_differences_the_end_is_not_waited_for(tmp_path: Path) -> None:
    count = COMPARED // 4 + LOOKED
    one, near = [1.0] * count, [1.0000001] * count
    assert told(tmp_path, "F32", one, [*near[:-1], 2.0]) == "perhaps"


SENT = {"q": "layers.0.qkv", "k": "layers.0.qkv", "fc": "fc", "norm": "norm"}
BEFORE = {"draft.layers.0.qkv@0": "1", "draft.layers.0.qkv@1": "2", "draft.fc@0": "3", "draft.fc@1": "3"}
BEFORE |= {"draft.norm@0": "4", "draft.norm@1": "4", "draft.embed@0": "5", "draft.embed@1": "6"}
ALL = Differing(frozenset({"q", "fc"}), frozenset({"norm"}))
LOADED = {**BEFORE, "draft.layers.0.qkv@0": "8", "draft.fc@0": "9", "draft.fc@1": "9"}

PROVEN = {
    "as it should be": ({}, ALL, None, ""),
    "what may be rounded away has changed": ({"draft.norm@0": "0", "draft.norm@1": "0"}, ALL, None, ""),
    "as after a start": ({}, ALL, LOADED, ""),
    "otherwise than after a start": ({}, ALL, {**LOADED, "draft.norm@1": "0"}, "1 checksums are not those of a start"),
    "a tensor was dropped": (
        {"draft.fc@0": "3", "draft.fc@1": "3"}, ALL, None, "fc is as before, and another tensor was sent"
    ),
    "one that was not sent has changed": ({"draft.embed@1": "0"}, ALL, None, "embed is another one than before"),
    "nothing was to change, and something has": (
        {}, Differing(frozenset(), frozenset()), None, "fc is another one than before"
    ),
    "another model altogether": ({"draft.more@0": "1"}, ALL, None, "9 checksums, and told 8"),
    "the server calls all of them otherwise, and nothing has changed": (
        dict(BEFORE), Differing(frozenset({"x"}), frozenset()), None, "were dropped"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_what_checksums_say(name: str) -> None:
    changed, differs, expected, words = PROVEN[name]
    after = {**LOADED, **changed}
    sent = {**SENT, "x": "unheard"}
    if not words:
        prove(after, BEFORE, expected, sent, differs)
        return
    with pytest.raises(Unproven) as caught:
        prove(after, BEFORE, expected, sent, differs)
    assert words in str(caught.value)
