"""Which Python an engine runs with on a host, and which version of the engine is installed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import About, Answer, Asks, Fact, Program, Question


@dataclass(frozen=True)
class Interpreter:
    """What that Python says of itself; None is unknown, and then `error` says why."""

    executable: str | None = None
    version: str | None = None  # Python's, as "3.11.7"
    machine: str | None = None  # as "x86_64"
    libc: str | None = None  # as "glibc 2.36"; "" where it is another one
    installed: str | None = None  # the distribution's version
    cuda: str | None = None  # that its torch is built for, as "12.8"; "": for processors alone
    error: str = ""


def parse(answer: Mapping[str, Any]) -> Interpreter:
    """From what `deploy.host.interpreter` prints."""
    return Interpreter(**answer)


def _questions(about: About) -> dict[str, Question]:
    return {str(number): Program("interpreter", words) for number, words in enumerate(about.pythons)}


def _parse(answers: Mapping[str, Answer]) -> tuple[Interpreter, ...]:
    return tuple(parse(answer.read()) for answer in answers.values())


FACT: Fact[tuple[Interpreter, ...]] = Fact("interpreter", _questions, _parse)  # in the order of what was asked


def read(remote: Asks, python: str, distribution: str, pythonpath: str = "") -> Interpreter:
    """Asks `python` (a path, which may begin with ~, or a word for PATH) without importing the distribution.

    `pythonpath` is the server's own: what stands there is what it would find first.
    """
    return parse(remote.python(host.source("interpreter"), python, distribution, pythonpath))
