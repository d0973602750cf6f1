"""Whether `sudo` works on a host without a password: asked only where the inventory wants it, since a host logs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.facts import About, Answer, Command, Fact, Question


@dataclass(frozen=True)
class Sudo:
    """What `sudo -n` said."""

    works: bool | None  # None: nobody asked
    said: str = ""


def parse(answers: Mapping[str, Answer]) -> Sudo:
    """From how `sudo -n true` ended."""
    answer = answers.get("sudo")
    if answer is None:
        return Sudo(None)
    return Sudo(answer.status == 0, "there is no sudo" if answer.missing else answer.err.strip()[-400:])


def _questions(about: About) -> dict[str, Question]:
    return {"sudo": Command(("sudo", "-n", "true"))} if about.sudo else {}


FACT: Fact[Sudo] = Fact("sudo", _questions, parse)
