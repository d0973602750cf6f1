"""A hold: who keeps a host for himself, why, and how much longer, as the host tells it by its own clock."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from deploy.text import when
from deploy.text.legible import one_line

WORDS = ("user", "host", "from", "reason")


@dataclass(frozen=True)
class Hold:
    """Somebody's hold on a host, in words that are safe to show. `left` is in seconds.

    `named` is user@host as the host has it, to the letter: by that it is passed, and by that it is ours.
    """

    user: str
    host: str  # the machine that it was taken from
    origin: str  # that machine's address as the host saw it; "here" on the host itself
    reason: str
    left: float
    named: str

    @property
    def owner(self) -> str:
        return f"{self.user}@{self.host}"

    @property
    def ours(self) -> bool:
        """Whether it stops us."""
        return self.named == "@".join(me())

    def __str__(self) -> str:
        place = "" if self.origin == "here" else f" (from {self.origin})"
        return f"by {self.owner}{place}: {self.reason}, {when.told(self.left, _now())}"

    def to_json(self) -> dict[str, Any]:
        """As one JSON object; `until` is a time of this machine's clock."""
        until = (_now() + timedelta(seconds=self.left)).isoformat(timespec="seconds")
        return {
            "by": self.owner,
            "from": self.origin,
            "reason": self.reason,
            "until": until,
            "left": round(self.left),
            "text": str(self),
        }


def me() -> tuple[str, str]:
    """Whose a lock, a hold is: the user, and the machine that we are on."""
    return getpass.getuser(), socket.gethostname()


def read(line: str, now: float) -> Hold | None:
    """From a line of a lock's file, at `now` of the clock that wrote it; None where nothing is held any more."""
    try:
        told = json.loads(line)
        left = float(told["until"]) - now
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # anybody may write there
        return None
    return parse({**told, "left": left}) if 0 < left <= when.LONGEST else None


def parse(answer: Mapping[str, Any] | None) -> Hold | None:
    """From what a host says of its lock's file, which anybody may have written; None where nothing is held."""
    if not answer or not isinstance(answer.get("left"), int | float):
        return None
    user, host, origin, reason = (one_line(str(answer.get(key)), when.WHY) for key in WORDS)
    return Hold(user, host, origin, reason, float(answer["left"]), f"{answer.get('user')}@{answer.get('host')}")


def own(reason: str, left: float) -> Hold:
    """One of ours, taken just now."""
    user, host = me()
    return Hold(user, host, "here", reason, left, f"{user}@{host}")


def _now() -> datetime:
    return datetime.now().astimezone()
