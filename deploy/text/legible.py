"""Foreign text in words that are safe to show: what a host says may not steer the terminal, nor forge a line."""

from __future__ import annotations

import re

# Titles, links and clipboard writes (OSC), device strings (DCS, SOS, PM, APC), cursor and colours (CSI), the rest.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"
    r"|\x1b[PX^_][^\x1b\n]*\x1b\\"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
# One that has begun at the end of a text and is not whole yet.
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]{0,256}\x1b?|[ -/]*)\Z")
# Other control characters, those of the 8-bit set, and the ones that turn the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def clean(text: str) -> str:
    """Text without anything that steers a terminal; a line that was rewritten by carriage returns is its last state."""
    text = _ESCAPES.sub("", text)
    shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", shown).expandtabs(4))


def one_line(text: str, limit: int = 300) -> str:
    """Text as one clean line of at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
