"""Facts of hosts with GPUs that are not there: by the fake nvidia-smi (tests/fake_gpus), in this very process."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deploy.checks import Case
from deploy.facts import About, Answer, Command, Fact, Facts, fabric, gpu_health, gpus, kernel, known, topology
from deploy.facts.interpreter import Interpreter
from deploy.facts.kernel import Kernel
from deploy.findings import Finding
from deploy.host.gpu_health import thinned
from deploy.inventory import Host
from deploy.plan import Node, make
from deploy.profile import Profile
from tests.fake_gpus.queries import main
from tests.fake_gpus.state import State
from tests.fake_gpus.text import kernel_log

FACTS: tuple[Fact[Any], ...] = (gpus.FACT, gpu_health.FACT, topology.FACT, fabric.FACT)
MANAGER = {"version": "570.172.08", "state": "active"}
B200 = {"preset": "b200 x8", "fabric_manager": MANAGER}
RTX = {"preset": "rtx-pro-6000 x8"}
H200 = {"preset": "h200 x1", "fabric_manager": MANAGER}
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


def case(folder: Path, told: dict[str, Any], taken: int | None = 8, log: Kernel | None = None, **fields: Any) -> Case:
    """A server that takes so many of a host's GPUs; None: no profile is named."""
    server = None if taken is None else node(taken, **fields)
    host = Host.model_validate({"name": "h1", "gpus": 1 if "x1" in told["preset"] else 8})
    return Case(host, seen(folder, log, **told), server, None)  # type: ignore[arg-type]


def found(check: Callable[[Case], Iterable[Finding]], case: Case) -> list[tuple[str, str, str]]:
    """(verdict, what, evidence and remedy) of all that is found."""
    return [(one.verdict, one.what, f"{one.evidence}\n-> {one.remedy}") for one in check(case)]


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
