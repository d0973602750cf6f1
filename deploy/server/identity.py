"""Whether what answers is what was launched, judged from one look at its host: whose the port is, whose environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deploy.errors import NotReady, Undecided
from deploy.facts import identity
from deploy.facts.identity import Identity
from deploy.facts.processes import Process
from deploy.facts.sockets import Listener
from deploy.findings import Finding
from deploy.ownership.owned import owned
from deploy.plan import Node
from deploy.remote import Remote
from deploy.text import scrub

SHELL_OWN = {"_", "PWD", "OLDPWD", "SHLVL"}  # which the shell that starts the server sets by itself
WIPED = "setproctitle writes a process's title over it; env: {SPT_NOENV: 1} keeps it"


@dataclass(frozen=True)
class Serving:
    """The processes that serve the run on this host: the owners of its port, or on other ranks what was launched."""

    processes: tuple[Process, ...]
    findings: tuple[Finding, ...]
    paths: tuple[bool, ...]


def look(node: Node, remote: Remote, paths: Iterable[tuple[str, str | None]] = ()) -> Serving:
    """Prove by its processes that the run which is walked here is what answers on the node's port.

    `paths` are pairs as in `facts.identity.Question`. NotReady where the run is gone, where somebody else answers, or
    where a serving process lives in another environment than it was given; Undecided where that cannot be seen.
    """
    variables = {name: value for name, value in node.env if name not in SHELL_OWN}
    secret = dict.fromkeys(node.secret_variables)
    found = identity.read(
        remote,
        identity.Question(
            run=remote.place.server,
            port=node.port,
            env={**variables, **secret},
            hidden=[name for name in variables if scrub.is_secret(name)],
            paths=tuple(paths),
        ),
    )
    ours = _ours(found, remote.place.server)
    if not ours:
        raise NotReady(f"{remote.host.name}: the server is gone", remedy="deploy logs")
    serving = _launched(found, ours) if node.rank else _answering(found, ours, node, remote)
    _environment(found, serving, node, remote)
    return Serving(tuple(serving), tuple(_findings(found, ours, serving, node)), found.paths)


def _ours(found: Identity, folder: str) -> dict[int, Process]:
    """By the run's mark in its environment, by session, and an owner of the port also by descent from the launcher:
    one that wiped its environment and leads a session of its own has nothing else to show.
    """
    ours = {process.pid: process for process in owned(folder, found.living)}
    owners = {pid for listener in found.listeners for pid in listener.pids or ()}
    for process in found.living.all:
        if found.launcher and process.pid in owners and found.launcher.pid in found.living.ancestors(process.pid):
            ours[process.pid] = process
    return ours


def _launched(found: Identity, ours: Mapping[int, Process]) -> list[Process]:
    """What the launcher started; where that is gone, what is not the child of another one of the run."""
    parents = {found.launcher.pid} if found.launcher else set(found.living.ancestors(found.living.asked_by))
    first = [p for p in ours.values() if p.ppid in parents]
    return first or [p for p in ours.values() if p.ppid not in ours]


def _answering(found: Identity, ours: Mapping[int, Process], node: Node, remote: Remote) -> list[Process]:
    """The owners of the port that are ours; none where they cannot be seen, though they are our user's."""
    owners: list[Process] = []
    users = {process.uid for process in ours.values()}
    for listener in found.answering:
        if listener.pids is None and listener.uid in users:
            continue
        own = [ours[pid] for pid in listener.pids or () if pid in ours]
        if not own:
            raise _stranger(listener, found, ours, node, remote)
        owners += own
    return list(dict.fromkeys(owners))


