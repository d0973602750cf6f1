"""Our table of loaders against the real ones: what each version of SGLang makes of tiny checkpoints, name by name.

One process a version builds the installed engine's own classes and runs their own `load_weights` over all of
`tests/loader_cases.py` (`deploy/host/loadcheck.py`). Where the table and the real code differ, the table is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from deploy import host
from deploy.checkpoint import exact, facts, loaders
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.trace import Landing, Trace, trace
from tests import overlays
from tests.installed import needs
from tests.loader_cases import CASES, MLA, ODD, strange
from tests.project import EXAMPLES

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(300)]

VERSIONS = [
    "0.5.8",
    pytest.param("0.5.12.post1", marks=pytest.mark.full),
    pytest.param("0.5.18", marks=pytest.mark.full),
    "0.5.23",
]
# What transformers refuses before a class is even looked for: the rules about config.json tell it, not this table.
NOT_THE_LOADERS = {"model_type absent", "model_type unknown", "heads that do not divide"}
PADDING, NOTHING = 0, -1  # what stands in a parameter beside the numbers of tensors
BORROWED = {"model.embed_tokens.weight", "lm_head.weight"}  # may be the target's, and then nothing is missing
PADDED = 64  # rows of the vocabulary's parameters (layers/vocab_parallel_embedding.py)


STRANGE = 200  # checkpoints changed at random, the same ones every time
ALL = {**CASES, **{f"strange {seed}": strange(seed) for seed in range(STRANGE)}}


def engine(version: str, *argv: str, path: str = "") -> Any:
    """What a program answers in that version's interpreter, asked everything at once: an import takes seconds."""
    needs(overlays.BASE)
    installed = overlays.locate(f"sglang-{version}")
    if installed is None:
        told = f"python -m tests.overlays sglang-{version}"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    env = {**os.environ, **installed.env, "SGLANG_USE_CPU_ENGINE": "0"}  # on a CPU it cuts and pads by other rules
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [installed.env["PYTHONPATH"], path]))
    asked = json.dumps([*ALL.values(), *(odd for odd, _ in ODD.values())]).encode()
    done = subprocess.run([installed.python, *argv], input=asked, capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout.decode().strip().rpartition("\n")[2])


@cache
def answers(version: str) -> Mapping[str, Any]:
    """What that version says of everything, by the program that hosts are asked with."""
    told = engine(version, "-c", host.source("loadcheck"), "sglang", "answer")
    assert {answer["version"] for answer in told} == {version}
    return dict(zip([*ALL, *ODD], told, strict=True))


@cache
def contents(version: str) -> Mapping[str, Any]:
    """What stands in every parameter after that version loaded each of them for real."""
    program = Path(__file__).parents[1] / "really_load.py"
    return dict(zip([*ALL, *ODD], engine(version, str(program), path=str(program.parents[1])), strict=True))


def draft(name: str) -> Facts:
    case = ALL[name]
    tensors = {name: Tensor(dtype, tuple(shape), 0, 0, "") for name, (dtype, shape) in case["tensors"].items()}
    return Facts(name, tensors=tensors, config=case["config"], d2t=case["d2t"])


def real(version: str, name: str) -> Trace:
    """What the engine did."""
    answer = answers(version)[name]
    assert not answer["unsupported"], answer["error"]
    return exact.parse(draft(name), answer)


def ours(version: str, name: str) -> Trace | None:
    """What our table says; None where it knows no such class of that version."""
    loader = loaders.choose("sglang", ALL[name]["architecture"], Version(version))
    case = draft(name)
    return trace(loader, case.tensors, case.config) if loader else None


def starts(found: Trace) -> bool:
    return not found.error and all(landing.how != "refused" for landing in found.landings)


def lands(landing: Landing) -> tuple[str | None, str | None, str]:
    """Where a tensor ends, and what is not as it should be: refused, or taken in part, in the same words."""
    if landing.how == "refused":
        return landing.parameter, landing.shard, "refused"
    return landing.parameter, landing.shard, landing.why if landing.parameter else ""


def padded(found: Trace) -> dict[str, tuple[int, ...]]:
    return {
        name: (-(-shape[0] // PADDED) * PADDED, *shape[1:]) if name in BORROWED else shape
        for name, shape in found.shapes.items()
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_our_table_says_what_the_real_loader_does(version: str, name: str) -> None:
    done, said = real(version, name), ours(version, name)
    if said is None:
        assert (ALL[name]["architecture"], done.error) == (MLA, f"there is no class {MLA} in it")
        return
    if name in NOT_THE_LOADERS and not starts(done):
        return
    assert starts(said) == starts(done), done.error or done.landings
    if done.error:
        return  # nothing was loaded
    assert {x.tensor: lands(x) for x in said.landings} == {x.tensor: lands(x) for x in done.landings}
    assert set(said.unfilled) == set(done.unfilled)
    assert padded(said) == done.shapes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_the_tensors_really_come_there(version: str, name: str) -> None:
    """With real numbers: each parameter holds those of the tensors that the table sends there, and no others."""
    there, said = contents(version)[name], ours(version, name)
    if said is None or (name in NOT_THE_LOADERS and "" in there):
        assert there.get(""), "it starts"
        return
    assert starts(said) == ("" not in there), there.get("")
    numbers = {tensor: number for number, tensor in enumerate(ALL[name]["tensors"], 1)}
    last = {(x.parameter, x.shard): numbers[x.tensor] for x in said.landings if x.parameter}  # it overwrites
    for parameter, found in there.items() if starts(said) else ():
        assert set(found) - {PADDING, NOTHING} == {number for (where, _), number in last.items() if where == parameter}
        assert (NOTHING in found) == (parameter in said.unfilled) or parameter in BORROWED


@pytest.mark.parametrize("version", VERSIONS)
def test_every_case_is_told_apart_from_the_healthy_one_or_is_healthy(version: str) -> None:
    """A program that recorded nothing would agree with a table that says nothing."""
    healthy = real(version, "midlayer")
    assert (healthy.error, healthy.unfilled) == ("", ())
    assert all(landing.parameter for landing in healthy.landings if landing.tensor != "t2d")
    stuck = real(version, "fc of a wrong width")
    assert "Attempted to load weight" in next(x.why for x in stuck.landings if x.tensor == "fc.weight")
    assert "NoneType" in real(version, "target_hidden_size null").error
    assert "draft_vocab_size" in real(version, "draft_vocab_size absent").error


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ODD)
def test_what_it_cannot_tell_is_no_verdict(version: str, name: str) -> None:
    answer, words = answers(version)[name], ODD[name][1]
    assert answer["unsupported"]
    assert words in answer["error"]


def test_a_draft_is_asked_about_once(tmp_path: Path) -> None:
    needs(overlays.BASE)
    installed = overlays.locate(overlays.BASE)
    assert installed
    found = exact.Engine("sglang", installed.python, installed.env)
    told = [exact.trace(facts.read(EXAMPLES / "draft"), found, cache=str(tmp_path)) for _ in range(2)]
    assert isinstance(told[0], Trace)
    assert (told[0].unfilled, told[0].dropped, told[0].error, told[0] == told[1]) == ((), (), "", True)
    (kept,) = tmp_path.iterdir()
    kept.unlink()
    there = {**installed.env, "SGLANG_USE_CPU_ENGINE": "0"}
    assert exact.trace(facts.read(EXAMPLES / "draft"), replace(found, env=there), cache=str(tmp_path)) == told[0]
