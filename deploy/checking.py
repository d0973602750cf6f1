"""`deploy check`: the checks of all hosts, as a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from deploy import checks, drafts, record
from deploy.deploying import place
from deploy.errors import CheckFailed, Undecided
from deploy.options import Options
from deploy.plan import Plan
from deploy.render import clean
from deploy.session import Session
from deploy.state import Asked
from deploy.wish import Wish

COLOURS = {"PASS": "green", "WARN": "yellow", "FAIL": "red", "UNKNOWN": "magenta"}


def report(wish: Wish, options: Options, session: Session) -> int:
    """Print every finding; the exit code of the worst: 5 for a FAIL that is not waived, 10 for an UNKNOWN."""
    with drafts.found(wish.profile, wish.inventory, session.remotes) as draft:
        found = list(_findings(wish.plan(draft), session))
    if options.json:
        click.echo(json.dumps(found, indent=1))
    else:
        for finding in found:
            _print(finding)
    verdicts = {finding["verdict"] for finding in found if not finding["waived"]}
    if "FAIL" in verdicts:
        return CheckFailed.exit_code
    return Undecided.exit_code if "UNKNOWN" in verdicts else 0


def _findings(plan: Plan, session: Session) -> Iterator[dict[str, Any]]:
    for node in plan.nodes:
        remote = session.remotes[node.host.name]
        remote.place = place(node, record.new_id(), session, Asked())
        for finding in checks.run(node, remote):
            waived = finding.check in node.profile.waive and finding.verdict == "FAIL"
            yield {"host": node.host.name, **asdict(finding), "waived": waived}


def _print(finding: dict[str, Any]) -> None:
    word = click.style(f"{finding['verdict']:<8}", fg=COLOURS[finding["verdict"]])
    waived = " (waived)" if finding["waived"] else ""
    click.echo(f"{finding['host']}  {word}{finding['check']:<8} {clean(finding['what'])}{waived}")
    if finding["verdict"] != "PASS":
        for line in finding["evidence"].splitlines():
            click.echo(f"    {clean(line)}")
        if finding["remedy"]:
            click.echo(f"    -> {clean(finding['remedy'])}")
