"""Events without what is secret in them, for whoever shows them or writes them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deploy import scrub
from deploy.events import Event
from deploy.host import hide

FOREIGN = ("log", "evidence", "files")  # facts that hold what a server said, and with it keys that nobody told us of


def masked(event: Event, secrets: Sequence[str]) -> Event:
    """The event with `***` for each secret, however it was quoted on its way here, and in a server's words for what is
    a secret by its name: SGLang logs `server_args=ServerArgs(..., api_key='...')` (0.5.8 to 0.5.23).
    """
    facts = _unnamed(event.facts, foreign=False)
    forms = hide.forms(secrets)
    if not forms:
        return replace(event, facts=facts)
    return replace(event, text=_hidden(event.text, forms), facts=_hidden(facts, forms))


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
