"""`deploy check`: the checks of all hosts, as a report; with a profile, or of the hosts alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain

import click

from deploy import checks, looking, probes
from deploy.checks import Case
from deploy.deployment.state import Asked
from deploy.errors import CheckFailed, DeployError, NoPython, Undecided, Unreachable
from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote
from deploy.render import clean
from deploy.walk.session import Session
from deploy.wish import Wish

COLOURS = {"PASS": "green", "WARN": "yellow", "FAIL": "red", "UNKNOWN": "magenta"}

Found = list[tuple[str, Finding, bool]]  # host, what was found there, whether it is waived


def of_profile(wish: Wish, session: Session, deep: Sequence[str] = ()) -> Found:
    """What is found on a profile's hosts that told what they have, by the checks and by the probes that are named."""
    from deploy import record  # what only looks at hosts starts without
    from deploy.deployment import drafts
    from deploy.operations.deploying import place

    session.keep(session.machines)
    if not session.remotes:
        return []
    with drafts.found(wish.profile, wish.inventory, session.remotes) as draft:
        plan = wish.plan(draft)
        nodes = {node.host.name: node for node in plan.nodes}

        texts = looking.Texts()

        def case(remote: Remote) -> Case:
            node = nodes[remote.host.name]
            remote.place = place(node, record.new_id(), session, Asked())
            return _case(node, remote, texts)

        return _found(session, case, deep)


def of_hosts(session: Session, deep: Sequence[str] = ()) -> Found:
    """What is found on hosts, whatever shall run there."""
    texts = looking.Texts()
    return _found(session, lambda remote: _case(None, remote, texts), deep)


def report(found: Found, failed: Mapping[str, DeployError], *, as_json: bool) -> int:
    """Print every finding, and why hosts told nothing (`failed`); the exit code of the worst: 5 for a FAIL that is not
    waived, 3 for a host that was not reached, 10 for an UNKNOWN.
    """
    told = [*found, *((host, _unseen(error), False) for host, error in failed.items())]
    if as_json:
        rows = [{"host": host, **asdict(one), "waived": waived} for host, one, waived in told]
        click.echo(json.dumps(rows, indent=1))
    else:
        _print(told)
    verdicts = {one.verdict for _, one, waived in told if not waived}
    if "FAIL" in verdicts:
        return CheckFailed.exit_code
    if any(isinstance(error, Unreachable) for error in failed.values()):
        return Unreachable.exit_code
    return Undecided.exit_code if "UNKNOWN" in verdicts else 0


def _case(node: Node | None, remote: Remote, texts: looking.Texts) -> Case:
    return Case(remote.host, looking.look(remote, looking.about(node, remote), texts=texts), node, remote)


def _found(session: Session, case: Callable[[Remote], Case], deep: Sequence[str]) -> Found:
    """All hosts side by side, then beside each other; a host that was not understood is told as such."""
    cases: dict[str, Case] = {}
    names = checks.having("check")
    each: dict[str, list[Finding]] = {}

    def one(remote: Remote) -> None:
        cases[remote.host.name] = case(remote)
        each[remote.host.name] = list(checks.run(cases[remote.host.name], names))

    failed = session.each(one)
    for name, error in failed.items():
        each[name] = [_unseen(error)]
    ordered = [cases[name] for name in session.remotes if name in cases]
    for name, finding in chain(checks.across(ordered), probes.run(deep, ordered)):
        each[name].append(finding)
    return [
        (name, finding, finding.verdict == "FAIL" and finding.check in _waive(cases.get(name)))
        for name in session.remotes
        for finding in each[name]
    ]


def _unseen(error: DeployError) -> Finding:
    """Of a host that no check could judge."""
    if isinstance(error, NoPython):
        return Finding("interpreter", "FAIL", error.what, error.evidence, error.remedy)
    topic = "ssh" if isinstance(error, Unreachable) else "look"
    return Finding(topic, "UNKNOWN", error.what, error.evidence, error.remedy)


def _waive(case: Case | None) -> list[str]:
    return case.node.profile.waive if case and case.node else []


def _print(told: Found) -> None:
    """Every finding; of several hosts, what passed in one line for each of them."""
    hosts = list(dict.fromkeys(host for host, _, _ in told))
    name = max(map(len, hosts), default=0)
    check = max((len(one.check) for _, one, _ in told), default=0)
    for host in hosts:
        own = [(one, waived) for whose, one, waived in told if whose == host]
        passed = [one.check for one, _ in own if one.verdict == "PASS"]
        if len(hosts) > 1 and passed:
            click.echo(f"{host:<{name}}  {_word('PASS')}  {', '.join(dict.fromkeys(passed))}")
        for one, waived in own:
            if len(hosts) == 1 or one.verdict != "PASS":
                what = f"{clean(one.what)}{' (waived)' if waived else ''}"
                click.echo(f"{host:<{name}}  {_word(one.verdict)}  {one.check:<{check}}  {what}")
                _evidence(one)
    counts: Counter[str] = Counter(one.verdict for _, one, _ in told)
    counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in COLOURS if counts[verdict])
    click.echo(f"{len(hosts)} host{'s' * (len(hosts) != 1)}: {counted}")


def _word(verdict: str) -> str:
    return click.style(f"{verdict:<7}", fg=COLOURS[verdict])


def _evidence(finding: Finding) -> None:
    if finding.verdict == "PASS":
        return
    for line in finding.evidence.splitlines():
        click.echo(f"    {clean(line)}")
    if finding.remedy:
        click.echo(f"    -> {clean(finding.remedy)}")
