"""Which earlier run a measurement is held against: the last good one that was asked the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.bench import lastgood
from deploy.deployment.state import Deployment, Run
from deploy.measuring.measurement import Measurement
from tests import loads, measurements

OTHERWISE = {"max_tokens": 7}


def run(folder: Path, name: str, on: dict[str, object] | None = None, *, good: bool = True) -> Run:
    """A run with its good.json in the folder."""
    (folder / name).mkdir()
    told = measurements.made(3.0, 60.0, name)
    told = told.model_copy(update={"on": told.on.model_copy(update=on or {})})
    (folder / name / lastgood.NAME).write_text(told.model_dump_json())
    return Run(name, str(folder / name), None, {"holds": good}, None, "7", "1", alive=True, exit="", stopped="")


def beside(folder: Path, current: Run | None, previous: Run | None, source: Run | None = None) -> Measurement:
    remote = loads.here(folder)
    known = {"x": Deployment("x", current, previous, ())}
    machine = replace(remote.place.machine, deployments=known)
    remote.place = replace(remote.place, machine=machine, source=source)
    found = lastgood.beside(measurements.made(3.1, 62.0, "now"), remote)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("current", "previous", "expected"),
    [
        ({}, {}, "current"),
        (OTHERWISE, {}, "previous"),
        (OTHERWISE, OTHERWISE, None),
        ({}, OTHERWISE, "current"),
    ],
    ids=["good", "asked otherwise", "all asked otherwise", "the one before asked otherwise"],
)
def test_it_is_the_last_one_that_was_good_and_asked_the_same(
    tmp_path: Path, current: dict[str, object], previous: dict[str, object], expected: str | None
) -> None:
    found = beside(tmp_path, run(tmp_path, "current", current), run(tmp_path, "previous", previous))
    assert (found.last_good and found.last_good.run) == expected
    assert [note.startswith("the last good run, current, is not") for note in found.notes] == [True] * (not expected)


def test_what_is_gone_back_to_is_held_against_itself_alone(tmp_path: Path) -> None:
    found = beside(tmp_path, run(tmp_path, "current"), None, source=run(tmp_path, "source"))
    assert found.last_good is not None
    assert found.last_good.run == "source"


def test_without_one_there_is_nothing_to_say(tmp_path: Path) -> None:
    found = beside(tmp_path, None, None)
    assert (found.last_good, found.notes) == (None, ())


def test_what_had_failed_its_gates_is_no_measure(tmp_path: Path) -> None:
    found = beside(tmp_path, run(tmp_path, "current", good=False), run(tmp_path, "previous"))
    assert found.last_good is not None
    assert found.last_good.run == "previous"
