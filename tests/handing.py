"""What becomes of hand-overs of a draft's weights, whoever dies, refuses or does not answer: the same with the real
SGLang and with the fake one.

Whatever it is, the old draft serves wholly, or the new one wholly, or nobody is answered and the mark says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hotswap import Server, Stop, between, ended

PAUSE, CHECK, BEGIN = "/pause_generation", "/weights_checker", "/begin_weight_update"
UPDATE, END, FLUSH, RESUME = "/update_weights_from_tensor", "/end_weight_update", "/flush_cache", "/continue_generation"
SMALL = {"piece": 300_000}  # bytes: five pieces; the good and the dead draft differ from the second one on

Point = tuple[
    str, int, bool
]  # the how manieth question of that path, before the server heard of it or when it has obeyed
# Where the program is killed: (what is loaded then, whether the server is paused).
KILLED: dict[Point, tuple[str, bool]] = {
    (PAUSE, 1, False): ("dead", False),
    (PAUSE, 1, True): ("dead", True),
    (CHECK, 1, True): ("dead", True),
    (BEGIN, 1, True): ("dead", True),
    (UPDATE, 1, False): ("dead", True),
    (UPDATE, 3, True): ("a mixture", True),
    (UPDATE, 5, True): ("good", True),
    (END, 1, False): ("good", True),
    (END, 1, True): ("good", True),
    (CHECK, 2, True): ("good", True),
    (FLUSH, 1, True): ("good", True),
    (RESUME, 1, False): ("good", True),
    (RESUME, 1, True): ("good", False),
}
QUESTIONS = [(PAUSE, 1), (CHECK, 1), (BEGIN, 1), (UPDATE, 1), (UPDATE, 3), (END, 1), (CHECK, 2), (FLUSH, 1)]
WAYS = ("400", "500", "hang", "drop")  # of not doing as told, which the server may have done all the same
REFUSED = [(path, nth, way, obeyed) for path, nth in QUESTIONS for way in WAYS for obeyed in (False, True)]


@dataclass
class Drafts:
    """`dead`, `good` and `other` ones, alike in all but their values, and what a server tells of each."""

    paths: dict[str, Path]
    told: dict[str, dict[str, str]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]

    def is_loaded(self, server: Server) -> str:
        """Which of them, or `a mixture`."""
        checksums = server.checksums()
        return next((name for name, told in self.told.items() if told == checksums), "a mixture")

    def bring(self, server: Server, wanted: str) -> None:
        """Have it serve that one, and tell the checksums of each; what is loaded before may be a mixture."""
        for name in [*(name for name in self.paths if name not in self.told), wanted]:
            server.load(self[name])
            self.told.setdefault(name, server.checksums())
        assert self.is_loaded(server) == wanted


def through(port: int, server: Server, drafts: Drafts, **more: Any) -> dict[str, Any]:
    """What is asked of the program: the good draft for the dead one, by way of a proxy."""
    return server.request(drafts["good"], drafts["dead"], url=server.url(port), **more)


def serves_on(server: Server, drafts: Drafts) -> None:
    """The old draft, with nothing left of the attempt."""
    assert drafts.is_loaded(server) == "dead"
    assert server.post(END)[0] == 400, "an update was left open"
    assert (server.marker.exists(), server.left_in_memory(), server.paused()) == (False, [], False)


def killed(server: Server, drafts: Drafts, point: Point) -> None:
    """kill -9 of the program; the next one finds the mark, changes nothing, and takes away what lies in the memory."""
    path, nth, obeyed = point
    loaded, paused = KILLED[point]
    stop = Stop(path, nth, obeyed=obeyed)
    with between(server, stop, holds=True) as port, server.swapping(through(port, server, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        program.kill()
        program.wait()
        stop.becomes = "drop"
    assert (drafts.is_loaded(server), server.paused()) == (loaded, paused)
    assert server.marker.exists()
    assert len(server.left_in_memory()) == (path == UPDATE)

    told = server.swap(drafts["good"], drafts["dead"])
    assert (told["outcome"], "broke off" in told["why"], server.left_in_memory()) == ("torn", True, [])
    assert (drafts.is_loaded(server), server.marker.exists()) == (loaded, True)


def told_to_end(server: Server, drafts: Drafts, path: str, nth: int) -> None:
    """SIGTERM to the program, when the server has obeyed that question."""
    stop = Stop(path, nth, obeyed=True)
    with between(server, stop, holds=True) as port, server.swapping(through(port, server, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        program.terminate()
        told = ended(program)
    assert (told["outcome"], "SIGTERM" in told["why"]) == ("kept", True), told
    serves_on(server, drafts)


def refused(server: Server, drafts: Drafts, path: str, nth: int, way: str, obeyed: bool) -> None:
    """One question is answered otherwise, or not at all."""
    stop = Stop(path, nth, obeyed=obeyed, becomes=way)
    with between(server, stop) as port:
        told = server.swapped(through(port, server, drafts, patience=1.0, **SMALL))
    assert (told["outcome"], path in told["why"]) == ("kept", True), told["why"]
    assert told["checksums"] is None
    if (path, way, obeyed) == (BEGIN, "400", True):
        server.post(END)  # 400 says that another's update is open, which is not ours to end
    serves_on(server, drafts)


def cannot_be_put_back(server: Server, drafts: Drafts) -> None:
    """Tensors are refused from the second piece on, those of the old draft too: nobody is answered."""
    stop = Stop(UPDATE, 2, becomes="500", lasts=True)
    with between(server, stop) as port:
        told = server.swapped(through(port, server, drafts, **SMALL))
    assert (told["outcome"], "could not be taken back" in told["why"]) == ("torn", True), told["why"]
    assert (server.marker.exists(), server.paused(), server.left_in_memory()) == (True, True, [])
