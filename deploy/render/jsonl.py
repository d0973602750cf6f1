"""The events as JSON lines on stdout, for programs."""

from __future__ import annotations

import json

from deploy.events import Event
from deploy.render import Screen
from deploy.render._sink import Sink


class JsonLines:
    """One event, one line, handed over at once; quiet when the reader has seen enough."""

    def __init__(self, screen: Screen) -> None:
        self.out = Sink(screen.stdout)

    def on(self, event: Event) -> None:
        """Write the event whole, whatever the verbosity."""
        self.out.write(json.dumps(event.to_json(), default=str) + "\n")
        self.out.flush()

    def close(self) -> None:
        """Nothing is held back."""


def view(screen: Screen) -> JsonLines:
    return JsonLines(screen)
