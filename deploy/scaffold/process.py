"""A server that runs already, by the id of one of its processes: how it was started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from deploy import engines, host
from deploy.errors import ConfigError, DeployError
from deploy.facts import processes, sockets
from deploy.facts.processes import Process, Processes
from deploy.remote import Remote
from deploy.scaffold import Launch, Word, kept
from deploy.scaffold.commands import SHELLS

FIRST = 1  # everybody's ancestor
RUN = "DEPLOY_SERVER"  # a server that this tool has launched: the folder of its run


@dataclass(frozen=True)
class Found:
    """A running server; `environ` is all that its environment has."""

    launch: Launch
    environ: Mapping[str, Word]
    pid: int


def read(remote: Remote, pid: int) -> Found:
    """The server that a process belongs to. ConfigError where there is none, or it may not be read."""
    living = processes.read(remote)
    leader = _leader(remote, living, pid)
    told = remote.python(host.source("server"), str(leader.pid))
    if told["error"]:
        raise _unreadable(remote, living, leader, told["error"])
    source = f"process {leader.pid} on {remote.host.name}"
    notes = () if leader.pid == pid else (f"{pid} is a part of the server {leader.pid}, which was taken",)
    environ = {name: Word(value) for name, value in told["environ"].items()}
    argv, own = _without_run(told)
    launch = Launch(
        source,
        source,
        tuple(Word(word) for word in argv),
        {name: word for name, word in environ.items() if kept.matters(name)},
        notes=(*notes, *own),
        whole=_whole(told["places"]),
    )
    if "--port" not in " ".join(argv):
        launch = _with_port(remote, launch, living, leader)
    return Found(launch, environ, leader.pid)


def _whole(places: Mapping[str, str]) -> Callable[[str, bool], str | None]:
    return lambda text, _: places.get(text)


def _without_run(told: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Words that name files of a run of this tool: the draft by its release, secrets not at all."""
    run, links = told["environ"].get(RUN), told["links"]
    if not run:
        return told["argv"], []
    argv: list[str] = []
    notes = [f"it was launched by this tool: {told['serving']}/manifest.json has its own profile"]
    for word in told["argv"]:
        if word in (f"{run}/secrets.yaml", f"{run}/secrets"):
            argv.pop()
            notes.append("its secrets are left out: the manifest names them")
        else:
            argv.append(links.get(word, word) if word.startswith(f"{run}/draft") else word)
    return argv, notes


def _leader(remote: Remote, living: Processes, pid: int) -> Process:
    """The outermost process above `pid` that is a server by its words; else the one below it in its session; else
    itself. A server below that nobody meant for sure is named, and not taken.
    """
    of = {process.pid: process for process in living.all if not process.zombie}
    if pid not in of:
        _missing(remote, pid)
    above = _above(of, pid)
    servers = [process for process in above if _is_server(process)]
    if servers:
        return servers[-1]
    below = _below(living, of, pid)
    if pid != FIRST and len(below) == 1 and below[0].session == of[pid].session:
        return below[0]
    if pid != FIRST and not below:
        return of[pid]
    many = f"{len(below)} servers descend from it" if len(below) > 1 else "one descends from it, in another session"
    why = "every process descends from it" if pid == FIRST else many
    raise ConfigError(
        f"process {pid} on {remote.host.name} is no server, and {why}",
        evidence="\n".join(f"{one.pid}: {one.cmdline[0]} ..." for one in below),  # any other word may be a secret
        remedy=" or ".join(f"--from {remote.host.name}:{one.pid}" for one in below[:8]) or "the server's own process",
    )


def _below(living: Processes, of: Mapping[int, Process], pid: int) -> list[Process]:
    """The servers that descend from a process, each without its own workers."""
    lines = {one: living.ancestors(one) for one in of}
    servers = {one for one, line in lines.items() if pid in line and _is_server(of[one])}
    return [of[one] for one in sorted(servers) if not (lines[one] - {one}) & servers]


def _above(of: Mapping[int, Process], pid: int) -> list[Process]:
    """From a process upward, as long as it is one user's."""
    line: list[Process] = []
    while pid in of and of[pid] not in line and (not line or of[pid].uid == line[0].uid):
        line.append(of[pid])
        pid = of[pid].ppid
    return line


def _is_server(process: Process) -> bool:
    words = process.cmdline
    return bool(words) and words[0].rpartition("/")[2] not in SHELLS and engines.recognise(words) is not None


def _missing(remote: Remote, pid: int) -> NoReturn:
    listeners = sockets.on(pid, sockets.read(remote))
    owner = next((owner for listener in listeners for owner in listener.pids or ()), None)
    if owner:
        raise ConfigError(
            f"{remote.host.name} has no process {pid}; it is a port there, of process {owner}",
            remedy=f"--from {remote.host.name}:{owner}",
        )
    raise ConfigError(
        f"{remote.host.name} has no process {pid} that can be seen from here",
        remedy="ps -ef there; a process of another user may be hidden from you",
    )


def _unreadable(remote: Remote, living: Processes, leader: Process, error: str) -> DeployError:
    us = next((process.user for process in living.all if process.pid == living.asked_by), "?")
    if error == "PermissionError":
        return ConfigError(
            f"process {leader.pid} on {remote.host.name} is {leader.user}'s; {us} may not read its environment",
            remedy=f"as that user, or as root: deploy init --from {leader.user}@{remote.host.address}:{leader.pid}",
        )
    return ConfigError(f"process {leader.pid} on {remote.host.name} ended just now")


def _with_port(remote: Remote, launch: Launch, living: Processes, leader: Process) -> Launch:
    """Where a server without an engine does not say its port, the one on which it listens."""
    name, _ = engines.recognise([word.text for word in launch.argv]) or ("command", None)
    if engines.load(name).PORT is not None:
        return launch
    mine = {process.pid for process in living.all if leader.pid in living.ancestors(process.pid)}
    ports = sorted({found.port for found in sockets.read(remote) if mine & set(found.pids or ())})
    if not ports:
        return launch
    note = f"port {ports[0]} is the one on which it listens; its command line does not say it"
    return replace(launch, port=ports[0], notes=(*launch.notes, note))
