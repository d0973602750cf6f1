"""One or several recorded runs as one JSON document: what `deploy report --json` prints, and the page is made from."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from deploy.measuring.measurement import Measurement, Part


class Span(Part):
    """One step on one host."""

    host: str
    step: str
    state: str  # done, failed, skipped, left
    begin: float | None = None  # seconds since the run began; None where it was not begun
    seconds: float | None = None
    text: str = ""


class Stage(Part):
    """One stage of a server's start, as its log told it."""

    host: str
    name: str
    begin: float  # seconds since the run began
    seconds: float


class Gate(Part):
    """One gate, judged."""

    name: str
    host: str = ""
    wanted: str = ""
    state: str = ""  # as measuring/judging.py has it; older runs told none
    holds: bool | None = None  # None: it cannot be told
    measured: float | None = None
    bar: float | None = None  # where it is a multiple of another measurement
    margin: float | None = None  # half the band in which noise may have moved them from each other
    rounds: int = 0
    run: str = ""  # whose figure the bar is a multiple of
    why: str = ""


class Trouble(Part):
    """What failed, with its evidence and what to do."""

    host: str = ""
    step: str = ""
    what: str
    evidence: str = ""
    remedy: str = ""
    stopped: bool = False  # somebody stopped the work: no fault


class Found(Part):
    """A finding of a check; hosts that say the same are together."""

    hosts: tuple[str, ...] = ()
    check: str = ""
    verdict: str
    what: str = ""
    evidence: str = ""
    remedy: str = ""
    waived: bool = False


class Measured(Part):
    """What was measured on a host, and how acceptance is explained where it was below its gate."""

    host: str
    measurement: Measurement
    diagnosis: dict[str, Any] = Field(default_factory=dict)


class Run(Part):
    """One run, as its record tells it."""

    id: str
    command: str = ""
    profile: str = ""
    hosts: tuple[str, ...] = ()
    started: float = 0.0  # seconds since the epoch
    seconds: float = 0.0
    exit_code: int | None = None  # None: not ended by the client
    text: str = ""  # its last words
    decided: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    told: dict[str, float] = Field(default_factory=dict)  # accept_length, tok_s: also of runs without a measurement
    waived: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    spans: tuple[Span, ...] = ()
    stages: tuple[Stage, ...] = ()
    findings: tuple[Found, ...] = ()
    evidence: tuple[str, ...] = ()  # what was collected of a death or a silence, and where it lies
    notes: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()
    profile_yaml: str = ""
    project: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, Any] = Field(default_factory=dict)
    servers: dict[str, str] = Field(default_factory=dict)  # {host: the run in whose server its draft was exchanged}
    launches: dict[str, str] = Field(default_factory=dict)  # {host: its launch script}
    folder: str = ""  # of the record


class Document(Part):
    """The whole report."""

    version: int = 1
    tool: str  # its version
    made: float  # seconds since the epoch
    runs: tuple[Run, ...]
    differences: tuple[dict[str, Any], ...] = ()  # each later run against the first, as `deploy diff --json` tells it
