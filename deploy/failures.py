"""The user's failures.yaml, beside inventory.yaml: lines of logs that they know, with what they mean and what to do."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from deploy.config import documents, validation
from deploy.config.schema import Part
from deploy.config.values import Count, Label, Regex, Word
from deploy.engines._log import Signature
from deploy.project import Project

FILE = "failures.yaml"


def _telling(text: str) -> str:
    if re.search(text, ""):
        raise ValueError("matches an empty line, and so every line")
    return text


class Failure(Part):
    """One line that tells of a failure."""

    line: Annotated[Regex, StringConstraints(min_length=1), AfterValidator(_telling)] = Field(
        description="A regular expression, searched in each line behind its time and rank, and in all that an "
        "exception says."
    )
    cause: Word = Field(description="What it means; {name} is what a group (?P<name>...) of `line` found.")
    remedy: Word = Field(description="What to do.")
    kind: Literal["cause", "consequence", "silence", "compiling", "note"] = Field(
        default="cause",
        description="cause: it died of it. consequence: of a failure elsewhere, any cause beats it. silence, "
        "compiling: the last that was heard before a long silence, without and with compilers at work. note: it goes "
        "on.",
    )
    phase: Word | None = Field(default=None, description="Only while the server is in this phase: weights, graphs.")
    count: Count = Field(default=1, description="A note is told after so many such lines.")


class Failures(Part):
    """What failures.yaml holds."""

    failures: dict[Label, Failure] = Field(description="{name: failure}; they come before the built-in ones.")


def load(project: Project) -> tuple[Signature, ...]:
    """The rows of the project's failures.yaml; none without one. ConfigError lists all that is wrong, with lines."""
    file = project.root / FILE
    if not os.path.lexists(file):
        return ()
    document = documents.load(file, Failures, project.shown(file))
    found = validation.validate(Failures, document.tree, document.where)
    return tuple(
        Signature(name, re.compile(one.line), one.cause, one.remedy, one.kind, one.phase or "", one.count)
        for name, one in found.failures.items()
    )
