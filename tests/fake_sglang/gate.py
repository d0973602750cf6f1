"""Who may generate and when: SGLang's pause, and its lock between requests and updates of weights."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import contextlib
import threading
import time

MODES = ("abort", "retract", "in_place")


class Aborted(Exception):
    """The request that was running is ended by a pause of mode `abort`."""


class Gate:
    """Requests pass one by one; paused, new ones wait before it and running ones stand still.

    As tokenizer_manager.py (is_pause_cond, model_update_lock) and scheduler.py (_engine_paused) of 0.5.23 together.
    """

    def __init__(self):
        self.changed = threading.Condition()
        self.mode = ""  # that of the pause; "": not paused
        self.running = 0
        self.writing = 0  # updates that wait for requests, or run: they go first, as RWLock has it
        self.aborts = 0

    @contextlib.contextmanager
    def request(self):
        """One request from its turn to its end."""
        with self.changed:
            self.changed.wait_for(lambda: not self.mode and not self.writing)
            self.running += 1
            born = self.aborts
        try:
            yield lambda seconds: self._works(seconds, born)
        finally:
            with self.changed:
                self.running -= 1
                self.changed.notify_all()

    def _works(self, seconds, born):
        """Take so long, not counting pauses. Raises Aborted."""
        with self.changed:
            while True:
                if self.aborts > born:
                    raise Aborted
                began = time.monotonic()
                if self.mode:
                    self.changed.wait()
                elif self.changed.wait_for(lambda: self.mode or self.aborts > born, min(seconds, 3600)):
                    seconds -= time.monotonic() - began
                else:
                    return

    def passes(self, seconds):
        """Whether a request that comes now gets its turn within so many seconds, as /health_generate tries it."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.mode and not self.writing, seconds)

    def pause(self, mode):
        with self.changed:
            self.mode = mode
            self.aborts += mode == "abort"
            self.changed.notify_all()
            if mode == "abort":
                self.changed.wait_for(lambda: not self.running)

    def resume(self):
        with self.changed:
            self.mode = ""
            self.changed.notify_all()

    @contextlib.contextmanager
    def update(self):
        """Where it is not paused, an update waits until no request runs, and requests wait for it."""
        with self.changed:
            waits = not self.mode
            self.writing += waits
            self.changed.wait_for(lambda: not waits or not self.running)
        try:
            yield
        finally:
            with self.changed:
                self.writing -= waits
                self.changed.notify_all()

    def idle(self):
        """Whether the cache may be flushed: those that were retracted wait in the queue and hold none of it."""
        with self.changed:
            return not self.running or self.mode == "retract"
