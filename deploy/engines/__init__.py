"""A profile in one server's own words. An engine is one module here: pure functions, no I/O.

To add an engine, add `engines/NAME.py` that has what the `Engine` protocol names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from deploy import registry
from deploy.engines._dialect import Dialect
from deploy.engines._gauges import Gauges
from deploy.engines._log import Explanation, Progress, Seen
from deploy.engines._phases import Order
from deploy.engines._ports import Port, Said
from deploy.engines._swap import Swap
from deploy.profile import Profile
from deploy.text.words import RunPath, Word


@dataclass(frozen=True)
class Request:
    """What an engine is asked to put into words."""

    profile: Profile
    python: str
    draft: RunPath | None
    rank: int
    head: str
    address: str


@dataclass(frozen=True)
class Command:
    """A server's command line, the environment it wants, and files it needs in the run's folder."""

    argv: tuple[Word, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Called:
    """How a command line calls a server: what it shows of the profile's `engine`, the place of the first word behind
    the program, and that of a model that is no flag's value.
    """

    engine: Mapping[str, str]
    flags: int
    model: int | None = None


@dataclass(frozen=True)
class Question:
    """One request to a server: where to POST, and what."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Conversation:
    """What a measured question is to be; `version` is the server's own word (None: it says none).

    `ids`: its tokens, where the engine wants them instead of messages; `rank`: the data-parallel rank that is to
    answer (None: any).
    """

    model: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    max_tokens: int
    fixed_length: bool = False
    temperature: float = 0.0
    seed: int = 0
    version: str | None = None
    ids: tuple[int, ...] | None = None
    rank: int | None = None
    salt: str = ""  # what a server keeps of prompts is not shared between questions of different salts


@dataclass(frozen=True)
class Streamed(Question):
    """A question whose answer is a stream; `tokens` is the path of the count of tokens so far in each of its chunks
    ((): it tells none).
    """

    tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counters:
    """What one answer cost: tokens generated, verify steps, drafted tokens offered and accepted (None: not told).

    `histogram`: in how many steps 0, 1, 2, ... drafts were accepted; `rank`: the data-parallel rank that answered.
    """

    generated: int
    steps: int | None
    drafted: int | None
    accepted: int | None
    histogram: tuple[int, ...] | None = field(default=None, kw_only=True)
    rank: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Totals(Counters):
    """The same of all requests since the server's start, and how many of them have ended (None: not told)."""

    requests: int | None = None


@dataclass(frozen=True)
class Loaded:
    """The checkpoints that a server says it has loaded, as it was told their paths, and its version (None: it does not
    say).
    """

    model: str | None = None
    draft: str | None = None
    version: str | None = None


