"""What people and programs see of a run: each view is a reader of the event stream, one a file.

A view's file has `view(screen) -> View`; stdout is for programs, stderr is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TextIO

from deploy import registry
from deploy.events import Event
from deploy.render._sink import guard, lost, written
from deploy.render._speech import Speech
from deploy.render._state import State, fold
from deploy.render._words import doing, number, seconds, what
from deploy.text.legible import clean, one_line

__all__ = [
    "Output", "Screen", "Silent", "Speech", "State", "View", "choose", "clean", "doing", "fold", "guard",
    "live_terminal", "lost",
    "number", "one_line", "seconds", "what", "written",
]  # fmt: skip

Output = Literal["auto", "live", "plain", "jsonl", "json", "quiet"]


class View(Protocol):
    """A reader of the event stream. `on` never fails because the terminal or the pipe went away."""

    def on(self, event: Event) -> None:
        """Take the next event."""

    def close(self) -> None:
        """Leave the terminal as it was; may be called twice."""


@dataclass(frozen=True)
class Screen:
    """Where a view writes, and how much: -1 failures and the end, 0 what matters, 1 all that is said, 2 log lines."""

    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    verbosity: int = 0


class Silent:
    """The view of nobody: with `--json -q` the final document is all there is."""

    def on(self, event: Event) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing was opened."""


def choose(*, output: Output, verbosity: int, environ: Mapping[str, str], stdout: TextIO, stderr: TextIO) -> View:
    """The view for this terminal and these options; an `output` that does not exist is a ConfigError."""
    screen = Screen(stdout, stderr, environ, verbosity)
    if output == "json" and verbosity < 0:
        return Silent()
    if output == "quiet":
        screen = replace(screen, verbosity=-1)
    shown: View = registry.load("deploy.render", _name(output, screen), "view").view(screen)
    return shown


def _name(output: Output, screen: Screen) -> str:
    if output in ("json", "quiet"):
        return "plain"
    if output != "auto":
        return output
    return "live" if screen.verbosity >= 0 and _can_redraw(screen) else "plain"


def _can_redraw(screen: Screen) -> bool:
    return live_terminal(screen, screen.stderr)


def live_terminal(screen: Screen, stream: TextIO) -> bool:
    """Whether what was written to the stream can be drawn over."""
    environ = screen.environ
    in_ci = environ.get("CI", "").lower() not in ("", "0", "false")
    return stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb", "unknown") and not in_ci