def _stranger(
    listener: Listener, found: Identity, ours: Mapping[int, Process], node: Node, remote: Remote
) -> NotReady | Undecided:
    """Why the answer is not the run's: another process owns the port, also where ours listens beside it."""
    name, pids = remote.host.name, listener.pids or ()
    holders = [process for process in found.living.all if process.pid in pids]
    evidence = "\n".join(
        [
            *(f"listening on {listener.address}:{node.port}: {holder}" for holder in holders),
            f"launched: pid {', '.join(map(str, sorted(ours)))}",
        ]
    )
    environments = [found.environments.get(pid) for pid in pids]
    if any(one and one.wiped for one in environments):
        return Undecided(
            f"{name}: whose the process is that answers on port {node.port} cannot be told: its environment is wiped",
            evidence=evidence,
            remedy=f"{WIPED}. Is it what was launched?",
        )
    runs = remote.place.runs
    if run := next((p.run for p in holders if p.run and p.run.startswith(f"{runs}/")), None):
        return NotReady(
            f"{name}: port {node.port} is answered by run {run.rpartition('/')[2]}, not by {remote.place.run}",
            evidence=evidence,
            remedy=f"an older server of ours has the port still: deploy down profile={node.deployment}, then up again",
        )
    unseen = f"a process of user id {listener.uid}, which cannot be seen from here"
    whose = next((f"the server in {p.run}" for p in holders if p.run), "somebody else's process" if pids else unseen)
    return NotReady(
        f"{name}: port {node.port} is answered by {whose}",
        evidence=evidence,
        remedy="stop it, or choose another port",
    )


def _environment(found: Identity, serving: Iterable[Process], node: Node, remote: Remote) -> None:
    """NotReady where a serving process has not got what it was given: what started it dropped or exchanged it."""
    for process in _first(found, serving):
        if lines := list(_differing(found, process, node)):
            raise NotReady(
                f"{remote.host.name}: the server lives in another environment than it was given "
                f"({', '.join(name for name, _ in lines)})",
                evidence="\n".join([str(process), *(line for _, line in lines)]),
                remedy="does a wrapper (engine.python, engine.binary) set or drop variables? a container takes none",
            )


def _first(found: Identity, serving: Iterable[Process]) -> list[Process]:
    """Those of them that no other one of them started: an engine may give workers which share its port an environment
    of its own making.
    """
    pids = {process.pid for process in serving}
    return [process for process in serving if pids & found.living.ancestors(process.pid) == {process.pid}]


def _differing(found: Identity, process: Process, node: Node) -> Iterator[tuple[str, str]]:
    """(variable, a line that says what it is and what was wished)."""
    environment = found.environments.get(process.pid)
    wished = dict(node.env)
    for name, value in environment.differs.items() if environment else ():
        if name in wished and value and _holds(name, wished[name], value):
            continue
        wanted = "a secret" if name not in wished or scrub.is_secret(name) else repr(wished[name])
        it_is = "it is missing" if value is None else f"it is {value!r}" if value else "it is another one"
        yield name, f"{name}: wished {wanted}, {it_is}"


def _holds(name: str, wished: str, found: str) -> bool:
    """Whether a list has what was wished, as where a wrapper adds to LD_LIBRARY_PATH; or where an engine gives each of
    its processes one of the devices.
    """
    wanted, there = (set(re.split("[:,]", value)) for value in (wished, found))
    return there <= wanted if name.endswith("_VISIBLE_DEVICES") else name.endswith("PATH") and wanted <= there


def _findings(
    found: Identity, ours: Mapping[int, Process], serving: Iterable[Process], node: Node
) -> Iterator[Finding]:
    """What is no failure, but should be known."""
    own = {process.pid for process in serving}
    if not own and not node.rank:
        what = f"who listens on port {node.port} cannot be seen, so that it is ours is not proven"
        yield Finding("health", "WARN", what, remedy="does it run in another network namespace, or hide from /proc?")
    if found.launcher is None:
        what = "it has lost its launcher: how it ends will not be known"
        yield Finding("health", "WARN", what, remedy="deploy restart starts it anew")
    if wiped := [pid for pid in sorted(ours) if (one := found.environments.get(pid)) and one.wiped]:
        what = f"pid {', '.join(map(str, wiped))} has a wiped environment; that it is ours is known by its ancestors"
        yield Finding("health", "WARN", what, "\n".join(str(ours[pid]) for pid in wiped), WIPED)
    launcher = found.launcher.pid if found.launcher else 0  # a shell, which read the environment only later
    others: dict[str, list[int]] = {}
    for pid in sorted(set(ours) - {process.pid for process in _first(found, serving)} - {launcher}):
        for _, line in _differing(found, ours[pid], node):
            others.setdefault(line, []).append(pid)
    if others:
        lines = "\n".join(f"{line} (pid {', '.join(map(str, pids))})" for line, pids in others.items())
        names = ", ".join(line.partition(":")[0] for line in others)
        what = f"processes of the server live in another environment than it: {names}"
        yield Finding("health", "WARN", what, lines, "the engine sets them by itself, or one that it starts drops them")
