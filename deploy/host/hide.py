"""Hide secrets in text, however they were quoted on their way: a part of programs, and of the record.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

HIDDEN = "***"
EDGE = 6  # characters: fewer of a secret are no secret
CUT = " .\u2026'\""  # what stands behind a text that was cut to length


def forms(secrets: Iterable[str]) -> list[str]:
    """How the secrets may stand in a text, the longest first: one may be a part of another."""
    return sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)


def _forms(secret: str) -> Iterable[str]:
    # A key of several lines may come back a line at a time, in the tail of a log.
    parts = {secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= EDGE)}
    quoted = {json.dumps(part)[1:-1] for part in parts} | {json.dumps(part, ensure_ascii=False)[1:-1] for part in parts}
    quoted |= {part.replace("'", escaped) for part in parts for escaped in ("'\"'\"'", "'\\''")}
    quoted |= {repr(part)[1:-1] for part in parts}
    quoted |= {
        quoting(part, safe=safe, errors="replace")
        for part in parts
        for quoting in (quote, quote_plus)
        for safe in ("", "/")
    }
    return {form for form in parts | quoted if form.strip()}


def hide(text: str, forms: Iterable[str]) -> str:
    """The text with `***` in the place of each form, and of what is left of one where a line was cut off."""
    forms = list(forms)
    text = _without(text, forms)
    return "\n".join(_without_edges(line, forms) for line in text.split("\n")) if forms else text


def _without(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, HIDDEN)
    return text


def _without_edges(line: str, forms: list[str]) -> str:
    """A line without the end of a form at its beginning, and the beginning of one at its end."""
    for form in forms:
        for size in range(len(form) - 1, EDGE - 1, -1):
            if line.startswith(form[-size:]):
                line = HIDDEN + line[size:]
        end = line.rstrip(CUT)
        for size in range(len(form) - 1, EDGE - 1, -1):
            if end.endswith(form[:size]):
                line = end[:-size] + HIDDEN + line[len(end) :]
                break
    return line


class Flow:
    """Text that comes in pieces: what may be the beginning of a form is kept back until more of it has come."""

    def __init__(self, forms: list[str]) -> None:
        self.forms, self.rest = forms, ""

    def add(self, text: str) -> str:
        """What may be shown now."""
        whole = _without(self.rest + text, self.forms)
        kept = max((_begun(whole, form) for form in self.forms), default=0)
        self.rest = whole[len(whole) - kept :]
        return whole[: len(whole) - kept]

    def end(self) -> str:
        """What was kept back."""
        rest, self.rest = self.rest, ""
        return hide(rest, self.forms)


def _begun(text: str, form: str) -> int:
    """How many characters at the end of the text may be the beginning of the form."""
    return next((size for size in range(min(len(form) - 1, len(text)), 0, -1) if text.endswith(form[:size])), 0)
