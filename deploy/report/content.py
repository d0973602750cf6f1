"""A document as a page: which sections it has, and in which order."""

from __future__ import annotations

from collections.abc import Callable

from deploy.render import what
from deploy.report import words
from deploy.report.blocks import Page, Section
from deploy.report.document import Document, Run
from deploy.report.sections import acceptance, against, differences, findings, origin, speed, start, together, verdict

PARTS: tuple[Callable[[Run], Section | None], ...] = (
    verdict.section,
    start.section,
    acceptance.section,
    speed.section,
    against.section,
    findings.section,
    origin.section,
)


def page(document: Document) -> Page:
    """The page of one run, or of several side by side and one after the other."""
    runs = document.runs
    first = runs[0]
    word, tone = verdict.word(first)
    sections = _sections(first) if len(runs) == 1 else _together(document)
    return Page(
        title=_title(first) if len(runs) == 1 else f"{len(runs)} runs",
        lead=_lead(first) if len(runs) == 1 else ", ".join(run.id for run in runs),
        verdict=word if len(runs) == 1 else "",
        tone=tone if len(runs) == 1 else "",
        sections=tuple(sections),
        foot=f"made by deploy {document.tool}, {words.moment(document.made)}",
    )


def _sections(run: Run) -> list[Section]:
    return [section for part in PARTS if (section := part(run))]


def _together(document: Document) -> list[Section]:
    """What they have in common first, then each of them whole."""
    found = [section for section in (together.section(document),) if section]
    found += [differences.section(told) for told in document.differences]
    runs = (Section(f"{_title(run)}: {verdict.word(run)[0]}", tuple(_sections(run))) for run in document.runs)
    return [*found, *runs]


def _title(run: Run) -> str:
    done = what(run.command or "a run", run.profile)
    where = ", ".join(run.hosts) if len(run.hosts) <= 4 else f"{len(run.hosts)} hosts"
    return f"{done} on {where}" if where else done


def _lead(run: Run) -> str:
    return f"run {run.id}, {words.moment(run.started)}, {words.took(run.seconds)}"
