"""What a run is made of, for its record: profile, git, versions, checkpoints, command lines, and the end of its log."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy import __version__, looking
from deploy.abreast import on_all
from deploy.config import documents
from deploy.errors import DeployError, Interrupted, Locked, Unreachable
from deploy.events import Event
from deploy.facts import About, Facts, gpus, system
from deploy.plan import Node, Plan
from deploy.remote import Remote
from deploy.text import scrub, words
from deploy.walk import git
from deploy.walk.course import Failure

LOG = 128 << 10  # bytes of a log's end: some hundred lines
NO_PROJECT = "there is no project here"
OUT_OF_REACH = (Unreachable, Locked)  # of such a host nothing more is asked


@dataclass
class Filing:
    """One run on its way into its record: its nodes, and the hosts they are on."""

    nodes: tuple[Node, ...]
    remotes: Mapping[str, Remote]
    project: Path | None
    folders: dict[str, tuple[str, str]] = field(default_factory=dict)  # each host's run and its folder, at the start

    def begun(self) -> Iterator[Event]:
        """What is known before the first step."""
        self.folders = {node.host.name: self._folder(node) for node in self.nodes}
        state = git.state(self.project) if self.project else {"why": NO_PROJECT}
        yield _filed("", "what it is", {
            "profile.yaml": documents.written(redacted(self.nodes[0].profile.model_dump(mode="json"))),
            "project.json": _json(state),
            "checkpoints.json": _json(self._checkpoints()),
            "versions.json": _json(self._versions({})),
        })  # fmt: skip
        for node in self.nodes:
            files = {"launch.sh": node.launch_script, "env": environment(node)}
            yield _filed(node.host.name, "its command", files, self.folders[node.host.name][0])

    def ended(self, failures: Iterable[Failure]) -> Iterator[Event]:
        """What is known after the last step: the hosts are asked once more, but for those that are out of reach.

        Nothing where somebody stopped it, who waits for the prompt.
        """
        told = list(failures)
        if any(isinstance(failure.error, Interrupted) for failure in told):
            return
        lost = {failure.host for failure in told if isinstance(failure.error, OUT_OF_REACH)}
        nodes = [node for node in self.nodes if node.host.name not in lost]
        seen: dict[str, Facts | None] = {}
        logs: dict[str, list[tuple[str, str]]] = {}

        def ask(name: str) -> None:
            remote = self.remotes[name]
            seen[name] = remote.cases[name].facts if name in remote.cases else _look(remote)
            runs = dict.fromkeys([self.folders[name], (remote.place.run, remote.place.folder)])
            logs[name] = [(run, _log(remote, folder)) for run, folder in runs]

        on_all([node.host for node in nodes], lambda host: ask(host.name))
        yield _filed("", "versions", {"versions.json": _json(self._versions(seen))})
        for name, runs in logs.items():
            yield from (_filed(name, "its log", {"server.log": text}, run) for run, text in runs if text)

    def _folder(self, node: Node) -> tuple[str, str]:
        place = self.remotes[node.host.name].place
        return place.run, place.folder

    def _checkpoints(self) -> dict[str, Any]:
        draft = self.nodes[0].draft
        models = {}
        for node in self.nodes:
            place = self.remotes[node.host.name].place
            manifest = (place.current.manifest if place.current else None) or {}
            known = place.model or manifest.get("model") or {}
            told = {name: known.get(name) for name in ("identity", "size", "error") if known.get(name) is not None}
            models[node.host.name] = {"path": node.profile.model.path, **told}
        return {
            "draft": draft and {"path": draft.source, "release": draft.digest, **draft.manifest.to_json()},
            "model": models,
        }

    def _versions(self, seen: Mapping[str, Facts | None]) -> dict[str, Any]:
        hosts = {}
        for node in self.nodes:
            place, facts = self.remotes[node.host.name].place, seen.get(node.host.name)
            manifest = (place.current.manifest if place.current else None) or {}
            version = place.engine.installed if place.engine else manifest.get("engine_version")
            told = {"engine": node.profile.engine.name, "engine_version": version, **_machine(facts)}
            if place.engine:
                told |= {"engine_python": place.engine.version, "engine_cuda": place.engine.cuda}
            hosts[node.host.name] = {name: value for name, value in told.items() if value not in (None, "", [])}
        return {"tool": __version__, "python": platform.python_version(), "hosts": hosts}


def environment(node: Node) -> str:
    """A node's environment as the file that sh sources, with `***` for each secret."""
    return words.environment(node.env) + "".join(f"{variable}=***\n" for variable in node.secret_variables)


def redacted(told: Mapping[str, Any]) -> dict[str, Any]:
    """A profile or a node as JSON, without what its variables and arguments name as a secret and yet hold."""
    named = {name: scrub.document(told[name], name) for name in ("env", "args", "argv") if name in told}
    profile = {"profile": redacted(told["profile"])} if "profile" in told else {}
    return {**told, **named, **profile}


def plan(told: Plan) -> dict[str, Any]:
    """The plan as JSON, redacted."""
    replicas = [[redacted(node.to_json()) for node in replica.nodes] for replica in told.replicas]
    return {"deployment": told.deployment, "replicas": replicas}


def _machine(facts: Facts | None) -> dict[str, Any]:
    """Driver, GPUs and system; what a host does not tell is left out."""
    told: dict[str, Any] = {}
    if facts is None:
        return told
    try:
        cards = facts[gpus.FACT].all or ()
        told |= {"driver": next((card.driver for card in cards if card.driver), None)}
        told |= {"gpus": [card.name for card in cards]}
    except DeployError:  # nothing is judged by it here
        pass
    try:
        here = facts[system.FACT]
        told |= {"system": here.system, "kernel": here.kernel, "machine": here.machine, "libc": here.libc}
    except DeployError:
        pass
    return told


def _look(remote: Remote) -> Facts | None:
    try:
        return looking.look(remote, About(remote.host.work), (gpus.FACT, system.FACT))
    except DeployError:  # the run has ended as it has; what cannot be asked now is not told
        return None


def _log(remote: Remote, folder: str) -> str:
    """The end of the server's log, from the beginning of a line; "" where there is none."""
    try:
        text = remote.sh('tail -c "$1" -- "$2/server.log"', str(LOG), folder, ok=(0, 1))
    except DeployError:
        return ""
    return text.partition("\n")[2] if len(text.encode()) >= LOG else text


def _filed(host: str, text: str, files: Mapping[str, str], run: str = "") -> Event:
    return Event("filed", text, host=host, facts={"files": dict(files), "run": run})


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, default=str) + "\n"
