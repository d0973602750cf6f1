"""A gate that fails on the accept length says why, by the files of the draft that is really served on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.project import EXAMPLES, Project

FAILED = 9


@dataclass(frozen=True)
class Case:
    """What is served, what is measured of it, and what is told."""

    draft: str
    length: float
    title: str
    first: tuple[str, str]  # the cause that is told first, and what the files say of it


CASES = {
    "nothing, and a file says why": Case("no-d2t", 1.0, "not one drafted token is accepted", ("d2t", "FAIL")),
    "nothing, and no file says why": Case("", 1.0, "not one drafted token is accepted", ("loader", "ok")),
    "a part": Case("", 1.6, "only a part of the draft is accepted", ("aux ids", "cannot tell")),
    "a part, and a file says why": Case("unknown-prefix", 1.6, "only a part of the draft", ("loader", "FAIL")),
}
IN_CI = ("nothing, and a file says why", "a part")


def diagnosis(project: Project) -> Mapping[str, Any]:
    told: Mapping[str, Any] = next(one["diagnosis"] for one in project.told("verdict") if "diagnosis" in one)
    return told


@pytest.mark.parametrize("case", [pytest.param(name, marks=[pytest.mark.full] * (name not in IN_CI)) for name in CASES])
def test_what_the_files_say_of_it_is_told_with_the_gate(project: Project, tmp_path: Path, case: str) -> None:
    draft, length, title, first = (getattr(CASES[case], name) for name in ("draft", "length", "title", "first"))
    path = places.broken(draft, tmp_path / "drafts") if draft else EXAMPLES / "draft"
    project.fake(draft=str(path), fake={"accept_length": length}, gates={"accept_length": ">= 2.5"})
    done = project.run("up", "profile=fake", "waive=[ckpt]")
    found = diagnosis(project)
    assert (done.code, found["title"].startswith(title)) == (FAILED, True), done.err
    assert (found["causes"][0]["name"], found["causes"][0]["says"]) == first
    assert found["causes"][0]["title"] in done.err or f"- not {first[0]}" in done.err


def test_a_draft_that_is_gone_from_the_host_is_told_as_not_looked_at(project: Project) -> None:
    project.fake(fake={"accept_length": 1.0}, gates={"accept_length": ">= 1.0"})
    assert project.run("up", "profile=fake").code == 0
    for release in project.folder.glob("work/releases/*/*"):
        release.unlink()
    done = project.run("up", "profile=fake", "gates.accept_length=>= 2.5")
    found = diagnosis(project)
    assert done.code == FAILED, done.err
    assert {cause["says"] for cause in found["causes"]} == {"cannot tell"}
    assert "could not be looked at" in found["causes"][0]["what"]
