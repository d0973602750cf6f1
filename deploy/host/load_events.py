"""What a streamed answer says, from its pieces and their times: text, tokens of each chunk, why it ended.

Server-sent events: an event may have several lines of data; lines end with LF, CR or both; a piece may end anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

ENDS = re.compile(rb"\r\n|\n|\r(?!\Z)")  # what follows a carriage return may still be on its way
GIVEN_UP = ("abort", "error")  # SGLang's and vLLM's words for answers that they did not bring to their end
BULKY = ("text", "output_ids", "choices")  # of a merged answer, what nobody asks for


def events_of(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """(time, its JSON object) of each event up to [DONE]; {"error": ...} for one that is none."""
    event = b""
    for now, name, value in fields_of(pieces):
        if name in (b"data", b"error"):
            event = event + b"\n" + value if event else value
            if event.strip() == b"[DONE]":
                return
            found = parsed_event(event)
            if found is not None:
                event = b""
                yield now, {"error": found} if name == b"error" else found
        elif event and not name:  # a blank line ends an event
            break
    if event:
        yield pieces[-1][0], {"error": f"an event is no JSON object: {event[:300]!r}"}


def fields_of(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes, bytes]]:
    """(time at which it was whole, name, value) of each line; a blank one has no name, a comment is left out."""
    rest = b""
    for now, piece in pieces:
        *lines, rest = ENDS.split(rest + piece)
        for line in lines:
            if not line.startswith(b":"):
                name, _, value = line.partition(b":")
                yield now, name, value
    if rest.strip():
        name, _, value = rest.rstrip(b"\r").partition(b":")
        yield pieces[-1][0], name, value


def parsed_event(event: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(event)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def at_path(document: Any, path: list[str]) -> Any:
    """What stands there; None where nothing does."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def count_at(document: Any, path: list[str]) -> int | None:
    found = at_path(document, path) if path else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def choice_of(event: dict[str, Any]) -> dict[str, Any]:
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def added(event: dict[str, Any], said: str) -> str:
    """The text that an event adds: of a chat's delta its thoughts and words, or of a text that is told whole each time
    what is new in it.
    """
    whole = event.get("text")
    if isinstance(whole, str):
        return whole[len(said) :]
    delta = choice_of(event).get("delta")
    if not isinstance(delta, dict):
        return ""
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    return "".join(word for word in (thought, delta.get("content")) if isinstance(word, str))


def ended_with(event: dict[str, Any]) -> str:
    """Why the answer ends: stop, length, ...; "" where it goes on."""
    reason = choice_of(event).get("finish_reason") or at_path(event, ["meta_info", "finish_reason"])
    reason = reason.get("type") if isinstance(reason, dict) else reason
    return reason if isinstance(reason, str) else ""


def complaint(event: dict[str, Any]) -> str:
    """What an event says went wrong; "" where nothing did."""
    if not event.get("error") and event.get("object") != "error":
        return ""
    error = event.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    words = str(message or event.get("message") or error or "without a word")
    return f"the server gives up: {words[:500]}"


def read_stream(pieces: list[tuple[float, bytes]], began: float, tokens: list[str]) -> dict[str, Any]:
    """{text, finish, error, told, chunks: [[seconds, tokens so far or null, whether it has text], ...]}.

    `tokens`: the path of the count of tokens so far in an event; `told`: what the events say, the last word of each.
    """
    said, finish, error = "", "", ""
    told: dict[str, Any] = {}
    chunks: list[tuple[float, int | None, bool]] = []
    for now, event in events_of(pieces):
        error = error or complaint(event)
        more = added(event, said)
        said += more
        finish = ended_with(event) or finish
        told.update({name: value for name, value in event.items() if value is not None})
        count = count_at(event, tokens)
        if more or count:
            chunks.append((round(now - began, 7), count, bool(more)))
    for name in BULKY:
        told.pop(name, None)
    if not error and finish in GIVEN_UP:
        error = f"the server gives up: it ends the answer with {finish!r}"
    if not error and not finish:
        error = "the answer stops half-way"
    return {"text": said, "finish": finish, "error": error, "told": told, "chunks": chunks}
