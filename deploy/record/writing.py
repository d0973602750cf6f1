"""The record as it is written: each event is on disk before the next one is taken; what a run files becomes files."""

from __future__ import annotations

import json
import os
import re
import secrets as entropy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TextIO

from deploy.errors import DeployError
from deploy.events import GONE_BACK, Event
from deploy.record.mask import masked
from deploy.record.reading import EVENTS

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


def host_folder(folder: Path, host: str) -> Path:
    """Where the run in `folder` files what is of this host; its name need not be one of a file."""
    return folder / "hosts" / re.sub(r"^\.|[^\w.-]", "_", host or "_")


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
        above = host_folder(self.folder, event.host)
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
