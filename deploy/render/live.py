"""The run as a grid that moves, on stderr; what is left when it ends is worth keeping."""

from __future__ import annotations

import time
from typing import TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live as Moving
from rich.text import Text

from deploy.events import Event
from deploy.render import Screen
from deploy.render._ending import details, ending, verdict
from deploy.render._grid import Grid
from deploy.render._lines import Lines
from deploy.render._sink import Sink
from deploy.render._state import State, fold, left


class Live:
    """Folds the events; the terminal pulls what it shows, so a burst of events costs nothing to draw."""

    def __init__(self, screen: Screen) -> None:
        self.console = console_on(screen)
        self.lines = Lines(screen.verbosity) if screen.verbosity > 0 else None
        self.state = State()
        self.heard = time.monotonic()
        self.over = False
        # stdout is data and is left alone; what a library writes to stderr appears above the grid.
        self.moving = Moving(
            console=self.console, get_renderable=self.grid, refresh_per_second=8, redirect_stdout=False
        )

    def grid(self) -> RenderableType:
        """The state now; a replay's clock goes on from its latest event."""
        state = self.state
        if self.over or state.ended:
            return Grid(state, state.at)
        # While it moves the cursor stands on an empty line: a key that the terminal echoes, as ^C, behind a line that
        # is full would begin a new one, and the grid would be redrawn one too low.
        return Group(Grid(state, state.at + time.monotonic() - self.heard), Text())

    def on(self, event: Event) -> None:
        """Take the event in, and tell it above the grid where everything said is wanted."""
        self.state = fold(self.state, event)
        self.heard = time.monotonic()
        if not self.moving.is_started and not self.over:
            self.moving.start(refresh=True)
            self.console.show_cursor(True)  # a killed client could not bring it back
        if self.lines:
            for line in self.lines.of(event):
                self.console.print(Text(line.text, line.style))
        if event.kind == "run_ended":
            self.close()

    def close(self) -> None:
        """Leave the last grid, and tell below it how the run ended."""
        if self.over:
            return
        self.over = True
        self.state = left(self.state)
        if self.moving.is_started:
            self.moving.stop()
            self.console.print(ending(self.state))


def console_on(screen: Screen, stream: TextIO | None = None) -> Console:
    """A console on stderr (or `stream`) that takes no markup, no emoji codes and no guesses out of what hosts say."""
    sink = cast("TextIO", Sink(stream or screen.stderr))
    return Console(file=sink, markup=False, emoji=False, highlight=False, _environ=screen.environ)


def still(state: State, screen: Screen) -> None:
    """How a run ended, and the picture that it left behind, on stdout."""
    console = console_on(screen, screen.stdout)
    if state.ended is None:
        console.print(Text("… the record ends early: its client was killed, or is still at it", "yellow"))
    console.print(verdict(state), Grid(left(state), state.at), details(state))


def view(screen: Screen) -> Live:
    return Live(screen)
