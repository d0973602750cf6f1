"""What a log explains, as a document and as text: of a file, or of what runs or ran last on each host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from deploy import engines, render
from deploy.abreast import together
from deploy.deployment import state
from deploy.deployment.state import Run
from deploy.engines import Engine, _explain
from deploy.engines._ending import STATUS
from deploy.engines._log import UNSEEN, Explanation, Progress, Seen, Signature, lines
from deploy.facts import processes
from deploy.host import hide, signs
from deploy.logs import logfile
from deploy.remote import Remote
from deploy.text import scrub
from deploy.walk.session import Session

HEAD, TAIL = 256 << 10, 2 << 20  # bytes of a host's log: how it began, and how it ended
SILENT = 60.0  # seconds without a line after which a server that is not ready is asked what it waits for
# What `logcap` took off the log's beginning lies in server.log.1.
READ = """cd -- "$3" && stat -L -c %Y server.log && date +%s || exit 1
all() { cat server.log.1 server.log 2>/dev/null; }
if [ "$(all | wc -c)" -le $(($1 + $2)) ]; then all; else all | head -c "$1"; echo; all | tail -c "$2"; fi"""


@dataclass(frozen=True)
class Account:
    """What one log tells of its last start. `how` is how the server is, where that is known; `earlier` says, start by
    start, what became of those before it.
    """

    where: str
    engine: str
    told: Explanation | None
    notes: tuple[Explanation, ...]
    step: Progress | None
    ready: bool
    how: str = ""
    earlier: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether it is clear what became of the server."""
        return self.told is not None or self.ready

    def document(self, name: str) -> dict[str, Any]:
        """For programs; `name` is what it is of: a log, a host."""
        told, phase = self.told, self.step.phase if self.step else None
        return {
            name: self.where,
            "engine": self.engine,
            "state": self.how or None,
            "phase": phase,
            "ready": self.ready,
            "failure": _document(told) if told else None,
            "notes": [_document(note) for note in self.notes],
            "earlier": list(self.earlier),
        }

    def show(self) -> None:
        """For people, on stdout."""
        for line in self._lines():
            click.echo(render.clean(scrub.text(line)))

    def _lines(self) -> Iterator[str]:
        yield f"{'stdin' if self.where == '-' else self.where} ({self.engine}){f': {self.how}' if self.how else ''}"
        if told := self.told:
            name = "" if told.signature in STATUS else f"{told.signature}  "  # which their causes begin with
            yield f"{name}{f'{told.rank}: ' if told.rank else ''}{told.cause}"
            yield from (f"    {line}" for line in told.evidence.splitlines())
            yield f"-> {told.remedy}"
            yield from (f"it followed: {words}" for words in told.consequences)
        elif self.ready:
            yield "no failure is told; it came up"
        else:
            step = self.step
            far = f"it came as far as the phase {step.phase} ({step.text})" if step else "no phase of a start is told"
            yield f"no failure is told, and no end: {far}"
            if not step:
                yield "-> is that a server's log? deploy explain LOGFILE --engine NAME, if it was not recognised"
        if self.earlier:
            became = (f"{what}{f' (x {n})' if n > 1 else ''}" for what, n in Counter(self.earlier).items())
            yield f"that is the last of {len(self.earlier) + 1} starts in this log; before it: {', '.join(became)}"
        for note in self.notes:
            yield f"worth knowing: {note.signature}  {note.cause}"
            if not self.told:
                yield f"    {note.evidence.splitlines()[0] if note.evidence else ''}"
                yield f"-> {note.remedy}"


def _document(told: Explanation) -> dict[str, Any]:
    return {
        "signature": told.signature,
        "cause": scrub.text(told.cause),
        "remedy": told.remedy,
        "rank": told.rank or None,
        "time": told.time or None,
        "kind": told.kind,
        "evidence": scrub.text(told.evidence).splitlines(),
        "consequences": list(told.consequences),
    }


def of_log(where: str, log: str, engine: str | None, seen: Seen = UNSEEN) -> Account:
    """What a log tells by itself; its engine is recognised where none is named."""
    name = engine or logfile.recognised(log, engines.every())
    found = _account(where, name, engines.load(name), log, seen)
    return found if seen.exit is None else replace(found, how=f"ended with exit code {seen.exit}")


