"""How far a server is with its start, told from its log's lines as they come."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.plan import Node
from deploy.remote import Remote

SHOWN = 20  # lines of what came at once: a server may write faster than anybody reads


class Loading:
    """A start on its way; it says what each line tells."""

    def __init__(self, node: Node, remote: Remote) -> None:
        self._node, self._remote = node, remote

    def hear(self, lines: Sequence[str]) -> None:
        """What came of the log at once."""
        for line in lines[-SHOWN:]:
            self._say(line)

    def _say(self, line: str) -> None:
        found = self._node.engine.progress(line)
        if not found:
            self._remote.say("", log=line)
            return
        counted = {"done": found.done, "total": found.total}
        self._remote.say(found.text, phase=found.phase, component=found.component, log=line, **counted)
