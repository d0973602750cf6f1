"""Events without what is secret in them, for whoever shows them or writes them down."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deploy.events import Event
from deploy.host import hide
from deploy.text import scrub

FOREIGN = ("log", "evidence", "files")  # facts that hold what a server said, and with it keys that nobody told us of


def masked(event: Event, secrets: Sequence[str]) -> Event:
    """The event with `***` for each secret, however it was quoted on its way here, and in a server's words for what is
    a secret by its name: SGLang logs `server_args=ServerArgs(..., api_key='...')` (0.5.8 to 0.5.23).
    """
    facts, forms = dict(event.facts), hide.forms(secrets)
    files = facts.pop("files", None)
    told = _all(facts, forms, foreign=False)
    if isinstance(files, Mapping):
        told["files"] = {_all(str(name), forms, foreign=True): _file(name, text, forms) for name, text in files.items()}
    elif files is not None:
        told["files"] = _all(files, forms, foreign=True)
    return replace(event, text=_hidden(event.text, forms) if forms else event.text, facts=told)


def _all(value: Any, forms: list[str], *, foreign: bool) -> Any:
    value = _unnamed(value, foreign=foreign)
    return _hidden(value, forms) if forms else value


def _file(name: str, text: Any, forms: list[str]) -> Any:
    """A file's text. JSON stays JSON: looked at as text, a quote within one of its strings would end what is hidden."""
    if not isinstance(text, str) or not name.endswith((".json", ".jsonl")):
        return _all(text, forms, foreign=not str(name).endswith(".yaml"))  # a profile is ours, and says what is secret
    try:
        for part in filter(None, text.split("\n")) if name.endswith(".jsonl") else [text]:
            json.loads(part)
    except (ValueError, RecursionError):
        return _all(text, forms, foreign=True)
    return _STRINGS.sub(lambda found: _string(found, forms), text)


# A key with what stands behind it where that is a string, or a string that is no key's. Numbers are left as they are:
# a measurement has many, and each of them looked at takes longer than all the rest of a run's record.
_STRING = r'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(rf"(?P<key>{_STRING})(?P<colon>\s*:\s*)(?P<value>{_STRING})?|{_STRING}")


def _string(found: re.Match[str], forms: list[str]) -> str:
    if found["key"] is None:
        return _literal(found[0], forms)
    value = _literal(found["value"], forms) if found["value"] else ""
    if value and scrub.is_secret(json.loads(found["key"])) and not scrub.says_nothing(json.loads(value)):
        value = json.dumps(hide.HIDDEN)
    return f"{_literal(found['key'], forms)}{found['colon']}{value}"


def _literal(text: str, forms: list[str]) -> str:
    said = json.loads(text)
    told = _all(said, forms, foreign=True)
    return text if told == said else json.dumps(told)


def _unnamed(value: Any, *, foreign: bool) -> Any:
    if isinstance(value, Mapping):
        return {name: _unnamed(item, foreign=foreign or name in FOREIGN) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unnamed(item, foreign=foreign) for item in value]
    return scrub.text(value) if foreign and isinstance(value, str) else value


def _hidden(value: Any, forms: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {_hidden(str(key), forms): _hidden(item, forms) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_hidden(item, forms) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return hide.HIDDEN if str(value) in forms else value
    return hide.hide(str(value), forms)
