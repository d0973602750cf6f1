"""Exchange the weights of the draft in a running server, or leave it as it was.

Runs on the host as `python3 -I -c SOURCE`, standard library only, Python 3.8 and later. On stdin one JSON object:

    {"lock": path, "token": its first line while it is ours, "server": the server's folder, "new": the run's id,
     "url": "http://127.0.0.1:30000", "keys": [API keys, the likeliest first], "patience": seconds for an answer (120),
     "piece": bytes that are handed over at once (512 MiB),
     "ranks": 1, "draft": folder or file of the new draft, "before": of the one that is loaded,
     "loaded": {parameter: checksum} as they were when that run began, or null,
     "sent": {tensor: the parameter it fills}, of those that are handed over: nothing that is the target's,
     "api": the table's (deploy/engines/_sglang_swap.py),
     "record": the file for the new checksums, "links": [[target, path], ...]: made once it is proven what is loaded,
     "expected": {parameter: checksum} as a start with this draft gave, or null}

and one on stdout: {"outcome", "why", "checksums", "before": those before, "bytes": handed over, "seconds": {"read",
"checked", "sent", "paused"}}. Outcomes: `swapped`; `kept`: it serves on with the draft that it had, whose checksums are
as before, or nothing was sent; `torn`: what is loaded is not known, or it does not go on: `swap.json` in its folder
says so, and it stays paused; `lapsed`: the lock was lost, and all is left as it stands.

The mark is written before the server is asked for anything, and removed last. A signal that ends us is a failure like
any other: the old draft is put back.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from typing import Any

from deploy.host.swap_mark import Fence, Lapsed, Mark, link, write
from deploy.host.swap_proof import Differing, Unproven, differing, prove
from deploy.host.swap_reach import obstacle
from deploy.host.swap_server import Server, Silent, Unasked
from deploy.host.swap_shm import PIECE, Piece, Unfit, Weight, pieces, room, sweep, unlike, weights
from deploy.host.swap_talk import Talk

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ended(Exception):
    """We were told to end."""


class Torn(Exception):
    """An earlier hand-over broke off here."""


class Handover:
    """One exchange; what was done of it so far."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.fence = Fence(request["lock"], request["token"])
        server = Server(request["url"], request["keys"], request["api"], request.get("patience", 120.0))
        self.talk = Talk(server, self.fence, request["ranks"])
        self.mark = Mark(request["server"])
        self.new: dict[str, Weight] = {}
        self.old: dict[str, Weight] = {}
        self.sent: dict[str, str] = request["sent"]
        self.differing = Differing(frozenset(), frozenset())
        self.parts: list[Piece] = []
        self.limit = PIECE
        self.before: dict[str, str] | None = None
        self.checksums: dict[str, str] | None = None
        self.bytes = 0

    def over(self) -> tuple[str, str]:
        """The outcome, and why it is no better."""
        try:
            self.fence.check()
            self._ready()
        except Lapsed:
            return "lapsed", "the lock is not ours any more; nothing was begun"
        except Torn as error:
            return "torn", str(error)
        except (Unfit, OSError, Ended) as error:
            return "kept", _words(error)
        try:
            return self._exchanged()
        except Lapsed:
            return "lapsed", "the lock is not ours any more; the server was left paused, as it stood"
        finally:
            for piece in self.parts:
                piece.close()
            sweep(self.talk.prefix)  # a signal may have come between a name and its removal

    def _exchanged(self) -> tuple[str, str]:
        try:
            self._forward()
        except Lapsed:
            raise
        except Exception as error:  # noqa: BLE001 whatever it is, no mixture may serve
            return self._taken_back(_words(error))
        try:
            self._go_on()
        except (Silent, Unasked, OSError) as error:
            return "torn", f"the new draft is loaded, but the server does not go on: {_words(error)}"
        return "swapped", ""

    def _taken_back(self, why: str) -> tuple[str, str]:
        _deaf()
        self.checksums = None
        try:
            self._back()
        except Lapsed:
            raise
        except Exception as error:  # noqa: BLE001
            return "torn", f"{why}; and it could not be taken back: {_words(error)}"
        return "kept", why

    # ---- before the server is touched ----------------------------------------------------------------------------

    def _ready(self) -> None:
        """Both drafts are there, alike, and there is room; where there is plenty, all of the new one is read ahead."""
        found = self.mark.there()
        if found is not None:
            sweep(str(found.get("shm", "")))
            raise Torn("an earlier hand-over to this server broke off, and what is loaded is not known")
        told = obstacle(self.request["server"])
        if told:
            raise Unfit(told)
        with self.talk.timed("read"):
            self.new, self.old = (weights(self.request[which], self.sent) for which in ("draft", "before"))
            told = unlike(self.new, self.old)
            if told:
                raise Unfit(told)
            self.differing = differing(self.new, self.old)
            free = room()
            self.limit = min(self.request.get("piece", PIECE), free // 2)
            self.parts = pieces(self.new, self.limit)
            largest = max(piece.size for piece in self.parts)
            if largest + (1 << 20) > free:
                raise Unfit(f"{largest >> 20} MiB of shared memory are needed at once, and {free >> 20} are free")
            if sum(piece.size for piece in self.parts) <= free // 2:
                for piece in self.parts:
                    piece.fill()

    # ---- there ---------------------------------------------------------------------------------------------------

    def _forward(self) -> None:
        self.fence.check()
        self.mark.write(new=self.request["new"], shm=self.talk.prefix, since=time.time())
        self.fence.goes_on = True  # who asked for it may die meanwhile, and a server stay paused for nothing
        self.talk.pause()
        self.before = self.talk.loaded()
        if self.request["loaded"] not in (None, self.before):
            raise Unproven("other weights are loaded than those of the run before: somebody else has exchanged them")
        self.talk.begin()
        for piece in self.parts:
            self.talk.hand(piece)
            self.bytes += piece.taken
        self.talk.end()
        self.checksums = self.talk.loaded()
        prove(self.checksums, self.before, self.request["expected"], self.sent, self.differing)
        _deaf()  # what is left takes no time
        self.talk.change("flush")
        self.fence.check()
        write(self.request["record"], {"checksums": self.checksums})  # of a client that is gone, nobody else would
        link(self.request["links"])

    def _go_on(self) -> None:
        self.talk.resume()
        self.fence.check()
        self.mark.remove()

    # ---- and back ------------------------------------------------------------------------------------------------

    def _back(self) -> None:
        """Have it serve as before, whatever was done so far."""
        if self.talk.sent:
            self._put_back()
        elif self.talk.update != "closed":
            self.talk.end(or_none=True)
        if self.talk.paused:
            self.talk.resume()
        self.fence.check()
        self.mark.remove()

    def _put_back(self) -> None:
        for piece in self.parts:
            piece.close()
        if self.talk.update != "open":
            self.talk.begin(or_open=self.talk.update == "unknown")
        for piece in pieces(self.old, self.limit):
            self.talk.hand(piece)
        self.talk.end()
        if self.talk.loaded() != self.before:
            raise Unproven("the old draft was sent again, and yet other weights are loaded than before")
        with contextlib.suppress(Unasked, Silent):  # what it keeps is of the old draft: nothing was generated since
            self.talk.change("flush")


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        path = error.filename2 or error.filename
        return f"{path}: {error.strerror}" if path else error.strerror
    return str(error) or type(error).__name__


def _deaf() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _told_to_end(number: int, _: object) -> None:
    _deaf()
    raise Ended(f"this program was told to end ({signal.Signals(number).name})")


def main() -> None:
    for number in ENDING:
        signal.signal(number, _told_to_end)
    handover = Handover(json.load(sys.stdin))
    outcome, why = handover.over()
    _deaf()
    told = {name: getattr(handover, name) for name in ("checksums", "before", "bytes")}
    print(json.dumps({"outcome": outcome, "why": why, **told, "seconds": handover.talk.seconds}))


main()
