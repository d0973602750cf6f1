"""The user's failures.yaml, beside inventory.yaml: lines of logs that they know, with what they mean and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from deploy import engines
from deploy.config import documents, validation
from deploy.config.schema import Part
from deploy.config.values import Count, Label, Regex, Word
from deploy.engines._log import Signature
from deploy.project import Project

FILE = "failures.yaml"
ANY = ("a", "0", ".")  # lines with which no failure has to do
GROUP = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")  # what a group of `line` fills; ${HOME} is for a shell


def _telling(text: str) -> str:
    if re.search(text, ""):
        raise ValueError("matches an empty line, and so every line")
    if all(re.search(text, line) for line in ANY):
        raise ValueError("matches nearly every line")
    return text


def _line(text: str) -> str:
    return " ".join(text.split())


Said = Annotated[Word, AfterValidator(_line)]  # in one line, also where YAML's | or > gives several


class Failure(Part):
    """One line that tells of a failure."""

    line: Annotated[Regex, StringConstraints(min_length=1), AfterValidator(_telling)] = Field(
        description="A regular expression, searched in each line behind its time and rank, and in all that an "
        "exception says."
    )
    cause: Said = Field(description="What it means; {name} is what a group (?P<name>...) of `line` found.")
    remedy: Said = Field(description="What to do.")
    kind: Literal["cause", "consequence", "silence", "compiling", "note"] = Field(
        default="cause",
        description="cause: it died of it. consequence: of a failure elsewhere, any cause beats it. silence, "
        "compiling: the last that was heard before a long silence, without and with compilers at work. note: it goes "
        "on.",
    )
    phase: Word | None = Field(default=None, description="Only while the server is in this phase: weights, graphs.")
    count: Count = Field(default=1, description="A note is told after so many such lines in a row.")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """(key, what is wrong with it beside the others)."""
        groups = re.compile(self.line).groupindex
        for key, text in (("cause", self.cause), ("remedy", self.remedy)):
            if unknown := [name for name in GROUP.findall(text) if name not in groups]:
                yield key, f"{{{unknown[0]}}} is no group of `line`: it has no (?P<{unknown[0]}>...)"
        if self.phase and self.phase not in (known := _phases()):
            yield "phase", f"no engine has such a phase: {', '.join(known)}"
        if self.count > 1 and self.kind != "note":
            yield "count", "only a note (kind: note) is told after several lines"


def _phases() -> list[str]:
    """Those of all engines, in their order."""
    orders = [engine.order(version) for engine in engines.every().values() for version in (None, "0")]
    return list(dict.fromkeys(stage.phase for order in orders for stage in order))


class Failures(Part):
    """What failures.yaml holds."""

    failures: dict[Label, Failure] = Field(description="{name: failure}; they come before the built-in ones.")

    @model_validator(mode="after")
    def _consistent(self) -> Failures:
        wrong = [
            {"path": ("failures", name, key), "message": message}
            for name, failure in self.failures.items()
            for key, message in failure.contradictions()
        ]
        if wrong:
            raise PydanticCustomError("cross", "a failure contradicts itself", {"wrong": wrong})
        return self


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
