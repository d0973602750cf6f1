"""`deploy history`: what was run, when, and how it ended."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.commands._options import Finite, later
from deploy.commands._recorded import folder_of_runs

if TYPE_CHECKING:
    from deploy.events import Event
    from deploy.record import RunSummary
    from deploy.runs.choosing import Wanted

COMMAND = 40  # characters of it in the list: one long command must not make every row wide
ENDING = 30  # characters that how it ended needs beside the columns; with less room it has a line of its own


@click.command
@click.argument("run", required=False, shell_complete=later("runs"))
@click.option("--replay", is_flag=True, help="Show the run's events once more, as they were seen.")
@click.option("--speed", type=Finite(min=0), default=0.0, help="Replay this many times as fast; 0: at once.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="List at most so many runs.")
@click.option("--profile", metavar="NAME", shell_complete=later("profiles"), help="Only runs of this profile.")
@click.option("--host", metavar="NAME", help="Only runs on this host; a pattern may stand here: gpu*.")
@click.option("--failed", is_flag=True, help="Only runs that did not end well.")
@click.option("--since", metavar="WHEN", help="Only runs since then: 2h, 3 days, yesterday, 2026-11-30.")
@click.option("--ckpt", metavar="DIGEST", help="Only runs of this draft: the beginning of its digest, or its path.")
@click.option("--hosts", metavar="PATTERNS", help="What was changed on these hosts, by anybody, from their own audit.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--jsonl", is_flag=True, help="With --replay: the events as JSON lines on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="With --replay: only failures and the end.")
@click.option("-v", "--verbose", count=True, help="With --replay: all that was said; twice: log lines too.")
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
def history(
    run: str | None, hosts: str | None, limit: int, as_json: bool, project: Path | None, **others: Any
) -> int | None:
    """List the runs, newest first, or show RUN: its name, the beginning of it, or `last`; or the audit of hosts.

    \b
    Examples:
      deploy history
      deploy history last
      deploy history 20261129-2015 --replay --speed 10
      deploy history --profile kimi-eagle3 --failed --since "3 days"
      deploy history --ckpt a1b2c3 --json | jq '.[0].accept_length'
      deploy history --hosts all
    """
    from deploy import record
    from deploy.commands import show
    from deploy.runs import choosing

    wanted = _wanted(**{name: others.pop(name) for name in ("profile", "host", "failed", "since", "ckpt")})
    _refuse(run, wanted, as_json=as_json, **others)
    if hosts is not None:
        return _audit(run, hosts, limit, as_json, project)
    runs = folder_of_runs(project)
    if run is None:
        _list([*choosing.chosen(record.summaries(runs), wanted)][:limit], as_json, some=not wanted.anything)
        return None
    folder = record.find(runs, run)
    if others["replay"]:
        _replay(record.read(folder), **others)
    else:
        show.tell(folder, as_json=as_json)
    return None


def _audit(run: str | None, hosts: str, limit: int, as_json: bool, project: Path | None) -> int:
    from deploy.errors import ConfigError
    from deploy.operations import auditing
    from deploy.options import Options

    if run is not None:
        raise ConfigError("a run is recorded here, the audit lies on hosts", remedy="RUN or --hosts, not both")
    output: Any = "json" if as_json else "auto"
    return auditing.report(Options((), project, hosts, yes=False, output=output, verbosity=0), limit)


def _wanted(*, since: str | None, **others: Any) -> Wanted:
    from datetime import datetime

    from deploy.runs.choosing import Wanted
    from deploy.text import when

    return Wanted(since=None if since is None else when.since(since, datetime.now().astimezone()), **others)


def _refuse(run: str | None, wanted: Wanted, *, as_json: bool, replay: bool, jsonl: bool, **_: Any) -> None:
    from deploy.errors import ConfigError

    if run is not None and not wanted.anything:
        raise ConfigError("one run is named, so none are to be chosen", remedy="RUN, or --profile, --host, ...")
    if jsonl and not replay:
        raise ConfigError("--jsonl is for events", remedy="deploy history RUN --replay --jsonl, or --json")
    if replay and as_json:
        raise ConfigError("a replay is no document", remedy="--replay --jsonl, or --json alone")
    if replay and run is None:
        raise ConfigError("--replay of which run?", remedy="deploy history last --replay")


def _list(runs: list[RunSummary], as_json: bool, *, some: bool) -> None:
    if as_json:
        from dataclasses import asdict

        click.echo(json.dumps([asdict(run) for run in runs], indent=2))
        return
    if not runs:
        click.echo("no run is like that: deploy history" if some else "no runs yet: deploy up records one", err=True)
        return
    click.echo("\n".join(lines(runs, _width())))


def lines(runs: list[RunSummary], width: int | None) -> list[str]:
    """The list in lines of `width` characters at most (None: as long as they are)."""
    rows = [("RUN", "COMMAND", "HOSTS", "TOOK", "EXIT", "ACCEPT", "TOK/S", ""), *(_row(run) for run in runs)]
    *columns, _ = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    aside = width is not None and width - sum(widths) - 2 * len(widths) < ENDING
    told: list[str] = []
    for *cells, ending in rows:
        line = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True))
        told += [f"{line}  {ending}"] if not aside else [line, f"    {ending}"] if ending else [line]
    return [_fitted(line.rstrip(), width) for line in told]


def _row(run: RunSummary) -> tuple[str, ...]:
    from deploy import render

    hosts = ",".join(run.hosts) if len(run.hosts) <= 2 else f"{len(run.hosts)} hosts"
    code = "-" if run.exit_code is None else str(run.exit_code)
    length, speed = render.number(run.accept_length), render.number(run.tok_s)
    return (
        run.id,
        render.one_line(render.what(run.command, run.profile), COMMAND),
        render.one_line(hosts, COMMAND),
        render.seconds(run.seconds),
        render.one_line(code),
        "" if length is None else f"{length:.2f}",
        "" if speed is None else f"{speed:.4g}" if speed < 1000 else f"{speed:.0f}",
        render.one_line(f"not ended: {run.text}" if run.exit_code is None else run.text),
    )


def _width() -> int | None:
    # Only for people: what is piped into another program stays whole.
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _fitted(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def _replay(events: Iterator[Event], *, speed: float, jsonl: bool, quiet: bool, verbose: int, **_: bool) -> None:
    from deploy import render

    output: render.Output = "jsonl" if jsonl else "auto"
    view = render.choose(
        output=output, verbosity=-1 if quiet else verbose, environ=os.environ, stdout=sys.stdout, stderr=sys.stderr
    )
    try:
        for event in _paced(events, speed):
            view.on(event)
    finally:
        view.close()


def _paced(events: Iterator[Event], speed: float) -> Iterator[Event]:
    before: float | None = None
    for event in events:
        if speed and before is not None:
            time.sleep(max(event.at - before, 0.0) / speed)
        before = event.at
        yield event
