"""Our table of loaders against the real ones: what each version of SGLang makes of tiny checkpoints, name by name.

One process a version builds the installed engine's own classes and runs their own `load_weights` over all of
`tests/loader_cases.py` (`deploy/host/loadcheck.py`). Where the table and the real code differ, the table is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from packaging.version import Version

from deploy import host
from deploy.checkpoint import exact, loaders
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.trace import Landing, Trace, trace
from tests import overlays
from tests.installed import needs
from tests.loader_cases import CASES, MLA

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(300)]

VERSIONS = [
    "0.5.8",
    pytest.param("0.5.12.post1", marks=pytest.mark.full),
    pytest.param("0.5.18", marks=pytest.mark.full),
    "0.5.23",
]
# What transformers refuses before a class is even looked for: the rules about config.json tell it, not this table.
NOT_THE_LOADERS = {"model_type absent", "model_type unknown", "heads that do not divide"}
PADDED = 64  # rows of the vocabulary's parameters (layers/vocab_parallel_embedding.py)


@cache
def answers(version: str) -> Mapping[str, Any]:
    """What that version says of every case, by the program that hosts are asked with."""
    needs(overlays.BASE)
    engine = overlays.locate(f"sglang-{version}")
    if engine is None:
        told = f"python -m tests.overlays sglang-{version}"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    argv = [engine.python, "-c", host.source("loadcheck"), "sglang", "answer"]
    asked = json.dumps(list(CASES.values())).encode()
    env = {**os.environ, **engine.env, "SGLANG_USE_CPU_ENGINE": "0"}  # on a CPU it cuts and pads by other rules
    done = subprocess.run(argv, input=asked, capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told = json.loads(done.stdout.decode().strip().rpartition("\n")[2])
    assert {answer["version"] for answer in told} == {version}
    return dict(zip(CASES, told, strict=True))


def facts(name: str) -> Facts:
    case = CASES[name]
    tensors = {name: Tensor(dtype, tuple(shape), 0, 0, "") for name, (dtype, shape) in case["tensors"].items()}
    return Facts(name, tensors=tensors, config=case["config"], d2t=case["d2t"])


def real(version: str, name: str) -> Trace:
    """What the engine did."""
    answer = answers(version)[name]
    assert not answer["unsupported"], answer["error"]
    return exact.parse(facts(name), answer)


def ours(version: str, name: str) -> Trace | None:
    """What our table says; None where it knows no such class of that version."""
    loader = loaders.choose("sglang", CASES[name]["architecture"], Version(version))
    draft = facts(name)
    return trace(loader, draft.tensors, draft.config) if loader else None


def starts(found: Trace) -> bool:
    return not found.error and all(landing.how != "refused" for landing in found.landings)


def lands(landing: Landing) -> tuple[str | None, str | None, str]:
    """Where a tensor ends, and what is not as it should be: refused, or taken in part, in the same words."""
    if landing.how == "refused":
        return landing.parameter, landing.shard, "refused"
    return landing.parameter, landing.shard, landing.why if landing.parameter else ""


def padded(found: Trace) -> dict[str, tuple[int, ...]]:
    rows = {"lm_head.weight", "model.embed_tokens.weight"}
    return {
        name: (-(-shape[0] // PADDED) * PADDED, *shape[1:]) if name in rows else shape
        for name, shape in found.shapes.items()
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_our_table_says_what_the_real_loader_does(version: str, name: str) -> None:
    done, said = real(version, name), ours(version, name)
    if said is None:
        assert (CASES[name]["architecture"], done.error) == (MLA, f"there is no class {MLA} in it")
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
def test_every_case_is_told_apart_from_the_healthy_one_or_is_healthy(version: str) -> None:
    """A program that recorded nothing would agree with a table that says nothing."""
    healthy = real(version, "midlayer")
    assert (healthy.error, healthy.unfilled) == ("", ())
    assert all(landing.parameter for landing in healthy.landings if landing.tensor != "t2d")
    stuck = real(version, "fc of a wrong width")
    assert "Attempted to load weight" in next(x.why for x in stuck.landings if x.tensor == "fc.weight")
    assert "NoneType" in real(version, "target_hidden_size null").error
    assert "draft_vocab_size" in real(version, "draft_vocab_size absent").error
