"""Why so little of a draft is accepted: causes in order, and what the draft's own files say of each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deploy import registry
from deploy.checkpoint import rules, versions
from deploy.checkpoint.rules import Case
from deploy.findings import Finding
from deploy.measuring import acceptance, causes
from deploy.measuring.causes import Row
from deploy.measuring.measurement import Acceptance, Measurement, Part
from deploy.text.legible import one_line

Says = Literal["FAIL", "WARN", "cannot tell", "ok"]
ORDER: tuple[Says, ...] = ("FAIL", "WARN", "cannot tell", "ok")
SAYS: dict[str, Says] = {"FAIL": "FAIL", "WARN": "WARN", "UNKNOWN": "cannot tell"}
LINES = 2  # of a finding's evidence, as text
WHOLE = 0.9  # of what is drafted: where so much is accepted, the draft is good
MOST = 3  # causes that are told in full


class Cause(Part):
    """One thing that may be why, and what the files say of it."""

    name: str
    title: str
    says: Says
    what: str  # what the files say
    evidence: str = ""
    seen: str = ""  # what the measurement itself shows of it
    looks_like: str = ""
    next: str = ""  # what to try


class Diagnosis(Part):
    """What a measured accept length says of the draft; without causes, that it says nothing against it."""

    title: str
    accept_length: float | None = None
    expected: float | None = None
    causes: tuple[Cause, ...] = ()
    by: str = ""  # who said where the tensors land

    @property
    def guilty(self) -> tuple[Cause, ...]:
        """Those of which the files say that they are so."""
        return tuple(cause for cause in self.causes if cause.says == "FAIL")

    def lines(self) -> list[str]:
        """As text for a narrow place: what the files say is wrong in full, what they cannot tell and what they rule out
        in a line each; all of it is in the document.
        """
        if not self.causes:
            return [self.title]
        by = f" ({self.by})" if self.by else ""
        suspects = [cause for cause in self.causes if cause.says in ("FAIL", "WARN")]
        unknown = [cause for cause in self.causes if cause.says == "cannot tell"]
        ruled_out = [cause for cause in self.causes if cause.says == "ok"]
        return [
            self.title,
            f"what may be why, the likeliest first, and what the draft's files say of it{by}:",
            *(line for cause in suspects[:MOST] for line in _whole(cause)),
            *(f"- {cause.says}: {cause.name}: {one_line(cause.what)}" for cause in suspects[MOST:]),
            *_unknown(unknown, first=not suspects),
            *_ruled_out(ruled_out, short=bool(suspects)),
        ]


@dataclass(frozen=True)
class Doctor:
    """What the checkpoint doctor has of the served draft: a case for each version that it may be served by, or why none
    can be made.
    """

    cases: Sequence[Case] = ()
    why: str = ""
    by: str = ""


def of(measured: Measurement, doctor: Doctor, expected: float | None) -> Diagnosis:
    """Nothing is accepted, only a part of what was expected, or all is well."""
    found = measured.acceptance
    if found is None:
        return Diagnosis(title=f"no accept length: {measured.no_acceptance or measured.why or 'nothing is told'}")
    length = found.accept_length
    if not dead(found) and (expected is None or length >= expected):
        title = f"accept length {length:.2f}: nothing speaks against the draft"
        return Diagnosis(title=title, accept_length=length, expected=expected)
    if _kept(found) >= WHOLE:
        return _short(found, measured.on.num_steps, expected)
    return Diagnosis(
        title=none_kept(found) if dead(found) else partly(found, expected),
        accept_length=length,
        expected=expected,
        causes=_causes(measured, doctor, dead(found)),
        by=doctor.by,
    )


def _kept(found: Acceptance) -> float:
    """Which part of the drafted tokens is accepted; 0 where it is not told what was drafted."""
    return found.accepted / found.drafted if found.drafted else 0.0


def _short(found: Acceptance, num_steps: int | None, expected: float | None) -> Diagnosis:
    """The draft is guessed nearly whole, so nothing is wrong with it: more has to be drafted, or less to be wanted."""
    most = "" if num_steps is None else f" of at most {num_steps + 1}.00 with speculative.num_steps={num_steps}"
    title = f"nearly the whole draft is accepted: accept length {found.accept_length:.2f}{most} ({_counted(found)})"
    cause = Cause(
        name="num_steps",
        title="too little is drafted for what is wanted",
        says="WARN",
        what=f"{100 * _kept(found):.0f} % of the drafted tokens are accepted",
        looks_like="close to num_steps + 1",
        next="a larger speculative.num_steps: deploy try speculative.num_steps=2,3,5; or a lower bar",
    )
    return Diagnosis(title=title, accept_length=found.accept_length, expected=expected, causes=(cause,))


def dead(found: Acceptance) -> bool:
    """Whether the accept length is within noise of 1.00: what is accepted, is so by chance."""
    low = found.low is not None and found.low <= 1.0
    return found.accept_length < acceptance.DEAD or (low and found.accept_length < acceptance.WEAK)


def none_kept(found: Acceptance) -> str:
    kept = "" if not found.accepted else ", but by chance"
    return f"not one drafted token is accepted{kept} ({_counted(found)})"


def partly(found: Acceptance, expected: float | None) -> str:
    wanted = "" if expected is None else f" where {expected:.2f} was expected"
    return f"only a part of the draft is accepted: accept length {found.accept_length:.2f}{wanted} ({_counted(found)})"


def _counted(found: Acceptance) -> str:
    drafted = "" if found.drafted is None else f" of {found.drafted} drafted tokens"
    return f"{found.accepted}{drafted} in {found.steps} verify steps"


def _causes(measured: Measurement, doctor: Doctor, nothing: bool) -> tuple[Cause, ...]:
    """All rows of what was measured, and those of the other kind of which the files say that something may be wrong.
    What they say is wrong comes first, what they rule out last; beside that it is the table's order.
    """
    findings = _owned(doctor.cases)
    first, second = (causes.DEAD, causes.PARTIAL) if nothing else (causes.PARTIAL, causes.DEAD)
    rows = [*first, *(row for row in (*second, causes.OTHER) if findings.get(row.name))]
    found = [_cause(row, findings.get(row.name, []), measured, doctor) for row in rows]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.says)))


def _owned(cases: Sequence[Case]) -> dict[str, list[Finding]]:
    """{row's name: what is found of it, the worst first}; a finding has one owner."""
    owned: dict[str, list[Finding]] = {}
    for name in registry.names(rules.__name__):
        for finding in _found(name, cases):
            row = next((row for row in causes.OWNERS if row.takes(name, finding)), causes.OTHER)
            owned.setdefault(row.name, []).append(finding)
    return {name: sorted(found, key=lambda one: ORDER.index(SAYS[one.verdict])) for name, found in owned.items()}


def _found(name: str, cases: Sequence[Case]) -> list[Finding]:
    """What one rule says for all these versions; of one whose source was not read, that it is not certain."""
    judged = [(case, list(rules.topic(name, case))) for case in cases if name in rules.BASIC or _ruled(case)]
    told = [finding for finding in rules.agreed(judged) if finding.verdict in SAYS]
    serving = cases[0].serving if cases else None
    if serving is None or name in rules.BASIC or versions.was_read(serving.engine, serving.version):
        return told
    return [replace(finding, verdict="UNKNOWN") if finding.verdict == "FAIL" else finding for finding in told]


def _ruled(case: Case) -> bool:
    return case.draft.format == "safetensors" and case.serving.engine in versions.RANGES


def _cause(row: Row, findings: Sequence[Finding], measured: Measurement, doctor: Doctor) -> Cause:
    told = {"name": row.name, "title": row.title, "looks_like": row.looks_like, "seen": row.seen(measured)}
    if findings:
        worst = findings[0]
        others = [f"{one.verdict}: {one.what}" for one in findings[1:]]
        evidence = "\n".join(filter(None, [worst.evidence, *others]))
        says = SAYS[worst.verdict]
        return Cause(**told, says=says, what=worst.what, evidence=evidence, next=worst.remedy or row.next)
    if row.clear:
        says, what = ("WARN", told["seen"]) if told["seen"] else ("ok", row.clear)
        return Cause(**told, says=says, what=what, next=row.next)
    if not doctor.cases:
        return Cause(**told, says="cannot tell", what=doctor.why, next=row.next)
    case = doctor.cases[-1]
    if not _ruled(case) and not {*row.topics} <= {*rules.BASIC}:
        return Cause(**told, says="cannot tell", what=f"no rules for a .{case.draft.format}", next=row.next)
    fine = row.fine(case)
    says = "ok" if fine and row.proves else "cannot tell"
    return Cause(**told, says=says, what=fine or "no file says anything of it", next=row.next)


def _whole(cause: Cause) -> list[str]:
    lines = [f"- {cause.title}", f"  {cause.says}: {one_line(cause.what)}"]
    lines += [f"    {one_line(line)}" for line in cause.evidence.splitlines()[:LINES]]
    lines += [f"  measured: {cause.seen}"] if cause.seen not in ("", cause.what) else []
    return [*lines, f"  next: {cause.next}"]


def _unknown(told: Sequence[Cause], *, first: bool) -> Iterator[str]:
    """What of several is said in the same words is said once; the `first` suspect there is comes with what to try."""
    by_words: dict[str, list[Cause]] = {}
    for cause in told:
        by_words.setdefault(cause.seen or cause.what, []).append(cause)
    for words, alike in by_words.items():
        alone = len(alike) == 1
        yield f"- {alike[0].title}?" if alone else f"- {', '.join(cause.name for cause in alike)}?"
        yield f"  cannot tell: {one_line(words)}"
        if first and alone:
            yield f"  next: {alike[0].next}"
        first = False


def _ruled_out(told: Sequence[Cause], *, short: bool) -> list[str]:
    """Each with what shows it, or where there are suspects their names alone."""
    if short:
        return [f"- ruled out: {', '.join(cause.name for cause in told)}"] if told else []
    return [f"- not {cause.name}: {one_line(cause.what)}" for cause in told]
