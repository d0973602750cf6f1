"""llama.cpp's log: what a line tells about the start."""

from __future__ import annotations

import re

from deploy.engines import _log, _phases
from deploy.engines._log import Progress
from deploy.engines._phases import Order

STAMP = re.compile(r"^(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")  # minutes, seconds, ms, us since it was started

# load_tensors and the warm-up are told from verbosity 4 on; the default is 3.
MARKS = _log.mark_rows(
    ("starting", "", "", r"\binit: initializing \.\.\.", "starting"),
    ("weights", "target", "begin", r"load_model: loading model '(?P<path>[^']*)'", "loading {path}"),
    ("weights", "draft", "begin", r"loading draft model '(?P<path>[^']*)'", "loading {path}"),
    ("weights", "", "", r"load_tensors: loading model tensors", "loading tensors"),
    (
        "weights",
        "",
        "",
        r"offloaded (?P<done>\d+)/(?P<total>\d+) layers to GPU",
        "{done} of {total} layers on the GPU",
    ),
    ("warm-up", "", "", r"warming up the model", "first run"),
    ("slots", "", "", r"load_model: initializing, n_slots = (?P<slots>\d+)", "{slots} slots"),
    ("http", "", "", r"(?:init|main): model loaded", "model loaded"),
    ("ready", "", "end", r"listening on (?P<url>https?://\S+)", "listening on {url}"),
)

# One of these is in every line that a mark is made for.
WORDS = (
    *("init: initializing", "loading model", "loading draft model", "layers to GPU", "warming up the model"),
    *("initializing, n_slots", "model loaded", "listening on http"),
)

ORDERS = _phases.orders(("0", "starting, target weights, warm-up, draft weights, slots, http, ready"))


def order(version: str | None) -> Order:
    """The phases of its start."""
    return _phases.order(ORDERS, version)


def marks(line: str) -> list[Progress]:
    """What a line of the log tells about how far the server is."""
    return [step for part in _log.lines(line) if (step := _log.marked(MARKS, part, at=_since_start(part)))]


def _since_start(line: str) -> float | None:
    found = STAMP.match(line)
    return int(found[1]) * 60 + int(found[2]) + int(found[3]) / 1e3 + int(found[4]) / 1e6 if found else None


def progress(line: str) -> Progress | None:
    """The last of its `marks`; None where it says nothing."""
    return next(reversed(marks(line)), None) if any(word in line for word in WORDS) else None