class Engine(Protocol):
    """What the tool has to know about a server."""

    DISTRIBUTION: str | None
    """The Python distribution whose version is the engine's, if it is one."""
    READY: re.Pattern[str] | None
    """The log line after which its readiness can be asked for; None: ask from the start."""
    WORDS: tuple[str, ...]
    """One of these is in every line that has `marks`: what a program on a host looks for in a long log."""
    FATAL: re.Pattern[str] | None
    """A log line after which it never serves, whether or not its process ends."""
    DIALECT: Dialect
    """How its log is read for failures: by `explain`, and where a log is looked at without its server."""
    READY_PATH: str
    """Answers 200 when it is ready to generate."""
    INFO: tuple[str, ...]
    """Where it says which checkpoints it has `loaded`: the first of these paths that it knows; none: nowhere. Such an
    answer is never kept whole, since SGLang's has its API key."""
    METRICS: str | None
    """Where `totals` stand; None: it has none that a short run could be checked against."""
    GAUGES: Gauges
    """Where it tells its speed while it serves: what `status` shows."""
    STEPS: str | None
    """The flag that says how many tokens are drafted for each verify step."""
    STREAM: Mapping[str, Any]
    """What a streamed chat asks for beside the standard's usage, so that its last chunks carry `counters`."""
    SECRETS: Mapping[str, str]
    """Secret flags that the server takes from its environment, {flag: variable}; others go by `secret_file`."""
    PORT: int | None
    """The port it takes where none is said; None: it must be said."""
    FIELDS: Mapping[str, str]
    """{flag: the profile's key that it says}, for reading a command line back; no key: a flag of each node's own."""
    VALUES: Mapping[str, Mapping[str, str]]
    """{flag: {its value: the profile's word for it}}, where they differ."""
    ALIASES: Mapping[str, str]
    """{another spelling of a flag: its full name}, without dashes."""
    ELSEWHERE: tuple[str, ...]
    """Rows of flags that say the same in different versions of it, "--new --old"; a value stands behind a =."""
    GPU_FLAGS: tuple[str, ...]
    """The flags that say which of the visible GPUs is the first one taken, and how far it is to each next; (): none."""

    def command(self, request: Request) -> Command:
        """The command line for a node."""

    def called(self, argv: Sequence[str]) -> Called | None:
        """How a command line calls this server; None where it calls another program."""

    def ports(self, said: Said) -> tuple[Port, ...]:
        """Every port that the server will bind on this node and does not choose for itself, the one it answers on
        first.
        """

    def secret_argv(self, flags: Mapping[str, str]) -> tuple[Word, ...]:
        """The words that make the server read `secret_file`; {flag: secret's name}."""

    def secret_file(self, flags: Mapping[str, str]) -> tuple[str, str]:
        """(name, content) of the 0600 file for secrets that the server takes only as flags; {flag: value}."""

    def swap(self, said: Said) -> Swap:
        """How the weights of the draft of a server that was told this can be exchanged while it serves, or why not."""

    def order(self, version: str | None) -> Order:
        """The phases of a start in that version, in order; () where nobody knows them."""

    def marks(self, line: str) -> list[Progress]:
        """What a line of its log tells about how far it is; several ranks may have written into one line."""

    def progress(self, line: str) -> Progress | None:
        """The last of its `marks`."""

    def explain(self, log: str, seen: Seen = ...) -> Explanation | None:
        """Why it died, or why it is silent, from its log and from what else was seen of it."""

    def chat(self, model: str, prompt: str, max_tokens: int) -> Question:
        """A chat request at temperature 0."""

    def loaded(self, answer: Mapping[str, Any]) -> Loaded:
        """The checkpoints named in an answer of `INFO`."""

    def measured(self, model: str, prompt: str, max_tokens: int) -> tuple[Question, ...]:
        """Requests whose answers carry counters, the best first; an older server may know only a later one."""

    def wants_ids(self, version: str | None) -> bool:
        """Whether a server of that version streams its counters only for tokens, to which whoever asks has applied
        the model's chat template.
        """

    def streamed(self, asked: Conversation) -> Streamed:
        """The same as a stream that tells of its tokens and counters as much as that version can."""

    def counters(self, answer: Mapping[str, Any]) -> Counters | None:
        """The counters of an answer to `measured`, or of a streamed one; None where it has none."""

    def totals(self, metrics: str) -> Totals | None:
        """From its /metrics: a cross-check, and where answers carry no acceptance, what is measured by."""


All = Mapping[str, Engine]


def load(name: str) -> Engine:
    """The engine called `name`."""
    return cast("Engine", registry.load("deploy.engines", name, "engine"))


def every() -> All:
    """Every engine by its name; `command`, which takes any server, comes last."""
    names = sorted(registry.names("deploy.engines"), key=lambda name: name == "command")
    return {name: load(name) for name in names}


def recognise(argv: Sequence[str], known: All | None = None) -> tuple[str, Called] | None:
    """The engine whose server a command line starts; `command` for a server that has no engine of its own here.

    `known` is `every()`, which looks on the disk, for who asks of many command lines.
    """
    found = ((name, engine.called(argv)) for name, engine in (known or every()).items())
    return next(((name, called) for name, called in found if called), None)
