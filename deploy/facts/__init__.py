"""What is true on a host right now: one fact a file, each a pair of questions and a pure parser.

A fact is a module with `FACT`: its questions (a tool's command line, or a program of `deploy.host`), and `parse`, which
turns the answers into frozen dataclasses without touching anything. `deploy.looking` asks all questions of all facts by
one program on the host. Parsers are tested from captured answers in `tests/fixtures/facts`. What could not be looked at
is None, "unknown" or an `error` in words, never an empty list that reads as "nothing there".

Some facts are also asked alone, again and again: they have `read(remote, ...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from deploy.errors import RemoteFailed

T = TypeVar("T")
CANNOT_START = (None, 126, 127)  # what is seen of a program that is not there, or is none


class Asks(Protocol):
    """As much of a host as a fact needs: run a program, run a Python program."""

    def run(self, *argv: str, ok: tuple[int, ...] = (0,), timeout: float = 30.0) -> str:
        """Its stdout as text. RemoteFailed (with status and stderr) when its exit status is not in `ok`."""

    def python(self, source: str, *args: str, timeout: float = 30.0) -> Any:
        """The JSON that a Python program printed, parsed."""


@dataclass(frozen=True)
class Command:
    """A tool of the host's; `otherwise`: what is asked of one that is too old for the words (exit status 2)."""

    argv: tuple[str, ...]
    otherwise: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """`deploy/host/NAME.py`, whose function `answer` takes words and gives what JSON can carry."""

    name: str
    args: tuple[str, ...] = ()


Question = Command | Program


@dataclass(frozen=True)
class Answer:
    """What came back: of a command its streams as text, of a program a document."""

    status: int | None  # None: it could not be started, or did not end in time
    out: str = ""
    err: str = ""
    document: Any = None

    @property
    def missing(self) -> bool:
        """The tool is not there."""
        return self.status in (126, 127) or (self.status is None and "No such file" in self.err)

    def read(self) -> Any:
        """The document. RemoteFailed where the program broke, with its last words, or gave up in words of its own."""
        if self.status != 0:
            words = self.err.strip()
            plain = words if words and "\n" not in words else ""
            what = plain or "our program on the host failed"
            raise RemoteFailed(what, status=self.status or 0, evidence="" if plain else words[-1500:])
        return self.document


@dataclass(frozen=True)
class About:
    """What the questions depend on: a host as the inventory has it, and what a profile would use there."""

    work: str = "~/.deploy"
    paths: tuple[str, ...] = ()  # where something shall be read or written; ~ is the user's home there
    pythons: tuple[tuple[str, str, str], ...] = ()  # interpreter, distribution, PYTHONPATH of the server
    env: tuple[tuple[str, str], ...] = ()  # of the server, beside what the host's shell gives it
    sudo: bool = False  # whether it shall work there without a password


@dataclass(frozen=True)
class Fact(Generic[T]):
    """`name` is its module's; questions have names of their own, and `parse` gets the answers by these."""

    name: str
    questions: Callable[[About], Mapping[str, Question]]
    parse: Callable[[Mapping[str, Answer]], T]


def told_by(program: str, parse: Callable[[Any], T], *words: str, name: str = "") -> Fact[T]:
    """A fact that one program answers whole; its name is the program's where it is not said."""
    return Fact(
        name or program,
        lambda _: {program: Program(program, words)},
        lambda answers: parse(answers[program].read()),
    )


@dataclass
class Facts:
    """What one look at a host told: `facts[gpus.FACT]` is a `Gpus`, parsed when it is first asked for."""

    host: str
    answers: Mapping[str, Mapping[str, Answer]]  # of each fact, by its questions' names
    about: About = About()
    offset: float | None = None  # seconds that the host's clock is ahead of ours, give or take half the round trip
    round_trip: float | None = None  # seconds that question and answer were on their way
    parsed: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, fact: Fact[T]) -> T:
        """RemoteFailed where the host's answer is none, or is not understood."""
        if fact.name not in self.parsed:
            self.parsed[fact.name] = self._parse(fact)
        found: T = self.parsed[fact.name]
        return found

    def _parse(self, fact: Fact[T]) -> T:
        if fact.name not in self.answers:
            raise RemoteFailed(f"{self.host}: nobody asked for its {fact.name}", status=0)
        try:
            return fact.parse(self.answers[fact.name])
        except RemoteFailed as error:
            raise RemoteFailed(
                f"{self.host}: {fact.name}: {error.what}", status=error.status, evidence=error.evidence
            ) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            told = self.answers[fact.name].items()
            said = "\n".join(f"{name}: {one.out[:500] or str(one.document)[:500]}" for name, one in told)
            raise RemoteFailed(
                f"{self.host}: what it says of its {fact.name} is not understood: {error!r}", status=0, evidence=said
            ) from error


def known(**told: Any) -> Facts:
    """Facts that are known without a look, by their names: for whoever judges them."""
    return Facts("a host", {}, parsed=told)
