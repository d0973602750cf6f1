"""Runs as their records tell them, made from measurements: for what reads runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from deploy import record
from deploy.events import Event
from deploy.measuring.measurement import Measurement

EVENTS = Path(__file__).parent / "fixtures" / "events"
VERSIONS = {"engine": "sglang", "engine_version": "0.5.23", "driver": "580.65"}


def node(draft: str = "a1b2", **more: Any) -> dict[str, Any]:
    """A node as the plan has it, with a draft of that digest."""
    manifest = {
        "digest": draft * 16,
        "size": 7,
        "files": [{"path": "model.safetensors", "size": 7, "sha256": draft * 16}],
    }
    return {
        "host": {"name": "gpu1"},
        "profile": {"name": "kimi", "port": 30000, "speculative": {"num_steps": 3}},
        "argv": ["python3", "-m", "sglang.launch_server", "--tp", "8", "--draft", {"run": "draft"}],
        "env": {"NCCL_DEBUG": "WARN"},
        "draft": {"path": f"ckpt/{draft}", "host": "", "manifest": manifest},
        **more,
    }


def run(folder: Path, measured: Measurement | None, *nodes: dict[str, Any], **said: Any) -> Path:
    """Record a run with these nodes, which took what `phases` and `seconds` say; its folder.

    `files` are filed for the whole run.
    """
    told = list(nodes or (node(),))
    hosts = [one["host"]["name"] for one in told]
    at, code = said.get("at", 1_796_000_000.0), said.get("exit_code", 0)
    plan = {"deployment": "kimi", "replicas": [told]}
    recipe = [["wait", "each", ""], ["bench", "head", ""]]
    opening = {"id": folder.name, "command": said.get("command", "up"), "profile": "kimi", "hosts": hosts}
    versions = {"tool": "0.1.0", "hosts": dict.fromkeys(hosts, VERSIONS)}
    files = {"versions.json": json.dumps(said.get("versions", versions)), **said.get("files", {})}
    took, phases = {"seconds": said.get("seconds", 320.0)}, {"phases": said.get("phases", {})}
    bench = {"bench.json": measured.model_dump_json()} if measured else {}
    ending = {"exit_code": code, "seconds": 370.0, "verdict": _verdict(measured, code)}
    recorder = record.Recorder(folder)
    for event in (
        Event("run_started", facts={**opening, "recipe": recipe, "plan": plan}, at=at),
        Event("filed", facts={"files": files}, at=at),
        *(Event("said", host=host, step="wait", facts=phases, at=at) for host in hosts),
        *(Event("step_ended", "ready", host, "wait", took, at) for host in hosts),
        *said.get("events", ()),
        Event("filed", host=hosts[0], facts={"files": bench}, at=at),
        Event("run_ended", said.get("text", "done"), facts=ending, at=at + 370),
    ):
        recorder.on(recorder.filed(event))
    recorder.close()
    return folder


def _verdict(measured: Measurement | None, code: int) -> dict[str, Any]:
    figures = measured.figures() if measured else {}
    names = [name for name in ("accept_length", "tok_s", "speedup") if name in figures]
    return {"holds": code == 0, **{name: figures[name].value for name in names}} if figures else {}


def again(runs: Path, name: str, events: str = "up", *, host: str = "gpu1", **filed: Any) -> Path:
    """A real run's events, as they were recorded once, under another name; its folder.

    `filed` is what the host filed besides, {"bench": a Measurement or a document, "verdict": a document}.
    """
    folder = runs / name
    folder.mkdir(parents=True)
    shutil.copy(EVENTS / f"{events}.jsonl", folder / "events.jsonl")
    for file, told in filed.items():
        own = folder / "hosts" / host
        own.mkdir(parents=True, exist_ok=True)
        (own / f"{file}.json").write_text(told.model_dump_json() if isinstance(told, Measurement) else json.dumps(told))
    return folder


def gate(name: str, wanted: str, measured: float | None, *, holds: bool | None, **more: Any) -> dict[str, Any]:
    """One gate of a verdict, as it is filed."""
    return {"name": name, "wanted": wanted, "measured": measured, "holds": holds, **more}
