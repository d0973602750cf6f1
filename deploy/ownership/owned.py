"""Which processes of a host belong to a deployment of ours: each by a proof, none by how it is called."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from deploy.facts.launched import Launch
from deploy.facts.processes import Process, Processes

Known = Collection[tuple[int, int]]  # pids and start ticks of those that were proved before


def owned(folder: str, living: Processes, launches: Iterable[Launch] = (), before: Known = ()) -> list[Process]:
    """The living processes of the runs in `folder` (a run's own, or a deployment's `runs`), as `proofs` has them."""
    return list(proofs(folder, living, launches, before))


def proofs(folder: str, living: Processes, launches: Iterable[Launch] = (), before: Known = ()) -> dict[Process, str]:
    """The same, and by what each is known, in the order of their pids.

    By itself: it is the launcher that a run wrote down (pid, start ticks, boot), its environment names the run, or its
    environment is wiped (setproctitle does) and its output is the run's log. By another one that is known: it is in the
    session or the process group which that one leads, it descends from it, or it is in the session of a launcher that
    is gone; or its environment is wiped, and its control group is a scope that the run has made for itself. The number
    of a session or a group is given to nobody else while it has a member. Who was proved `before` stays so when the
    one that proved it has ended. Never among them: our own connection, whoever started it, who says by its environment
    that it is of a run elsewhere, and `logcap`, which dies with the launcher by itself.
    """
    own = living.ancestors(living.asked_by)
    others = {process.pid for process in living.all if _elsewhere(process, folder)}
    alive = [process for process in living.all if not process.zombie and process.pid not in own | others]
    here = {launch.pid: launch for launch in launches if launch.boot_id == living.boot_id}
    known = {process.pid: "it was known before" for process in alive if (process.pid, process.start_ticks) in before}
    known |= {process.pid: why for process in alive if (why := _itself(process, folder, here))}
    count = -1
    while count != len(known):
        count = len(known)
        found = {process.pid: process for process in alive if process.pid in known}
        related = _Related(found, here, living)
        known |= {p.pid: why for p in alive if p.pid not in known and (why := related.by(p))}
    return {process: known[process.pid] for process in alive if process.pid in known}


def _itself(process: Process, folder: str, launches: Mapping[int, Launch]) -> str:
    if launch := _launcher(process, launches):
        return f"it is the launcher of run {_name(launch.run)}"
    if process.run and within(process.run, folder):
        return f"its environment names run {_name(process.run)}"
    log = next((path for path in process.writes if process.wiped and _is_file(path, "server.log", folder)), "")
    return f"its environment is wiped, and it writes to {log}" if log else ""


class _Related:
    """What those that are known say of others."""

    def __init__(self, known: Mapping[int, Process], launches: Mapping[int, Launch], living: Processes) -> None:
        self.known = known
        self.sessions = {pid for pid, process in known.items() if process.session == pid}
        self.groups = {pid for pid, process in known.items() if process.pgrp == pid}
        there = {process.pid for process in living.all if not _launcher(process, launches)}
        self.orphaned = {p.session for p in known.values() if p.session in launches and p.session not in there}
        self.scopes = _scopes(known.values(), launches)

    def by(self, process: Process) -> str:
        """How one of them proves that this one belongs to them; "" where none does."""
        if process.session in self.sessions:
            return f"it is in the session of pid {process.session}"
        if process.session in self.orphaned:
            return f"it is in the session of the launcher, pid {process.session}, which is gone"
        if process.pgrp in self.groups:
            return f"it is in the process group of pid {process.pgrp}"
        if process.ppid in self.known:
            return f"it is a child of pid {process.ppid}"
        alone = process.wiped and process.cgroup in self.scopes
        return f"its environment is wiped, and it is in {process.cgroup}, which the run has made" if alone else ""


def _scopes(known: Collection[Process], launches: Mapping[int, Launch]) -> set[str]:
    """Control groups that a run has made (systemd-run --scope): one of it is there, and its launcher lives elsewhere.
    That of the launcher itself is a login's, whose other programs, and hooks, are none of ours.
    """
    of = {launch.run: process.cgroup for process in known if (launch := _launcher(process, launches))}
    made = {process.cgroup for process in known if process.run in of and process.cgroup != of[process.run]}
    return {path for path in made if path.endswith(".scope")} - {*of.values()}


def _launcher(process: Process, launches: Mapping[int, Launch]) -> Launch | None:
    launch = launches.get(process.pid)
    return launch if launch and launch.start_ticks == process.start_ticks else None


def heads(ours: Iterable[Process], launches: Iterable[Launch] = ()) -> list[Process]:
    """Those that end the others in order when they are told to: what the launchers started; where these are gone,
    whoever is no child of another one of ours.
    """
    ours = list(ours)
    pids = {process.pid for process in ours}
    starters = {(launch.pid, launch.start_ticks) for launch in launches}
    launchers = {process.pid for process in ours if (process.pid, process.start_ticks) in starters}
    return [p for p in ours if p.ppid in launchers] or [p for p in ours if p.ppid not in pids]


def inside_of(living: Processes, launches: Iterable[Launch]) -> Launch | None:
    """The run whose launcher our own connection descends from: it would end itself with the server."""
    own = living.ancestors(living.asked_by)
    ours = {(process.pid, process.start_ticks) for process in living.all if process.pid in own}
    here = (launch for launch in launches if launch.boot_id == living.boot_id)
    return next((launch for launch in here if (launch.pid, launch.start_ticks) in ours), None)


def within(run: str, folder: str) -> bool:
    """Whether a run's folder is that one, or lies in it."""
    return run == folder or run.startswith(f"{folder}/")


def _elsewhere(process: Process, folder: str) -> bool:
    if process.run:
        return not within(process.run, folder)
    return any(_is_file(path, "logcap.log", folder) for path in process.writes)


def _is_file(path: str, called: str, folder: str) -> bool:
    """Whether it is the file of that name of a run in the folder, or was: somebody may have removed it."""
    parent, _, name = path.removesuffix(" (deleted)").rpartition("/")
    return name == called and within(parent, folder)


def _name(run: str) -> str:
    return run.rpartition("/")[2]


def zombies(ours: Iterable[Process], living: Processes) -> Iterator[tuple[Process, Process | None]]:
    """Those of ours that are dead and not reaped, each with the parent that has not noticed."""
    by_pid = {process.pid: process for process in living.all}
    meant = {(process.pid, process.start_ticks) for process in ours}
    for process in living.all:
        if process.zombie and (process.pid, process.start_ticks) in meant:
            yield process, by_pid.get(process.ppid)
