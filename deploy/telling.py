"""`deploy status`: what runs, derived from manifest, /proc and the port, now."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import Any, Literal

import click

from deploy.deploying import key
from deploy.errors import ConfigError, DeployError
from deploy.plan import Node
from deploy.remote import Remote
from deploy.render import one_line
from deploy.session import Session
from deploy.state import Run

State = Literal["serving", "loading", "following", "stopped", "dead"]
LONGEST = 2000  # characters of a cell
COLUMNS = ("host", "deployment", "state", "since", "run", "model", "draft", "port", "accept_length", "why", "hold")


def status(session: Session, wanted: str | None) -> list[dict[str, Any]]:
    """One row for each deployment on each host, or one that says there is none; or for the `wanted` one alone."""
    known = {name for machine in session.machines.values() for name in machine.deployments}
    if wanted and wanted not in known:
        raise ConfigError(f"no host has a deployment {wanted}", remedy=f"known: {', '.join(sorted(known)) or 'none'}")
    rows: list[dict[str, Any]] = []
    for host, machine in session.machines.items():
        own = [
            _row(session.remotes[host], name, deployment.current)
            for name, deployment in machine.deployments.items()
            if deployment.current and wanted in (None, name)
        ]
        own = own or ([] if wanted else [{"host": host, "state": "nothing deployed"}])
        if machine.unread:
            own = [{**row, "why": row.get("why") or f"its lock cannot be read: {machine.unread}"} for row in own]
        rows += [{**row, "hold": machine.hold.to_json()} for row in own] if machine.hold else own
    return rows


def _row(remote: Remote, name: str, run: Run) -> dict[str, Any]:
    node = run.node
    state = derive(remote, run, node)
    row: dict[str, Any] = {
        "host": remote.host.name,
        "deployment": name,
        "state": state,
        "run": run.id,
        "folder": run.folder,
        "why": _why(run, node),
    }
    if node is None or run.manifest is None:
        return row
    return {
        **row,
        "pid": run.pid,
        "port": node.port,
        "model": node.served_name,
        "draft": (run.draft or "").rpartition("/")[2] or None,
        "draft_from": run.manifest.get("ckpt") or (node.draft.source if node.draft else None),
        "engine": f"{node.profile.engine.name} {run.manifest.get('engine_version') or ''}".strip(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.manifest["at"])),
        "by": run.manifest["by"],
        "command": run.manifest["command"],
        "accept_length": (run.verdict or {}).get("accept_length"),
        "gates_hold": (run.verdict or {}).get("holds"),
    }


def _why(run: Run, node: Node | None) -> str:
    if not run.alive:
        return run.ending
    if node is None:
        return "its manifest cannot be read"
    return f"told to end, {run.stopped}" if run.stopped else ""


def derive(remote: Remote, run: Run, node: Node | None) -> State:
    """Stopped, dead, loading or serving: from the process, then from its answer.

    A rank above 0 that lives and answers nobody follows: vLLM's have no port, and whether all serves, the head tells.
    """
    if not run.alive and not run.left:
        return "stopped" if run.stopped or not run.pid else "dead"
    if node is not None and _ready(remote, run, node):
        return "serving"
    # its server has ended, and left processes behind: vLLM's engine outlives an API server that was killed
    if run.exit and not run.alive:
        return "dead"
    return "following" if node and node.rank else "loading"


def _ready(remote: Remote, run: Run, node: Node) -> bool:
    try:
        reply = remote.http("GET", node.port, node.engine.READY_PATH, timeout=5.0, key=key(node, run, remote))
    except (ConnectionError, TimeoutError, DeployError):
        return False
    return reply.status == 200


def table(rows: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> None:
    """Print the rows as columns; those that nobody fills are left out. On a terminal that is too narrow for them, each
    row is a paragraph below its first cell.
    """
    told = lines(rows, columns)
    if not sys.stdout.isatty() or max(map(len, told)) <= get_terminal_size().columns:
        click.echo("\n".join(told))
        return
    width = max(map(len, columns))
    for row in rows:
        click.secho(cell(row[columns[0]]), bold=True, color=None if "NO_COLOR" not in os.environ else False)
        for column in columns[1:]:
            if row.get(column) not in (None, ""):
                click.echo(f"  {column:<{width}}  {cell(row[column])}")


def lines(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    """The same as text."""
    shown = [column for column in columns if any(row.get(column) not in (None, "") for row in rows)]
    cells = [[cell(row.get(column)) for column in shown] for row in rows]
    widths = [
        max(len(text) for text in (name, *column)) for name, column in zip(shown, zip(*cells, strict=True), strict=True)
    ]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (shown, *cells)
    ]


def cell(value: Any) -> str:
    """One value as people read it."""
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, Mapping):  # what has words of its own
        value = value["text"]
    return "" if value is None else one_line(str(value), LONGEST)
