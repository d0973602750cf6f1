"""`deploy history --hosts`: who changed what on hosts, from where, when, and how it ended, from their own audit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from deploy import host, render
from deploy.operations import running
from deploy.options import Options
from deploy.text import tables
from deploy.walk.session import Session

COLUMNS = ("when", "host", "who", "from", "what", "exit", "took", "words")
LINES = 6  # of a command, at most: begun, a hold or a release and what takes it back, ended

Line = dict[str, Any]


def report(options: Options, limit: int) -> int:
    """Print the last commands (as JSON: the last lines) of the hosts, newest last; the exit code."""
    lines: list[Line] = []
    with Session("history") as session:
        silent = running.ask(options, session)

        def read(name: str) -> None:
            remote, root = session.remotes[name], session.machines[name].root
            found = remote.python(host.source("audit"), root, str(limit * LINES))
            lines.extend({**line, "host": name} for line in found)

        failed = session.each(lambda remote: read(remote.host.name))
    lines.sort(key=lambda line: str(line.get("when")))
    for error in failed.values():
        evidence = error.evidence.strip().splitlines()[-1:]
        click.echo(render.one_line(": ".join([error.what, *evidence]), 1000), err=True)
    if options.json:
        click.echo(json.dumps(lines[-limit:], indent=1))
    elif lines:
        tables.table(commands(lines)[-limit:], COLUMNS)
    elif not silent and not failed:
        click.echo("nothing was changed on these hosts so far", err=True)
    return 3 if silent else next((error.exit_code for error in failed.values()), 0)


def commands(lines: Iterable[Line]) -> list[dict[str, str]]:
    """A row for each command, by its last line: the end, or that it has none."""
    ends: dict[tuple[str, str], Line] = {}
    for line in lines:
        ends[str(line["host"]), str(line.get("id"))] = line  # anybody may have written the line
    return [_row(line) for line in sorted(ends.values(), key=lambda line: str(line.get("when")))]


def _row(line: Line) -> dict[str, str]:
    outcome = line.get("outcome") if line.get("event") == "ended" else None
    told = outcome if isinstance(outcome, dict) else {"words": "not ended"}
    code, took = told.get("exit_code"), render.number(told.get("seconds"))
    row = {name: line.get(name) for name in ("host", "who", "from", "what")}
    row |= {"when": _local(line.get("when")), "exit": "-" if code is None else code, "words": told.get("words")}
    row["took"] = "" if took is None else render.seconds(took)
    return {name: render.one_line("" if value is None else str(value), 100) for name, value in row.items()}


def _local(when: Any) -> str:
    try:
        return datetime.fromisoformat(str(when)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return str(when)
