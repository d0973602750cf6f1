"""A stream for people or programs that may go away: the run must not fail because nobody looks any more."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

# The views' own signs on a terminal that knows only ASCII; everything else becomes a question mark.
_ASCII = str.maketrans("✓✗…·→━─⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "+x..>=-|/-\\|/-\\|/")


class Lasting(io.FileIO):
    """A standard stream of the process. What its other end refuses is lost, is known to be, and ends nothing."""

    lost: OSError | None = None
    written = 0  # bytes that were handed over

    def write(self, data: Any) -> int:
        try:
            count = super().write(data)
        except OSError as error:  # EPIPE: `| head` has seen enough; ENOSPC: a full disk; EIO: the terminal was closed
            self.lost = error
            _point_at_nothing(self.fileno())
            return memoryview(data).nbytes
        self.written += count or 0
        return count


def guard() -> None:
    """Make stdout and stderr outlast their readers. One that was closed (`2>&-`) is /dev/null from now on: otherwise
    the next file that is opened would get its number, and what a child writes.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115, PTH123
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
        elif name != "stdin" and stream is getattr(sys, f"__{name}__"):  # not one that a caller put there
            setattr(sys, name, _lasting(stream))


def _lasting(stream: TextIO) -> io.TextIOWrapper:
    stream.flush()
    raw = Lasting(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
        write_through=bool(getattr(stream, "write_through", False)),
    )


def lost(stream: TextIO) -> OSError | None:
    """Why what was written to a guarded stream did not arrive; None where it did."""
    raw = _raw(stream)
    return raw.lost if raw else None


def written(stream: TextIO) -> bool:
    """Whether anything was written to a guarded stream."""
    raw = _raw(stream)
    return bool(raw and (raw.written or raw.lost))


def _raw(stream: TextIO) -> Lasting | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, Lasting) else None


def _point_at_nothing(descriptor: int) -> None:
    # Whatever else writes to the stream, and the interpreter's last flush (exit code 120), finds it open.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


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
            with suppress(OSError):  # a stream without a descriptor has nothing to write at the end
                _point_at_nothing(self.stream.fileno())
