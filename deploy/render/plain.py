"""One line per event worth reading, on stderr: for logs, CI and simple terminals."""

from __future__ import annotations

from typing import Final

from deploy.events import Event
from deploy.render import Screen
from deploy.render._lines import Line, Lines
from deploy.render._sink import Sink

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "dim": "2"}


class Plain:
    """Lines that stay true when they are read a week later; colours only on a terminal that wants them."""

    def __init__(self, screen: Screen) -> None:
        self.out = Sink(screen.stderr)
        self.lines = Lines(screen.verbosity)
        dull = screen.environ.get("NO_COLOR") or screen.environ.get("TERM") == "dumb"
        self.coloured = self.out.isatty() and not dull

    def on(self, event: Event) -> None:
        """Write the lines for this event."""
        for line in self.lines.of(event):
            self.out.write(self._painted(line) + "\n")
        self.out.flush()

    def close(self) -> None:
        """Nothing is held back."""

    def _painted(self, line: Line) -> str:
        code = _COLOURS.get(line.style)
        return f"\x1b[{code}m{line.text}\x1b[0m" if code and self.coloured else line.text


def view(screen: Screen) -> Plain:
    return Plain(screen)
