"""`deploy ckpt diff`: every kind of difference, and what is read to find it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoint import diff, facts
from deploy.checkpoint.facts import Facts
from deploy.host import header, rewrite
from tests.checkpoints import weights
from tests.project import EXAMPLES, Project

Change = Callable[[Path], object]


def configured(change: Callable[[dict[str, Any]], object]) -> Change:
    def act(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))

    return act


def renamed(**names: str) -> Change:
    file = "model.safetensors"
    pairs = {old.replace("_", ".") + ".weight": new.replace("_", ".") + ".weight" for old, new in names.items()}
    return lambda folder: rewrite.rewrite(folder / file, folder / file, pairs)


def spoilt(name: str) -> Change:
    """One byte of a tensor's is another."""

    def act(folder: Path) -> None:
        found = header.read(folder / "model.safetensors")
        with (folder / "model.safetensors").open("r+b") as file:
            file.seek(found.data_start + found.tensors[name].start + 5)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))

    return act


def made(tensors: dict[str, tuple[str, list[int]]]) -> Change:
    return lambda folder: weights(folder / "model.safetensors", tensors)


SAME: dict[str, tuple[str, list[int]]] = {"x.weight": ("BF16", [2, 3]), "y.weight": ("F32", [4])}
CASES: list[tuple[str, Change, Change, bool, set[tuple[str, str | None, str | None]]]] = [
    ("nothing", lambda _: None, lambda _: None, True, set()),
    ("a key", lambda _: None, configured(lambda c: c.pop("head_dim")), False, {("config", "head_dim", None)}),
    ("a new key", lambda _: None, configured(lambda c: c.update(x=None)), False, {("config", None, "x")}),
    (
        "a nested key",
        lambda _: None,
        configured(lambda c: c["eagle_config"].update(use_aux_hidden_state=1)),
        False,
        {("config", "eagle_config.use_aux_hidden_state", "eagle_config.use_aux_hidden_state")},
    ),
    ("a name", lambda _: None, renamed(fc="model_fc"), False, {("renamed", "fc.weight", "model.fc.weight")}),
    (
        "names exchanged",
        lambda _: None,
        renamed(norm="midlayer_hidden_norm2"),
        True,
        {("renamed", "norm.weight", "midlayer.hidden.norm2.weight")},
    ),
    ("a byte of the sample", lambda _: None, spoilt("fc.weight"), False, {("changed", "fc.weight", "fc.weight")}),
    ("a byte", lambda _: None, spoilt("fc.weight"), True, {("changed", "fc.weight", "fc.weight")}),
    ("gone", made(SAME), made({"x.weight": SAME["x.weight"]}), False, {("removed", "y.weight", None)}),
    ("new", made({"x.weight": SAME["x.weight"]}), made(SAME), False, {("added", None, "y.weight")}),
    (
        "another shape",
        made(SAME),
        made({**SAME, "x.weight": ("BF16", [3, 2])}),
        True,
        {("reshaped", "x.weight", "x.weight")},
    ),
    (
        "another dtype",
        made(SAME),
        made({**SAME, "x.weight": ("F16", [2, 3])}),
        True,
        {("dtype", "x.weight", "x.weight")},
    ),
    (
        "another name and other bytes",
        made({"x.weight": ("F32", [4])}),
        made({"z.weight": ("I32", [4])}),
        False,
        {("removed", "x.weight", None), ("added", None, "z.weight")},
    ),
    (
        "equal tensors under new names",
        made({"a": ("U8", [3]), "b": ("U8", [3])}),
        made({"c": ("U8", [3]), "d": ("U8", [3])}),
        True,
        {("renamed", "a", "c"), ("renamed", "b", "d")},
    ),
]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The tiny draft, twice."""
    for name in ("a", "b"):
        shutil.copytree(EXAMPLES / "draft", tmp_path / name)
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize(
    ("first", "second", "deep", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_every_kind_of_difference_is_found(pair, first, second, deep, expected):
    first(pair[0])
    second(pair[1])
    a, b = (facts.read(path) for path in pair)
    names = diff.wanted(a, b, deep=deep)
    a, b = (
        replace(found, digests=facts.read(path, digests=own, deep=deep).digests)
        for path, found, own in zip(pair, (a, b), names, strict=True)
    )
    assert {(one.kind, one.a, one.b) for one in diff.differences(a, b, deep=deep)} == expected


def test_a_tensor_with_another_middle_is_no_rename(pair):
    renamed(fc="model_fc")(pair[1])
    spoilt("model.fc.weight")(pair[1])
    a, b = (facts.read(path) for path in pair)
    names = diff.wanted(a, b, deep=True)
    assert (names[0][0], names[1][0]) == ("fc.weight", "model.fc.weight")
    digests = [facts.read(path, digests=own, deep=True).digests for path, own in zip(pair, names, strict=True)]
    found = diff.differences(replace(a, digests=digests[0]), replace(b, digests=digests[1]), deep=True)
    assert [(one.kind, one.a, one.b) for one in found] == [
        ("removed", "fc.weight", None),
        ("added", None, "model.fc.weight"),
    ]


def test_of_a_whole_model_only_what_may_be_renamed_is_read():
    tensors = {f"t{number}": facts.Tensor("U8", (1,), number, number + 1, "x") for number in range(1001)}
    a = Facts("a", tensors=tensors)
    b = replace(a, tensors={name.replace("t7", "u") if name == "t7" else name: one for name, one in tensors.items()})
    assert diff.wanted(a, b, deep=False) == (["t7"], ["u"])
    assert [len(names) for names in diff.wanted(a, b, deep=True)] == [1001, 1001]
    few = replace(a, tensors=dict(list(tensors.items())[:1000]))
    assert len(diff.wanted(few, few, deep=False)[0]) == 1000


def test_what_is_cut_off_is_not_compared(pair):
    content = (pair[1] / "model.safetensors").read_bytes()
    (pair[1] / "model.safetensors").write_bytes(content[:-700])  # t2d is 512 bytes, norm.weight before it as many
    a, b = (facts.read(path, digests=list(facts.read(path).tensors), deep=True) for path in pair)
    assert {(one.kind, one.a) for one in diff.differences(a, b, deep=True)} == {
        ("not compared", "norm.weight"),
        ("not compared", "t2d"),
    }


def test_the_command_tells_them_and_ends_with_1(pair, tmp_path):
    project = Project(tmp_path / "project", {})
    same = project.run("ckpt", "diff", str(pair[0]), str(pair[1]), "--deep")
    assert (same.code, same.out) == (0, "15 tensors are equal, byte by byte\n"), same.err

    renamed(fc="model_fc")(pair[1])
    configured(lambda config: config.update(head_dim="\x1b[2J"))(pair[1])
    done = project.run("ckpt", "diff", str(pair[0]), str(pair[1]))
    assert done.code == 1
    assert done.out.splitlines()[:2] == [
        'config        head_dim: 32 -> "\\u001b[2J"',
        "renamed       fc.weight -> model.fc.weight  F32 [128, 384]",
    ]
    shown = project.run("ckpt", "diff", str(pair[0]), str(pair[1]), "--json")
    assert shown.code == 1
    assert [one["kind"] for one in shown.json["differences"]] == ["config", "renamed"]

    gone = project.run("ckpt", "diff", str(pair[0]), str(tmp_path / "nowhere"))
    assert (gone.code, gone.out) == (2, "")
