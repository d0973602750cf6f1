"""The prompts that a profile wishes: a set that comes with the tool (one .jsonl a class), a file, or its own texts."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from deploy.errors import ConfigError
from deploy.measuring import prompts
from deploy.measuring.prompts import Set

MIXED = "mixed"


def wished(said: str | Sequence[str]) -> Set:
    """The set that `bench.prompts` names. ConfigError where there is none, or what is there is none."""
    if not isinstance(said, str):
        return Set(prompts.OWN_KIND, prompts.of_texts(said))
    if said.endswith((".jsonl", ".json")):
        return _file(Path(said).expanduser())
    files = shipped()
    if said == MIXED:
        return Set(MIXED, prompts.mixed({kind: _read(file, kind).prompts for kind, file in files.items()}))
    if said not in files:
        known = [MIXED, *files]
        close = difflib.get_close_matches(said, known, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}; or a .jsonl file"
        raise ConfigError(f"there is no set of prompts {said!r}", remedy=remedy)
    return _read(files[said], said)


def shipped() -> dict[str, Path]:
    """The files that come with the tool, {class: file}."""
    return {file.stem: file for file in sorted(Path(__file__).parent.glob("*.jsonl"))}


def _read(file: Path, kind: str) -> Set:
    return Set(kind, prompts.parse(file.read_text(encoding="utf-8"), file.name, kind))


def _file(file: Path) -> Set:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read", evidence=str(error), remedy="a relative path is the project's"
        ) from error
    return Set(file.name, prompts.parse(text, str(file)))
