"""Where a checkpoint's tensors land, asked of the installed engine itself: its class, its `load_weights`, no weights.

What runs where: `deploy/host/ask_engine.py` on the machine that has the engine, with its python3; from there
`deploy/host/loadcheck.py` in the engine's own interpreter. It takes as long as the engine's import, about 6 s, and the
next time a tenth of a second. No GPU is touched; the checkpoint itself need not be on that machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from deploy import host
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.trace import How, Landing, Trace
from deploy.errors import RemoteFailed
from deploy.host import ask_engine
from deploy.host.loader_record import HALVES
from deploy.text.legible import one_line

PATIENCE = 120.0  # seconds: a cold disk, a busy machine, an import of 10 000 files
BEYOND = 45.0  # seconds more for the way there and for the fingerprint
WORDS = 1000  # characters of what an engine says
IGNORED = "t2d"  # what loaders pass over, and mean to


class Runs(Protocol):
    """As much of a host as this needs: run a program of ours, and read its JSON (`deploy.remote.Remote`)."""

    def python(self, source: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> Any: ...


@dataclass(frozen=True)
class Engine:
    """An installed engine: its name, its interpreter as the server is started with it, the server's own variables."""

    name: str
    python: str
    env: Mapping[str, str] = field(default_factory=dict)


def trace(draft: Facts, engine: Engine, remote: Runs | None = None, cache: str | None = None) -> Trace | str:
    """What the engine, installed on a host or here, makes of the draft; a reason in words where it could not be asked.

    `cache` is the folder for answers: on a host `<work>/cache`, here the user's own by default; "" keeps nothing.
    Unreachable where the connection is lost.
    """
    asked = question(draft)
    if isinstance(asked, str):
        return asked
    job = {
        "python": engine.python,
        "env": dict(engine.env),
        "engine": engine.name,
        "program": host.source("loadcheck"),
        "question": asked,
        "cache": _cache() if cache is None and remote is None else cache or "",
        "timeout": PATIENCE,
    }
    try:
        answer = _there(remote, job) if remote else ask_engine.ask(job)
        return one_line(answer["error"], WORDS) if answer.get("unsupported") else parse(draft, answer)
    except RemoteFailed as error:
        return one_line(f"{error.what}: {error.evidence}" if error.evidence else error.what, WORDS)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return one_line(f"the engine's interpreter answers what nobody understands: {error!r}", WORDS)


def question(draft: Facts) -> dict[str, Any] | str:
    """What `loadcheck` is asked; a reason where there is nothing to ask."""
    architectures = draft.config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        return "config.json names no architecture"
    return {
        "architecture": architectures[0],
        "config": dict(draft.config),
        "tensors": {name: [tensor.dtype, list(tensor.shape)] for name, tensor in draft.tensors.items()},
        "d2t": None if draft.d2t is None else list(draft.d2t),
    }


def parse(draft: Facts, answer: Mapping[str, Any]) -> Trace:
    """The trace of an answer of `loadcheck`. KeyError, TypeError or ValueError where it is none."""
    error = one_line(answer["error"], WORDS)
    landings = () if error else tuple(_landings(draft, answer))
    shapes = {str(name): tuple(map(int, shape)) for name, shape in answer["parameters"].items()}
    return Trace(landings, tuple(map(str, answer["unfilled"])), shapes, error)


def _landings(draft: Facts, answer: Mapping[str, Any]) -> Iterator[Landing]:
    """One a tensor, in the order of the checkpoint; of a tensor that was given to several, the last."""
    found: dict[str, Landing] = {}
    for tensor, parameter, shard, why in answer["placed"]:
        found[tensor] = Landing(tensor, parameter, _how(tensor, parameter, shard), shard, one_line(why))
    for tensor, parameter, shard, why in answer["refused"]:
        found[tensor] = Landing(tensor, parameter, "refused", shard, one_line(why, WORDS))
    for tensor in draft.tensors:
        lost: How = "ignored" if IGNORED in tensor else "dropped"
        yield found.get(tensor) or Landing(tensor, None, lost)


def _how(tensor: str, parameter: str, shard: str | None) -> How:
    if "d2t" in tensor:
        return "vocabulary map"
    if shard in {half for _, half in HALVES}:
        return "fused"
    if shard is not None:
        return "stacked"
    if parameter in (tensor, f"model.{tensor}"):
        return "as-is" if parameter == tensor else "model. prefix"
    return "legacy name"


def _there(remote: Runs, job: Mapping[str, Any]) -> Any:
    stdin = json.dumps(job).encode()
    return remote.python(host.source("ask_engine"), timeout=PATIENCE + BEYOND, stdin=stdin)


def _cache() -> str:
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "deploy", "loaders"))
