"""The lines of a run's log since a place that have a word, as JSON: written.py FOLDER AT WORD.

AT is a place since the launch, as in log.py; without a WORD there are no lines. {"end": place behind the last whole
line, "lines": [...], "lost": bytes that were cut off before they could be read}. At most MOST of the last lines.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from deploy.host.log import Log

PIECE = 1 << 16
MOST = 20000  # lines


def ended(log: Log) -> int:
    """The place behind the last line that is whole."""
    oldest, end = log.ends()
    at = end
    while at > oldest:
        begin = max(oldest, at - PIECE)
        data = b"".join(log.pieces(begin, at, PIECE))
        if b"\n" in data:
            return begin + data.rindex(b"\n") + 1
        at = begin
    return oldest


def lines(log: Log, at: int, word: bytes) -> dict[str, Any]:
    found: list[bytes] = []
    begin, rest, lost = at, b"", 0
    while True:
        there, data = log.read(at, PIECE)
        if there > at:
            lost, rest = lost + there - at, b""
        if not data:
            break
        at = there + len(data)
        *whole, rest = (rest + data).split(b"\n")
        found = (found + [line for line in whole if word in line])[-MOST:]
    told = [line.decode(errors="replace") for line in found]
    return {"end": max(begin, at - len(rest)), "lines": told, "lost": lost}


def main(folder: str, at: str = "", word: str = "") -> None:
    log = Log(folder)
    try:
        answer = lines(log, int(at), word.encode()) if word else {"end": ended(log), "lines": [], "lost": 0}
    except OSError as error:
        answer = {"error": f"{error.filename}: {error.strerror}"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
