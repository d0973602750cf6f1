"""How llama.cpp's log is read for failures, and what its silences mean."""

from __future__ import annotations

import re
from dataclasses import replace

from deploy.engines import _explain, _log, _table
from deploy.engines._dialect import Dialect
from deploy.engines._llamacpp_failures import FAILURES
from deploy.engines._llamacpp_log import progress
from deploy.engines._log import Explanation, Seen

# In the form of _sglang_failures.py.
SILENCES = r"""
weights?  load_tensors|load_model: loading model|loading draft model
    the file comes slowly or not at all: the disk, or a network file system
    -> see iostat on the host; ready.stall=1800 where the disk is just slow; args.no-mmap=true reads it in order
warm-up?  warming up the model
    its first run takes long: a large model on the CPU, or too little memory for it
    -> args.no-warmup=true, and see free on the host
import?  ^$
    it has said nothing at all: it is loaded itself, from a slow disk perhaps
    -> see whether engine.binary or engine.python lies on a network file system
"""

FATAL = re.compile(r"exiting due to model loading error|couldn't bind HTTP server socket")
DRAFT_FAILED = "failed to load draft model"

DIALECT = Dialect(
    rows=_table.rows(FAILURES + SILENCES),
    progress=progress,
    own=re.compile(r"\bllama_\w+|\bsrv +\w+:|\bggml_\w+|\bgguf_\w+"),
    begin=re.compile(r"\bbuild_info: |^build: \d+", re.MULTILINE),
    chatter=re.compile(r"[\d.]+ I (?:slot|srv) +(?:update_slots|release|log_server_r)"),
)


def explain(log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why the server died, or why it is silent; None where nothing shows a failure."""
    told = _explain.explain(DIALECT, log, seen)
    if told and DRAFT_FAILED in log and DRAFT_FAILED not in told.evidence:
        return replace(told, cause=f"the draft: {told.cause}")
    return told
