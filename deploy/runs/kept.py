"""A run's folder read whole, whatever of it is there: a record of an earlier version, or of a run that broke off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from deploy import record
from deploy.events import Event
from deploy.measuring.measurement import Measurement
from deploy.record import RunSummary
from deploy.render import State, fold
from deploy.runs import shapes


@dataclass(frozen=True)
class Host:
    """What a run filed of one host: None or empty is what it did not come to."""

    name: str
    folder: Path
    measurement: Measurement | None = None
    verdict: Mapping[str, Any] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)  # {name of a phase of the start: seconds}

    @property
    def files(self) -> tuple[str, ...]:
        """What lies in its folder, by name."""
        try:
            return tuple(sorted(path.name for path in self.folder.iterdir() if not path.name.startswith(".")))
        except OSError:
            return ()


@dataclass(frozen=True)
class Kept:
    """One run: its events, and its files as documents, {} where there is none. `problems` says what cannot be read."""

    folder: Path
    events: tuple[Event, ...]
    plan: Mapping[str, Any] = field(default_factory=dict)
    project: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.folder.name

    @cached_property
    def state(self) -> State:
        """Where it stood when it ended."""
        return reduce(fold, self.events, State())

    @property
    def servers(self) -> dict[str, str]:
        """By host, the run in whose server the draft of this one was exchanged, which had no start of its own."""
        told = [(event.host, event.facts.get("swap")) for event in self.events]
        return {host: str(said.get("server")) for host, said in told if host and isinstance(said, Mapping)}

    @cached_property
    def summary(self) -> RunSummary:
        return record.summary(self.folder)

    @property
    def verdict(self) -> Mapping[str, Any]:
        """As the run ended with it."""
        ended = self.state.ended
        told = ended.facts.get("verdict") if ended else None
        return told if isinstance(told, Mapping) else {}

    @property
    def nodes(self) -> tuple[Mapping[str, Any], ...]:
        """Each node of the plan as JSON (`plan.Node.to_json`), replica by replica, by rank."""
        replicas = self.plan.get("replicas")
        found = replicas if isinstance(replicas, list) else []
        nodes = [node for replica in found if isinstance(replica, list) for node in replica]
        return tuple(node for node in nodes if isinstance(node, Mapping))

    @property
    def profile(self) -> Mapping[str, Any]:
        """The resolved profile of the first node; {} where no plan was recorded."""
        told = self.nodes[0].get("profile") if self.nodes else None
        return told if isinstance(told, Mapping) else {}

    @property
    def draft(self) -> Mapping[str, Any]:
        """{path, digest, size, files}; {} where there was none. From the plan, where an earlier version filed none."""
        if isinstance(told := self.checkpoints.get("draft"), Mapping):
            return told
        told = next((node["draft"] for node in self.nodes if node.get("draft")), None)
        if not isinstance(told, Mapping) or not isinstance(told.get("manifest"), Mapping):
            return {}
        return {"path": ":".join(str(told[key]) for key in ("host", "path") if told.get(key)), **told["manifest"]}

    @property
    def measurement(self) -> Measurement | None:
        """Of the first host that has one."""
        return next((host.measurement for host in self.hosts.values() if host.measurement), None)


def read(folder: Path) -> Kept:
    """DeployError where the events cannot be read; all else may be missing, or broken and then is told."""
    problems: list[str] = []
    events = tuple(record.read(folder))

    def document(path: Path) -> dict[str, Any]:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path}: {error}")
            return {}
        return told if isinstance(told, dict) else {}

    def shaped(name: str) -> dict[str, Any]:
        path = folder / f"{name}.json"
        told = document(path)
        if wrong := shapes.wrong(name, told):
            problems.append(f"{path} is not as it is written here: {wrong}")
            return {}
        return told

    def measurement(path: Path) -> Measurement | None:
        told = document(path)
        try:
            return Measurement.model_validate(told) if told else None
        except ValueError as error:  # pydantic's is one
            problems.append(f"{path} is no measurement: {str(error).splitlines()[0]}")
            return None

    phases = _phases(events)
    hosts = {}
    for name in dict.fromkeys([*_named(events), *phases]):
        own = record.host_folder(folder, name)
        measured, verdict = measurement(own / "bench.json"), document(own / "verdict.json")
        hosts[name] = Host(name, own, measured, verdict, phases.get(name, {}))
    documents = {name: shaped(name) for name in shapes.SHAPES}
    documents["versions"] = _versions(documents["versions"], hosts)
    return Kept(folder, events, **documents, hosts=hosts, problems=tuple(problems))


def _versions(told: Mapping[str, Any], hosts: Mapping[str, Host]) -> dict[str, Any]:
    """With the engine's version as the server itself told it when it was measured, where no installation tells one."""
    known = told.get("hosts")
    if not isinstance(known, Mapping):
        return dict(told)
    filled = {}
    for name, of in known.items():
        measured = hosts[name].measurement if name in hosts else None
        version = measured.on.engine_version if measured else None
        filled[name] = {"engine_version": version, **of} if version and isinstance(of, Mapping) else of
    return {**told, "hosts": filled}


def _named(events: tuple[Event, ...]) -> Iterator[str]:
    """The run's hosts: those of its plan first, in its order."""
    yield from (host for event in events[:1] for host in event.facts.get("hosts", ()))
    yield from (event.host for event in events if event.host)


def _phases(events: tuple[Event, ...]) -> dict[str, dict[str, float]]:
    """What each host's start took, phase by phase; the last one told, where it was started more than once."""
    found: dict[str, dict[str, float]] = {}
    for event in events:
        told = event.facts.get("phases")
        if event.host and isinstance(told, Mapping):
            found[event.host] = {str(name): float(took) for name, took in told.items() if isinstance(took, int | float)}
    return found
