"""The record of a run: its events as they came, in a folder of its own, to be listed, read and replayed."""

from __future__ import annotations

import json
import math
import os
import re
import secrets as entropy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from deploy.errors import ConfigError, DeployError
from deploy.events import GONE_BACK, Event
from deploy.mask import masked

EVENTS = "events.jsonl"
OWN = (EVENTS, "plan.json", "result.json")  # what the record itself writes, and nobody files
FILE = re.compile(r"\w[\w.-]{0,63}")


def new_id(now: float | None = None, random: Callable[[int], str] = entropy.token_hex) -> str:
    """A run's name: UTC to the second, so that names sort by time from wherever they were started, and 24 random bits.

    `now` in seconds since the epoch; `random(3)` gives six hexadecimal digits.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{random(3)}"


def runs_folder(project: Path | None, environ: Mapping[str, str]) -> Path:
    """Where runs are recorded: in the project, or in the user's state folder where there is none."""
    if project is not None:
        return project / "runs"
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the base directory specification: relative paths are to be ignored
        state = Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return state / "deploy" / "runs"


class Recorder:
    """A reader of the event stream that writes it down; each event is on disk before the next one is taken.

    `folder` is the run's own, made here: DeployError where that is not possible. A disk that fills up later does not
    end the run: recording stops, and `trouble` says why.
    """

    def __init__(self, folder: Path, mask: Sequence[str] = ()) -> None:
        self.folder = folder
        self.mask = mask
        self.trouble = ""
        try:
            folder.mkdir(parents=True, mode=0o700)  # exclusive: two runs never share a record
            self.file: TextIO = _private(folder / EVENTS, "a")
        except OSError as error:
            remedy = "make the folder writable, or use another project folder"
            raise DeployError(f"cannot record the run in {folder}", evidence=str(error), remedy=remedy) from error

    def on(self, event: Event) -> None:
        """Append the event; plan.json and result.json are written from the first and the last."""
        if self.trouble or self.file.closed:
            return
        event = masked(event, self.mask)
        try:
            self.file.write(_json(event.to_json()) + "\n")
            self.file.flush()
            if event.kind == "run_started" and "plan" in event.facts:
                self._write("plan.json", event.facts["plan"])
            if event.kind == "run_ended":
                self._write("result.json", {"id": self.folder.name, "text": event.text, **event.facts})
        except OSError as error:
            self.trouble = f"the record in {self.folder} is incomplete: {error}"

    def filed(self, event: Event) -> Event:
        """An event whose files are written below hosts/HOST/ (without a host: beside the events), and in it their names
        and the folder alone.

        `filed` is a run's own account (bench.json, verdict.json, ...): a later one of the same name replaces it, and
        that of a run which was gone back to lies in `rollback`. `evidence` has a folder for each time.
        """
        files = event.facts.get("files")
        if event.kind not in ("filed", "evidence") or not isinstance(files, Mapping):
            return event
        kept = {name: str(text) for name, text in files.items() if FILE.fullmatch(str(name)) and name not in OWN}
        folder = self._folder_of(event)
        try:
            for part in reversed([folder, *folder.parents][: len(folder.relative_to(self.folder).parts)]):
                part.mkdir(mode=0o700, exist_ok=True)  # `parents` would make those readable for all
            for name, text in kept.items():
                _replace(folder / name, text)
        except OSError as error:
            self.trouble = self.trouble or f"what was to be kept in {folder} is incomplete: {error}"
        return replace(event, facts={**event.facts, "files": sorted(kept), "folder": str(folder)})

    def _folder_of(self, event: Event) -> Path:
        """Where its files go; of evidence a folder that is not there yet: a run that goes back may fail again."""
        if event.kind == "filed" and not event.host:
            return self.folder
        above = self.folder / "hosts" / re.sub(r"^\.|[^\w.-]", "_", event.host or "_")
        if event.kind == "filed":
            return above / "rollback" if str(event.facts.get("run", "")).endswith(GONE_BACK) else above
        names = ("evidence", *(f"evidence-{number}" for number in range(2, 100)))
        return next((above / name for name in names if not (above / name).exists()), above / "evidence")

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        try:
            self.file.close()
        except OSError as error:  # what a full disk refused is refused again here
            self.trouble = self.trouble or f"the record in {self.folder} is incomplete: {error}"

    def _write(self, name: str, document: Any) -> None:
        _replace(self.folder / name, _json(document, indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write the file, whole or not at all."""
    temporary = path.with_name(f".{path.name}")
    with _private(temporary, "w") as file:
        file.write(text)
    temporary.replace(path)


def _private(path: Path, mode: Literal["a", "w"]) -> TextIO:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    # Path.open knows no opener. A host's file names need not be text, and come as surrogates.
    return open(path, mode, encoding="utf-8", errors="backslashreplace", opener=opener)


def _json(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, default=str, indent=indent)


def read(folder: Path) -> Iterator[Event]:
    """The recorded events; a last line cut short by the client's death is left out. DeployError for any other."""
    for number, line in enumerate(_lines(folder), 1):
        yield parse(line, f"{folder / EVENTS}:{number}")


def _lines(folder: Path) -> list[str]:
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


@dataclass(frozen=True)
class RunSummary:
    """One run in a list. `exit_code` is None where the client did not end it: it was killed, or is still at it."""

    id: str
    command: str = ""
    profile: str = ""
    hosts: tuple[str, ...] = ()
    started: float = 0.0
    seconds: float = 0.0
    exit_code: int | None = None
    text: str = ""
    accept_length: float | None = None


def summaries(runs: Path) -> list[RunSummary]:
    """All runs recorded in the folder, newest first; one that cannot be read says so in its text."""
    try:
        folders = [folder for folder in runs.iterdir() if (folder / EVENTS).is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(map(summary, folders), key=lambda run: (run.started, run.id), reverse=True)


def summary(folder: Path) -> RunSummary:
    """The run in short, from its first and last events alone: a record may hold a whole server log."""
    try:
        lines = _lines(folder)
        events = [parse(line, str(folder / EVENTS)) for line in lines[:1] + lines[1:][-3:]]
    except DeployError as error:
        return RunSummary(folder.name, text=error.what)
    if not events:
        return RunSummary(folder.name, text="nothing was recorded")
    return _summed(folder.name, events)


def _summed(run: str, events: list[Event]) -> RunSummary:
    first = events[0]
    ended = next((event for event in reversed(events) if event.kind == "run_ended"), None)
    last = ended or events[-1]
    return RunSummary(
        id=run,
        command=str(first.facts.get("command", "")),
        profile=str(first.facts.get("profile", "")),
        hosts=tuple(first.facts.get("hosts", ())),
        started=first.at,
        seconds=last.at - first.at,
        exit_code=ended.facts.get("exit_code") if ended else None,
        text=last.text,
        accept_length=(last.facts.get("verdict") or {}).get("accept_length") if ended else None,
    )


def find(runs: Path, word: str) -> Path:
    """The folder of a run by its name, the beginning of it, or `last`. ConfigError where that is none or several."""
    known = [run.id for run in summaries(runs)]
    if not known:
        raise ConfigError(f"there are no runs in {runs}", remedy="deploy up records one")
    if word == "last":
        return runs / known[0]
    found = [word] if word in known else [run for run in known if run.startswith(word)]
    if len(found) == 1:
        return runs / found[0]
    what = f"{len(found)} runs begin with {word!r}" if found else f"there is no run {word!r}"
    raise ConfigError(what, evidence="\n".join(found[:10]), remedy="deploy history lists them")
