"""Facts of hosts with GPUs that are not there: by the fake nvidia-smi (tests/fake_gpus), in this very process."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deploy.facts import About, Answer, Command, Fact, Facts, fabric, gpu_health, gpus, kernel, known, topology
from deploy.facts.interpreter import Interpreter
from deploy.facts.kernel import Kernel
from deploy.host.gpu_health import thinned
from deploy.inventory import Host
from deploy.plan import Node, make
from deploy.profile import Profile
from tests.fake_gpus.queries import main
from tests.fake_gpus.state import State
from tests.fake_gpus.text import kernel_log

FACTS: tuple[Fact[Any], ...] = (gpus.FACT, gpu_health.FACT, topology.FACT, fabric.FACT)
QUIET = Kernel((), (), since=0.0, booted=0.0, now=1e6)


def said(*words: str) -> tuple[int, str]:
    """(status, stdout) of the fake nvidia-smi."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main(list(words))
        except SystemExit as end:
            return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def seen(folder: Path, log: Kernel | None = None, cuda: str | None = None, **told: Any) -> Facts:
    """One look at a host whose gpus.json says what is `told`, and whose torch is built for `cuda`."""
    (folder / "gpus.json").write_text(json.dumps(told))
    with patch.dict(os.environ, FAKE_GPU_STATE=str(folder)):
        found = {
            fact.name: fact.parse({n: _answer(q, told) for n, q in fact.questions(About()).items()}) for fact in FACTS
        }
        lines = list(kernel_log(State(folder), QUIET.now))
    written = {"lines": lines, "since": 0.0, "booted": 0.0, "now": QUIET.now, "error": ""}
    return known(kernel=log or kernel.parse(written), interpreter=(Interpreter(cuda=cuda),), **found)


def node(taken: int, **fields: Any) -> Node:
    """A server that takes so many GPUs, the host's all."""
    host = Host.model_validate({"name": "h1", "gpus": taken})
    server = {"name": "x", "engine": {"name": "sglang"}, "model": {"path": "/m"}, "hosts": ["h1"]}
    sizes = {"gpus": taken, "parallel": {"tp": max(taken, 1)}}
    return make({host: Profile.model_validate({**server, **sizes, **fields})}, None, None).nodes[0]


def _answer(question: Any, told: dict[str, Any]) -> Answer:
    if not isinstance(question, Command):
        _, out = said("-q", "-x")
        return Answer(0, document=thinned(out.encode(), question.args))
    if question.argv[0] == "nvidia-smi":
        return Answer(*said(*question.argv[1:]))
    manager = told.get("fabric_manager", {})
    if question.argv == fabric.UNIT:
        return Answer(0, f"LoadState={'loaded' if manager else 'not-found'}\nActiveState={manager.get('state')}\n")
    if "version" not in manager:
        return Answer(None, err="No such file or directory")
    return Answer(0, f"Fabric Manager version is : {manager['version']}\n")
