"""The record as it is read: its events, checked for what readers rely on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from deploy.errors import DeployError
from deploy.events import Event

EVENTS = "events.jsonl"


def read(folder: Path) -> Iterator[Event]:
    """The recorded events; a last line cut short by the client's death is left out. DeployError for any other."""
    for number, line in enumerate(lines(folder), 1):
        yield parse(line, f"{folder / EVENTS}:{number}")


def lines(folder: Path) -> list[str]:
    """Each whole line as it stands there."""
    try:
        text = (folder / EVENTS).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DeployError(f"there is no record in {folder}", evidence=str(error), remedy="deploy history") from error
    return text.split("\n")[:-1]  # what follows the last newline was not written to its end


def parse(line: str, where: str) -> Event:
    """The event of one recorded line; `where` names it in the DeployError for a line that is none."""
    try:
        document = json.loads(line)
        known = {name: document[name] for name in _FIELDS if name in document}
        event = Event(**{"at": 0.0, **known})
        _check(event)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DeployError(f"{where} is not an event", evidence=f"{error}\n{line[:200]}") from error
    return event


_FIELDS = tuple(field.name for field in fields(Event))  # a later version may write more


def _check(event: Event) -> None:
    """What readers rely on; TypeError where it is something else."""
    facts = event.facts
    if not isinstance(facts, dict):
        raise TypeError("facts is no object")
    hosts, recipe, code = facts.get("hosts", []), facts.get("recipe", []), facts.get("exit_code", 0)
    verdict = facts.get("verdict") if event.kind == "run_ended" else None  # a finding's is a word
    gates, waived = (verdict.get(name) or [] for name in ("gates", "waived")) if isinstance(verdict, dict) else ([], [])
    right = {
        "kind, text, host and step": all(isinstance(w, str) for w in (event.kind, event.text, event.host, event.step)),
        "at": isinstance(event.at, int | float) and math.isfinite(event.at),
        "hosts": isinstance(hosts, list) and all(isinstance(host, str) for host in hosts),
        "recipe": isinstance(recipe, list) and all(isinstance(step, list) and step for step in recipe),
        "exit_code": isinstance(code, int | str),  # a word where it was hidden as a secret's value
        "verdict": isinstance(verdict, dict | None),
        "gates": isinstance(gates, list) and all(isinstance(gate, dict) for gate in gates),
        "waived": isinstance(waived, list),
    }
    if wrong := [name for name, holds in right.items() if not holds]:
        raise TypeError(f"{', '.join(wrong)}: not as it is written here")
