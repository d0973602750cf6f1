"""What the fake server does, and does wrong: the one place that names it."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import dataclasses
import json
import os
import sys

from fake_sglang.interpreter import VERSION  # type: ignore[import-not-found]


@dataclasses.dataclass(frozen=True)
class Fake:
    """What it does, and what it does wrong."""

    # starting
    load_seconds: float = 0.0  # spread evenly over the phases
    phase_seconds: dict[str, float] = dataclasses.field(default_factory=dict)  # {"graphs": 2}: its own time instead
    silent_at: str = ""  # begins that phase, then says nothing ("warmup": port open, never ready)
    silent_seconds: float = 0.0  # so long; 0: for ever
    meanwhile: str = ""  # and does that: spin (its CPU), read, grow (its memory), compile, repeat (the same line)
    loses: str = ""  # in that phase the last of its `children` is killed, and it lives on
    die_at: str = ""  # dies in that phase; "serving" is after the ready line
    die_after: float = 0.0  # seconds into that phase
    die_exit: int = -1  # with this status; -1: of a signal, as SGLang, which kills its own tree
    die_signal: str = "KILL"
    die_error: str = ""  # last words, a key of ERRORS; "" those that fit the phase, "none" not a word
    lingers: bool = False  # lives on after its last words
    log_bytes: int = 0  # so much noise in the log before the weights
    ranks: int = 0  # schedulers that log; 0: as many as --tp-size says
    # processes and GPUs
    ignore_term: bool = False  # it and its children
    children: int = 0  # schedulers in its own session that die with it, as SGLang's
    stragglers: int = 0  # the same, but they survive it
    orphans: int = 0  # survive it in a session of their own, with pid 1 as parent
    gpu_mib: int = 40000  # held on the GPU of each rank from the weights on, where FAKE_GPU_STATE is set
    lifetime: float = 600.0  # seconds after which nothing of it lives, whatever happened
    stamps: str = ""  # a folder in which ready, dead and silent get the time (seconds since the epoch) when it was so
    # a folder in which NAME.at holds "phase kv", "GET /health" or "POST /begin_weight_update done", which is before the
    # answer: whoever comes there waits once
    breakpoints: str = ""
    # serving
    version: str = VERSION  # "": sglang is not installed
    model: str = ""  # answers for this model instead of the one it was started with
    answer: str = ""  # the text of every answer
    reasoning: str = ""  # "only": the answer stands in reasoning_content; "both": thoughts there, the answer in content
    accept_length: float = 0.0  # 0: 3.0 with a draft, no figures without one
    wanes: float = 0.0  # by so much less is the accept length of each generation than that of the one before
    acceptance: bool = True  # false: no spec_* figures in any answer
    unready_seconds: float = 0.0  # after the ready line: 503 on health, readiness and generation
    codes: dict[str, int] = dataclasses.field(default_factory=dict)  # {"/health": 500}: this status on that path
    slow_seconds: float = 0.0  # before each answer
    tokens_per_second: float = 0.0  # 0: at once
    hang: str = ""  # paths that begin so are never answered
    drop: str = ""  # paths that begin so: the connection is closed without an answer
    faults: dict[str, str] | str = dataclasses.field(default_factory=dict)  # of weights.py, by path
    dead_backend: bool = False  # /health says 200, generation hangs, /health_generate says 503
    exits_after: int = 0  # dies (die_*) after so many generations
    api_key: str = ""  # beside --api-key and the api-key of --config

    @staticmethod
    def of(pairs):
        """From $FAKE and NAME=VALUE pairs; the pairs win."""
        wanted = json.loads(os.environ.get("FAKE") or "{}")
        for name, _, value in (pair.partition("=") for pair in pairs):
            try:
                wanted[name] = json.loads(value)
            except ValueError:
                wanted[name] = value
        known = {field.name for field in dataclasses.fields(Fake)}
        if not known.issuperset(wanted):
            sys.exit(f"fake_server: no such misbehaviour: {', '.join(sorted(set(wanted) - known))}")
        return Fake(**wanted)
