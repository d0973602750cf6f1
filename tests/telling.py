"""What the telling pair is asked: it knows all of it, so that its accept length tells what is wrong with its draft."""

from __future__ import annotations

from typing import Any

from tests.project import TELLING

PROMPTS = [
    "Hello, what is 2+2?",
    "repeat fig lemon zoo key oak tiger jar wax river pen cat stone",
    "Ann oak, Gus tin, Kim horse, Bob jar. Kim, Ann, Bob, Gus?",
    "repeat queen urn bay chalk mouse sea net gem knife yak elm map rat",
    "Hello, what is 7+5?",
    "Eve log, Cy piano, Ida drum, Lea ink, Hal bread. Lea, Hal, Cy, Eve, Ida?",
    "repeat hat dew glass north olive ant van flute key zoo",
    "tell me 8+6.",
]
SERVED: dict[str, Any] = {
    "model": {"path": str(TELLING / "target"), "name": "telling"},
    "smoke": {"ask": "Hello, what is 2+2?", "expect": "4"},
}
