"""What the real loaders make of `tests/loader_cases.py`, and what our table says of it, name by name."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from deploy import host
from deploy.checkpoint import exact, loaders
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.trace import Landing, Trace, trace
from deploy.environments import Installed
from tests.loader_cases import CASES, ODD, strange

PADDING, NOTHING = 0, -1  # what stands in a parameter beside the numbers of tensors
VOCABULARY = {"model.embed_tokens.weight", "lm_head.weight"}
FORGIVEN = {*VOCABULARY, "draft_id_to_target_id"}  # may be the target's, or zeros: then nothing is missing
PADDED = 64  # rows of the vocabulary's are made a multiple of it (layers/vocab_parallel_embedding.py)
# What transformers refuses before a class is even looked for: the rules about config.json tell it, not this table.
NOT_THE_LOADERS = {"model_type absent", "model_type unknown", "heads that do not divide"}
STRANGE = 200  # checkpoints changed at random, the same ones every time
ALL = {**CASES, **{f"strange {seed}": strange(seed) for seed in range(STRANGE)}}


def answers(installed: Installed, engine: str, env: Mapping[str, str]) -> dict[str, Any]:
    """What the engine says of everything, by the program that hosts are asked with."""
    return _run(installed, ("-c", host.source("loadcheck"), engine, "answer"), env)


def contents(installed: Installed, engine: str, env: Mapping[str, str]) -> dict[str, Any]:
    """What stands in every parameter after the engine loaded each of them for real."""
    program = Path(__file__).with_name("really_load.py")
    path = os.pathsep.join(filter(None, [installed.env.get("PYTHONPATH"), str(program.parents[1])]))
    return _run(installed, (str(program), engine), {**env, "PYTHONPATH": path})


def _run(installed: Installed, argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
    """A program in the engine's interpreter, asked everything at once: an import takes seconds."""
    asked = json.dumps([*ALL.values(), *(odd for odd, _ in ODD.values())]).encode()
    whole = {**os.environ, **installed.env, **env}
    done = subprocess.run([installed.python, *argv], input=asked, capture_output=True, check=False, env=whole)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told = json.loads(done.stdout.decode().strip().rpartition("\n")[2])
    return dict(zip([*ALL, *ODD], told, strict=True))


def draft(name: str) -> Facts:
    case = ALL[name]
    tensors = {name: Tensor(dtype, tuple(shape), 0, 0, "") for name, (dtype, shape) in case["tensors"].items()}
    return Facts(name, tensors=tensors, config=case["config"], d2t=case["d2t"])


def real(answer: Mapping[str, Any], name: str) -> Trace:
    """What the engine did."""
    assert not answer["unsupported"], answer["error"]
    return exact.parse(draft(name), answer)


def ours(engine: str, version: str, name: str) -> Trace | None:
    """What our table says; None where it knows no such class of that version."""
    loader = loaders.choose(engine, ALL[name]["architecture"], Version(version))
    case = draft(name)
    return trace(loader, case.tensors, case.config) if loader else None


def starts(found: Trace) -> bool:
    return not found.error and all(landing.how != "refused" for landing in found.landings)


def agree(said: Trace, done: Trace) -> None:
    """Where every tensor ends, what is left unfilled, and all shapes: the table's word and the engine's own."""
    assert starts(said) == starts(done), done.error or done.landings
    if done.error:
        return  # nothing was loaded
    assert {x.tensor: _lands(x) for x in said.landings} == {x.tensor: _lands(x) for x in done.landings}
    assert set(said.unfilled) == set(done.unfilled)
    assert _padded(said) == done.shapes


def holds(name: str, said: Trace, there: Mapping[str, Any]) -> None:
    """With real numbers: each parameter holds those of the tensors that the table sends there, and no others."""
    assert starts(said) == ("" not in there), there.get("")
    numbers = {tensor: number for number, tensor in enumerate(ALL[name]["tensors"], 1)}
    last = {(x.parameter, x.shard): numbers[x.tensor] for x in said.landings if x.parameter}  # it overwrites
    for parameter, found in there.items() if starts(said) else ():
        assert set(found) - {PADDING, NOTHING} == {number for (where, _), number in last.items() if where == parameter}
        assert (NOTHING in found) == (parameter in said.unfilled) or parameter in FORGIVEN


def _lands(landing: Landing) -> tuple[str | None, str | None, str]:
    """Where a tensor ends, and what is not as it should be: refused, or taken in part, in the same words."""
    if landing.how == "refused":
        return landing.parameter, landing.shard, "refused"
    return landing.parameter, landing.shard, landing.why if landing.parameter else ""


def _padded(found: Trace) -> dict[str, tuple[int, ...]]:
    return {
        name: (-(-shape[0] // PADDED) * PADDED, *shape[1:]) if name in VOCABULARY else shape
        for name, shape in found.shapes.items()
    }
