"""A stream for people or programs that may go away: the run must not fail because nobody looks any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

# The views' own signs on a terminal that knows only ASCII; everything else becomes a question mark.
_ASCII = str.maketrans("✓✗…·→━─⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "+x..>=-|/-\\|/-\\|/")


class Sink:
    """As much of a text stream as a view and `rich` need; quiet once the other end is closed."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.gone = False
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write what the stream's encoding can tell."""
        if not self.encoding.lower().startswith("utf"):
            text = text.translate(_ASCII).encode(self.encoding, "replace").decode(self.encoding)
        if not self.gone:
            self._guarded(lambda: self.stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Hand over what was written."""
        if not self.gone:
            self._guarded(self.stream.flush)

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return not self.gone and self.stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self.stream.fileno()

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:  # EPIPE: `| head` has seen enough; EIO: the terminal was closed
            self.gone = True
            self._point_at_nothing()

    def _point_at_nothing(self) -> None:
        # Whatever else writes to the stream, and the interpreter's last flush (exit code 120), finds it open.
        try:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.stream.fileno())
            os.close(nothing)
        except OSError:  # a stream without a descriptor has nothing to write at the end
            return
