"""A model's answer as it comes: what is said on stdout, what is thought on stderr, so that a file has the answer."""

from __future__ import annotations

import os
from typing import TextIO

from deploy.render._sink import lost
from deploy.text.legible import UNFINISHED, clean

DIM, PLAIN = "\x1b[2m", "\x1b[22m"


class Speech:
    """Thoughts are dimmed on a terminal, else each line of them begins with a bar."""

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        self.dim = stderr.isatty() and not os.environ.get("NO_COLOR")
        self._outs = (stderr, stdout)
        self._open, self._held = [False, False], ["", ""]

    def thinks(self, text: str) -> bool:
        """Whether somebody still reads what is said."""
        return self._add(0, text)

    def says(self, text: str) -> bool:
        """The same."""
        if text and self._open[0]:
            self._close(0)
        return self._add(1, text)

    def close(self) -> None:
        """End the line that is open."""
        for number in (0, 1):
            self._close(number)

    def _add(self, number: int, text: str, *, last: bool = False) -> bool:
        whole = self._held[number] + text
        begun = None if last else UNFINISHED.search(whole)  # the rest of the sequence comes with the next piece
        self._held[number] = begun[0] if begun else ""
        if shown := clean(whole[: begun.start()] if begun else whole):
            self._write(number, shown)
        return lost(self._outs[1]) is None

    def _write(self, number: int, shown: str) -> None:
        if number == 0 and self.dim:
            shown = f"{DIM}{shown}{PLAIN}"
        elif number == 0:
            shown = ("" if self._open[0] else "| ") + shown.replace("\n", "\n| ")
        self._open[number] = True
        encoding = self._outs[number].encoding or "utf-8"
        self._outs[number].write(shown.encode(encoding, "replace").decode(encoding))
        self._outs[number].flush()

    def _close(self, number: int) -> None:
        self._add(number, "", last=True)
        if self._open[number]:
            self._outs[number].write("\n")
            self._outs[number].flush()
        self._open[number] = False
