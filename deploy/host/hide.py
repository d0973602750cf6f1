"""Hide secrets in text, however they were quoted on their way: a part of programs, and of the record.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

HIDDEN = "***"


def forms(secrets: Iterable[str]) -> list[str]:
    """How the secrets may stand in a text, the longest first: one may be a part of another."""
    return sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)


def _forms(secret: str) -> Iterable[str]:
    # A key of several lines may come back a line at a time, in the tail of a log.
    parts = {secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= 8)}
    quoted = {json.dumps(part)[1:-1] for part in parts} | {json.dumps(part, ensure_ascii=False)[1:-1] for part in parts}
    quoted |= {part.replace("'", "'\"'\"'") for part in parts} | {repr(part)[1:-1] for part in parts}
    quoted |= {quote(part, safe="", errors="replace") for part in parts}
    return {form for form in parts | quoted if form.strip()}


def hide(text: str, forms: Iterable[str]) -> str:
    """The text with `***` in the place of each form."""
    for form in forms:
        text = text.replace(form, HIDDEN)
    return text
