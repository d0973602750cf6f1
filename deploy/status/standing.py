"""How what is deployed on a host is doing: asked in one round trip, judged here, purely.

Whether a server serves is derived from facts: its launcher's process, who listens on its port, and what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from deploy import engines, looking, registry
from deploy.deployment import state
from deploy.deployment.state import Machine, Run
from deploy.engines import _gauges
from deploy.engines._gauges import Live
from deploy.errors import DeployError
from deploy.facts import About, Answer, Command, Fact, Program, Question, gpu_load, gpus
from deploy.facts.gpu_load import Load
from deploy.facts.gpus import ComputeProcess
from deploy.measuring import acceptance
from deploy.plan import Node
from deploy.remote import Remote

PATIENCE = 10.0  # seconds for each question; a server has 5 of them

State = Literal["serving", "loading", "following", "not answering", "swapping", "torn", "stopped", "dead"]


@dataclass(frozen=True)
class Doing:
    """One run: its processes, what its server answered just now, and when it changed (seconds, by its own clock).

    `status`: the readiness's HTTP status; None with `error` ("refused", "timeout", words) where none came, or where it
    was not asked. `ours`: whether a process of the run listens on its port; None where that cannot be seen.
    """

    pids: tuple[int, ...] = ()
    status: int | None = None
    error: str = ""
    ours: bool | None = None
    live: Live = field(default_factory=Live)
    at: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """One host: its machine, its runs by their folder, its GPUs and who holds them (None: unknown), and how many
    seconds its clock is ahead of ours.
    """

    machine: Machine
    doing: Mapping[str, Doing]
    gpus: tuple[Load, ...] | None = None
    holders: tuple[ComputeProcess, ...] | None = None
    ahead: float = 0.0

    def of(self, run: Run) -> Doing:
        """What was heard of a run."""
        return self.doing.get(run.folder, Doing())


class Look:
    """How to ask hosts: what the program on each must know of the engines is put together once."""

    def __init__(self) -> None:
        known = {name: engines.load(name) for name in registry.names("deploy.engines")}
        asked = {
            name: {"ready": one.READY_PATH, "metrics": one.GAUGES.path, "words": one.GAUGES.words}
            for name, one in known.items()
        }
        self._engines = json.dumps(asked)
        self._texts = looking.Texts()

    def at(self, remote: Remote) -> Standing:
        """Ask a host in one round trip. RemoteFailed where its state cannot be told."""
        words = (remote.host.work, remote.host.lock, self._engines)

        def all_three(_: About) -> dict[str, Question]:
            tools = {"gpus": Command(gpu_load.COMMAND), "holders": Command(gpus.HOLDERS)}
            return {"runs": Program("status", words), **tools}

        fact = Fact("status", all_three, parse)
        facts = looking.look(remote, About(), [fact], PATIENCE, self._texts)
        return replace(facts[fact], ahead=facts.offset or 0.0)


def parse(answers: Mapping[str, Answer]) -> Standing:
    """From what the host answers."""
    told = answers["runs"].read()
    machine = state.parse(told["state"])
    known = {run.folder: _engine(run) for one in machine.deployments.values() if (run := one.current)}
    doing = {folder: _doing(one, known.get(folder)) for folder, one in told["doing"].items()}
    found = gpu_load.parse(answers["gpus"].out)
    holders, wrong = gpus.parse_holders(answers["holders"].out)
    told = not wrong and answers["holders"].status in gpus.STATUSES
    return Standing(machine, doing, found or None, holders if told else None)


def _engine(run: Run) -> engines.Engine | None:
    try:
        return engines.load((run.manifest or {})["node"]["profile"]["engine"]["name"])
    except (KeyError, TypeError, DeployError):
        return None


def _doing(told: Mapping[str, Any], engine: engines.Engine | None) -> Doing:
    ready = told.get("ready") or {}
    at = {name: told[name] for name in ("exit", "stopped", "ready_at", "torn_at") if name in told}
    speed = live(engine, told.get("metrics", ""), told.get("log", "")) if engine else Live()
    return Doing(tuple(told["pids"]), ready.get("status"), ready.get("error", ""), told.get("ours"), speed, at)


def live(engine: engines.Engine, metrics: str, log: str) -> Live:
    """What its engine reads; the accept length of all requests since its start where it tells no later one."""
    found, totals = _gauges.live(engine.GAUGES, metrics, log), engine.totals(metrics)
    over = acceptance.over([totals]) if totals and found.accept_length is None else None
    return Live(over.length, found.tokens_per_second) if over else found


def derive(run: Run, doing: Doing, node: Node | None, busy: str = "") -> tuple[State, str]:
    """The state of a run, and in words why, where that needs some. `busy` is who has the host's lock, and for what: an
    exchange of a draft that nobody is at any more has broken off.
    """
    if not run.alive and not run.left:
        return ("stopped" if run.stopped or not run.pid else "dead"), run.ending
    # its server has ended, and left processes behind: vLLM's engine outlives an API server that was killed
    if not run.alive:
        found = _answers(doing, node)[0]
        return ("dead" if run.exit and found != "serving" else found), run.ending
    if run.stopped:
        return _answers(doing, node)[0], f"told to end, {run.stopped}"
    if run.torn and busy:
        return "swapping", f"{state.SWAPPING}: {busy}"
    if run.torn:
        return "torn", state.TORN
    return _answers(doing, node)


def _answers(doing: Doing, node: Node | None) -> tuple[State, str]:
    """Of what lives. A rank above 0 that answers nobody follows: whether the whole serves, its head tells."""
    if doing.status == 200 and doing.ours is not False:
        return "serving", ""
    if node and node.rank:
        return "following", ""
    if doing.status == 200:
        return "loading", "another process answers on its port"
    if "ready_at" in doing.at and node:
        how = (
            f"status {doing.status}" if doing.status else {"timeout": "no answer in time"}.get(doing.error, doing.error)
        )
        return "not answering", f"it was ready, and now GET {node.engine.READY_PATH} gives: {how}"
    return "loading", "its port is open, and does not answer" if doing.error == "timeout" else ""
