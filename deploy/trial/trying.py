"""`deploy try`: candidates one after another through the whole of a restart, and at the end the best, or what was."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import click

from deploy import wish
from deploy.bench import benching
from deploy.deployment.state import Run
from deploy.errors import DeployError, Interrupted, Locked, Unreachable
from deploy.events import Event
from deploy.measuring.measurement import Measurement
from deploy.operations import deploying, restoring, running
from deploy.operations.deploying import How
from deploy.operations.restoring import Before
from deploy.operations.running import Running
from deploy.options import Options
from deploy.record.mask import masked
from deploy.settings import sources
from deploy.swapping import Hot
from deploy.text import scrub, tables
from deploy.trial import candidates, tried
from deploy.trial.candidates import Candidate
from deploy.trial.tried import Left, Past, Tried
from deploy.walk.session import Session
from deploy.wish import Wish

ENDING = (Interrupted.exit_code, Locked.exit_code, Unreachable.exit_code)  # after these nothing more is tried


@dataclass
class Trial:
    """A series of candidates on hosts in hand and locked; what ran before is None where nothing ever did."""

    options: Options
    session: Session
    deployment: str
    before: Before | None
    past: Past | None
    common: tuple[str, ...] = ()  # words that all candidates have
    hot: Hot = "try"
    tried: list[Tried] = field(default_factory=list)

    def all(self, wished: Sequence[tuple[Candidate, Wish]]) -> None:
        """Try each, whatever becomes of those before it."""
        for number, (candidate, wanted) in enumerate(wished, 1):
            note = f"candidate {number} of {len(wished)}: {candidate.name}{self._left(len(wished) - number + 1)}"
            self.session.emit("noted", note)
            if self.options.output == "quiet":  # where failures alone are told, whose they are
                click.echo(note, err=True)
            self.session.command = self._command(candidate)
            started = time.monotonic()
            try:
                one = self._one(candidate, wanted)
            except KeyboardInterrupt:
                one = Tried(candidate, Interrupted.exit_code, "stopped")
            except DeployError as error:
                self.session.emit("noted", error.what)
                one = Tried(candidate, error.exit_code, error.what)
            self.tried.append(replace(one, seconds=time.monotonic() - started))
            if one.code in ENDING:
                return

    def _command(self, candidate: Candidate) -> str:
        """What its own record calls it, so that history and reports tell which one it was."""
        words = [*candidate.words, f"profile={self.deployment}", *self.common]
        return " ".join(scrub.words(["try", *filter(None, [candidate.ckpt]), *words]))

    def _left(self, many: int) -> str:
        """How long so many of them may take, by those that came to their end."""
        took = [one.seconds for one in self.tried if one.code in (0, 9, 10)]
        seconds = many * sum(took) / len(took) if took else 0
        return f"; about {seconds / 60:.0f} min left" if seconds >= 60 else ""

    def _one(self, candidate: Candidate, wanted: Wish) -> Tried:
        restoring.on_trial(self.session, self.deployment, self._kept)
        instead = self.before.instead if self.before else {}
        done = deploying.brought_up(wanted, self.options, self.session, How(hot=self.hot, trial=True, instead=instead))
        why = "; ".join(dict.fromkeys(word for failure in done.failures for word in tried.reasons(failure)))
        # whoever stops it in a step that fails of itself in that moment means the whole of it as well
        code = Interrupted.exit_code if self.session.interrupted.is_set() else done.code
        self.session.renew()
        runs = self._runs([host.name for host in wanted.hosts])
        measured = slowest(runs, self.session) if "bench" in done.ended else None
        return Tried(candidate, code, why, run=done.run, runs=runs, measured=measured)

    def _runs(self, hosts: Sequence[str]) -> dict[str, Run]:
        found = {name: self.session.machines[name].current(self.deployment) for name in hosts}
        return {name: run for name, run in found.items() if run}

    @property
    def _kept(self) -> frozenset[str]:
        """The runs that a rollback may go to, unlike what is only tried."""
        return self.before.ids if self.before else frozenset()

    def leave(self, wanted: str) -> Left:
        """Let the best one run, or what ran before; DeployError where that is not what runs then."""
        stopped = self.tried[-1].code == Interrupted.exit_code
        if wanted == "last" and not stopped:
            return self._last()
        best = tried.best(self.tried) if wanted == "best" and not stopped else None
        if best is None:
            return self._back()
        if self.before and self._ids(best.runs) == self.before.ids:
            return replace(self._back(), what="best", of=best.run)
        if restoring.serves(best.runs, self.deployment, self.session):
            restoring.stays(self.deployment, self.session)
            return Left("best", best.run, best.run)
        self.session.emit("noted", f"the best is {best.candidate.name}: its run is started again")
        hosts = {name: self.session.remotes[name].host for name in best.runs}
        found = Running(self.deployment, best.runs, hosts)
        done = restoring.again(found, self._kept, self.options, self.session, self.hot)
        if done.code:
            raise DeployError(
                f"{best.candidate.name}, the best candidate, did not start again",
                evidence="\n".join(failure["what"] for failure in done.failures),
                remedy="deploy status says what runs",
            )
        self.session.renew()
        restoring.stays(self.deployment, self.session)  # where it serves still
        return Left("best", best.run, done.run)

    def _last(self) -> Left:
        """What the last one left, which need not be its own run: one that was refused has touched nothing."""
        self.session.renew()
        restoring.stays(self.deployment, self.session)
        now = self._ids(self._runs(list(self.session.machines)))
        if self.before and now == self.before.ids:
            serves = restoring.serves(self.before.found.runs, self.deployment, self.session)
            return self._as_before(self.before) if serves else Left("nothing")
        owner = next((one for one in self.tried if one.run and self._ids(one.runs) == now), None)
        return Left("last", owner.run, owner.run) if owner else Left("nothing")

    @staticmethod
    def _ids(runs: Mapping[str, Run]) -> set[str]:
        return {run.id for run in runs.values()}

    @staticmethod
    def _as_before(before: Before, back: str = "") -> Left:
        return Left("before", before.run, back or before.run) if before.alive else Left("nothing")

    def _back(self) -> Left:
        self.session.renew()
        if self.before:
            done = restoring.restored(self.before, self.options, self.session, self.hot)
            return self._as_before(self.before, restoring.demanded(self.before, done))
        if running.deployments(self.session).get(self.deployment):
            restoring.ended(self.deployment, self.options, self.session)
        return Left("nothing")


def slowest(runs: Mapping[str, Run], session: Session) -> Measurement | None:
    """What was measured on the heads; of several the slowest."""
    heads = [session.remotes[name] for name, run in runs.items() if run.node and run.node.rank == 0]
    found = [measured for measured in map(benching.read, heads) if measured and measured.rungs]
    return min(found, key=lambda one: one.figures()["tok_s"].value, default=None)


def attempt(options: Options, session: Session, leave: str, hot: Hot) -> int:
    """Try all candidates of the words, and tell what became of them; the exit code."""
    name, words = sources.take("profile", options.words)
    common, wanted = candidates.of(words)
    running.ask(options, session, all_must_answer=True)
    known = running.deployments(session)
    found = None if name and name not in known else running.the_one(options, session)
    wished = _wishes(found, name, common, wanted, options)  # what is wrong is told before any lock
    if found is None:
        session.keep([])
        session.open(wished[0][1].hosts, locked=True)
        trial = Trial(options, session, str(name), None, None, tuple(common), hot)
    else:
        found = restoring.meant(running.locked(found, session), session)
        wished = _wishes(found, name, common, wanted, options)
        trial = Trial(
            options, session, found.name, restoring.seen(found, session), _past(found, session), tuple(common), hot
        )
    typed = session.command
    trial.all(wished)
    session.command = typed
    return _ended(trial, leave)


def _past(found: Running, session: Session) -> Past:
    for node in found.plan().nodes if found.told else ():
        remote = running.placed(node, session)  # of a broken off trial: of its candidate, which is not what is meant
        remote.place = replace(remote.place, run=found.runs[node.host.name].id)
    first = next(iter(found.runs.values()))
    return Past(first.id, first.good, slowest(found.runs, session) if found.told else None)


def _wishes(
    found: Running | None, name: str | None, common: Sequence[str], wanted: Sequence[Candidate], options: Options
) -> list[tuple[Candidate, Wish]]:
    """Each candidate as what a restart, or where there is nothing yet an `up`, would be asked for."""
    told = []
    for one in wanted:
        own = replace(options, words=(*common, *one.words))
        if found is None:
            wished = wish.load(name, own, ckpt=one.ckpt)
        else:
            wished = wish.load(found.name, own, words=found.words(), ckpt=one.ckpt, kept=found.ckpt())
            wished = wish.where(wished, found.hosts.values())
        told.append((one, wished))
    return told


def _ended(trial: Trial, leave: str) -> int:
    """Leave what is to be left, and tell; an error of that is told after the table, which was hard won."""
    error: DeployError | None = None
    try:
        left = trial.leave(leave)
    except (DeployError, KeyboardInterrupt) as failed:
        error = failed if isinstance(failed, DeployError) else Interrupted("stopped", remedy="deploy status")
        left = Left("unknown")
    code = error.exit_code if error else tried.code(trial.tried)
    if trial.tried[-1].code == Interrupted.exit_code:
        code = Interrupted.exit_code
    _tell(trial, left, code, error)
    trial.session.outcome = (code, f"tried {len(trial.tried)}, left: {left.what}")
    if error and not trial.options.json:
        raise error
    return code


def _tell(trial: Trial, left: Left, code: int, error: DeployError | None) -> None:
    shown = tried.document(trial.tried, left, trial.past, code)
    shown["error"] = error and {"what": error.what, "evidence": error.evidence, "remedy": error.remedy}
    rows = tried.rows(trial.tried, left, trial.past)
    event = masked(Event("noted", facts={"document": shown, "rows": rows}), trial.session.hidden)
    if trial.options.json:
        click.echo(json.dumps(event.facts["document"], indent=1))
    elif trial.options.output == "jsonl":
        click.echo("\n".join(tables.lines(event.facts["rows"], tried.COLUMNS)), err=True)
    else:
        tables.table(event.facts["rows"], tried.COLUMNS)
    for note in tried.beside(trial.tried):
        click.echo(note, err=True)
