"""llama.cpp's log: what a line tells about the start, and what killed the server."""

from __future__ import annotations

import re
from typing import cast

from deploy.engines import _log
from deploy.engines._llamacpp_failures import FAILURES
from deploy.engines._log import Component, Explanation, Progress, Seen

# load_tensors and the warm-up are told from verbosity 4 on; the default is 3.
MARKS = tuple(
    (phase, cast("Component", component), re.compile(line), text)
    for phase, component, line, text in (
        ("starting", "", r"\binit: initializing \.\.\.", "starting"),
        ("weights", "target", r"load_model: loading model '(?P<path>[^']*)'", "loading {path}"),
        ("weights", "draft", r"loading draft model '(?P<path>[^']*)'", "loading {path}"),
        ("weights", "", r"load_tensors: loading model tensors", "loading tensors"),
        ("weights", "", r"offloaded (?P<done>\d+)/(?P<total>\d+) layers to GPU", "{done} of {total} layers on the GPU"),
        ("warm-up", "", r"warming up the model", "first run"),
        ("slots", "", r"load_model: initializing, n_slots = (?P<slots>\d+)", "{slots} slots"),
        ("http", "", r"(?:init|main): model loaded", "model loaded"),
        ("ready", "", r"listening on (?P<url>https?://\S+)", "listening on {url}"),
    )
)

SIGNATURES = _log.table(FAILURES)
DRAFT_FAILED = "failed to load draft model"


def progress(line: str) -> Progress | None:
    """What a line of the log says about how far the server is; None where it says nothing."""
    return _log.marked(MARKS, line)


def explain(log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why the server died; None where the log shows no failure."""
    lines = _log.lines(log)
    explanation = _log.first_cause(lines, (*seen.known, *SIGNATURES), progress, _log.first_traceback(lines))
    if explanation and DRAFT_FAILED in log and DRAFT_FAILED not in explanation.evidence:
        return _log.about("the draft", explanation)
    return explanation
