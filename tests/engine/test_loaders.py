"""Our table of loaders against the real ones: what each version of SGLang makes of tiny checkpoints, name by name.

One process a version builds the installed engine's own classes and runs their own `load_weights` over all of
`tests/loader_cases.py` (`deploy/host/loadcheck.py`). Where the table and the real code differ, the table is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoint import exact, facts
from deploy.checkpoint.trace import Trace
from deploy.environments import Installed
from tests import real_loaders
from tests.installed import overlay
from tests.loader_cases import MLA, ODD
from tests.project import EXAMPLES
from tests.real_loaders import ALL, NOT_THE_LOADERS, agree, holds, real, starts

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(300)]

VERSIONS = [
    "0.5.8",
    pytest.param("0.5.12.post1", marks=pytest.mark.full),
    pytest.param("0.5.18", marks=pytest.mark.full),
    "0.5.23",
]
AS_ON_A_GPU = {"SGLANG_USE_CPU_ENGINE": "0"}  # on a CPU it cuts and pads by other rules


def installed(version: str) -> Installed:
    return overlay(f"sglang-{version}")


@cache
def answers(version: str) -> Mapping[str, Any]:
    told = real_loaders.answers(installed(version), "sglang", AS_ON_A_GPU)
    assert {answer["version"] for answer in told.values()} == {version}
    return told


@cache
def contents(version: str) -> Mapping[str, Any]:
    return real_loaders.contents(installed(version), "sglang", AS_ON_A_GPU)


def done(version: str, name: str) -> Trace:
    return real(answers(version)[name], name)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_our_table_says_what_the_real_loader_does(version: str, name: str) -> None:
    did, said = done(version, name), real_loaders.ours("sglang", version, name)
    if said is None:
        assert (ALL[name]["architecture"], did.error) == (MLA, f"there is no class {MLA} in it")
    elif name not in NOT_THE_LOADERS or starts(did):
        agree(said, did)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_the_tensors_really_come_there(version: str, name: str) -> None:
    there, said = contents(version)[name], real_loaders.ours("sglang", version, name)
    if said is None or (name in NOT_THE_LOADERS and "" in there):
        assert there.get(""), "it starts"
        return
    holds(name, said, there)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_case_is_told_apart_from_the_healthy_one_or_is_healthy(version: str) -> None:
    """A program that recorded nothing would agree with a table that says nothing."""
    healthy = done(version, "midlayer")
    assert (healthy.error, healthy.unfilled) == ("", ())
    assert all(landing.parameter for landing in healthy.landings if landing.tensor != "t2d")
    stuck = done(version, "fc of a wrong width")
    assert "Attempted to load weight" in next(x.why for x in stuck.landings if x.tensor == "fc.weight")
    assert "NoneType" in done(version, "target_hidden_size null").error
    assert "draft_vocab_size" in done(version, "draft_vocab_size absent").error


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ODD)
def test_what_it_cannot_tell_is_no_verdict(version: str, name: str) -> None:
    answer, words = answers(version)[name], ODD[name][1]
    assert answer["unsupported"]
    assert words in answer["error"]


def test_a_draft_is_asked_about_once(tmp_path: Path) -> None:
    there = installed("0.5.23")
    found = exact.Engine("sglang", there.python, there.env)
    told = [exact.trace(facts.read(EXAMPLES / "draft"), found, cache=str(tmp_path)) for _ in range(2)]
    assert isinstance(told[0], Trace)
    assert (told[0].unfilled, told[0].dropped, told[0].error, told[0] == told[1]) == ((), (), "", True)
    (kept,) = tmp_path.iterdir()
    kept.unlink()
    as_on_a_gpu = replace(found, env={**there.env, **AS_ON_A_GPU})
    assert exact.trace(facts.read(EXAMPLES / "draft"), as_on_a_gpu, cache=str(tmp_path)) == told[0]