def on_hosts(
    session: Session, runs: Mapping[str, Run], engine: str | None, known: tuple[Signature, ...]
) -> list[Account]:
    """What the logs of runs tell, by the time of the failure: the host that failed first comes first.

    A server that lives and has said nothing for a minute before it was ready is asked what it waits for.
    """
    accounts: dict[str, Account] = {}
    heads = {run.id: run.verdict for run in runs.values() if run.verdict}

    def look(remote: Remote) -> None:
        run = runs[remote.host.name]
        run = replace(run, verdict=run.verdict or heads.get(run.id))
        told = _on_host(remote, run, engine, known, session.hidden)
        if run.alive and run.torn and not told.told:
            told = _torn(told, run, session.machines[remote.host.name].busy)
        accounts[remote.host.name] = told

    session.keep(runs)
    if failed := session.each(look):
        raise together(failed)
    return sorted(accounts.values(), key=order)


def order(account: Account) -> tuple[bool, bool, str]:
    """Causes by time, before what follows from them, before what is not told."""
    told = account.told
    return told is None, bool(told and told.kind != "cause"), told.time if told else ""


def _on_host(
    remote: Remote, run: Run, engine: str | None, known: tuple[Signature, ...], hidden: Iterable[str]
) -> Account:
    written, now, log = (*remote.sh(READ, str(HEAD), str(TAIL), run.folder, ok=(0, 1)).split("\n", 2), "", "")[:3]
    log = hide.hide(log, hide.forms(hidden))
    name = engine or (run.node.profile.engine.name if run.node else logfile.recognised(log, engines.every()))
    seen = Seen(known=known, exit=int(run.exit) if run.exit.isdigit() and not run.alive else None)
    found = _account(remote.host.name, name, engines.load(name), log, seen)
    # its log may no longer say so, or never does, as that of a follower; a draft came only into what was ready
    found = replace(found, ready=found.ready or run.verdict is not None or run.swapped)
    if run.alive and not found.ready and not found.told and written.isdigit() and now.isdigit():
        quiet = float(int(now) - int(written))
        if quiet >= SILENT:
            seen = replace(seen, silent=quiet, compilers=_compilers(remote, run))
            found = _account(remote.host.name, name, engines.load(name), log, seen)
        return replace(found, how=f"run {run.id} lives, its last line is {quiet:.0f} s old")
    of = f" (in the server of run {run.server.rpartition('/')[2]})" if run.swapped else ""
    return replace(found, how=f"run {run.id}{of} {'lives' if run.alive else run.ending}")


def _torn(account: Account, run: Run, busy: str) -> Account:
    """Of a server that is paused: its log has nothing of why."""
    if busy:
        return replace(account, how=f"{account.how}; {state.SWAPPING}: {busy}")
    remedy = f"deploy restart profile={run.node.deployment}" if run.node else "deploy restart"
    return replace(account, told=Explanation("torn", state.TORN, remedy, ""))


def _compilers(remote: Remote, run: Run) -> tuple[str, ...]:
    """The compilers that work for a run."""
    found = (one for one in processes.read(remote).all if one.run == run.server and one.name in signs.COMPILERS)
    return tuple(dict.fromkeys(" ".join(one.cmdline)[:200] for one in found))


def _account(where: str, name: str, engine: Engine, log: str, seen: Seen) -> Account:
    *earlier, log = engine.DIALECT.starts(log)
    step = next(filter(None, map(engine.progress, reversed(lines(log)))), None)
    notes = _explain.notes(engine.DIALECT, log, seen.known)
    told, became = engine.explain(log, seen), tuple(_became(engine, one, seen.known) for one in earlier)
    return Account(where, name, told, notes, step, _came_up(engine, log), earlier=became)


def _came_up(engine: Engine, log: str) -> bool:
    return bool(engine.READY and engine.READY.search(log))


def _became(engine: Engine, log: str, known: tuple[Signature, ...]) -> str:
    """What became of an earlier start, in words."""
    if told := engine.explain(log, Seen(known=known)):
        return f"{told.signature} {f'{told.rank}: ' if told.rank else ''}{told.cause}"
    return "it came up" if _came_up(engine, log) else "no end is told"
