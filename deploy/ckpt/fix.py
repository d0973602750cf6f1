"""`deploy ckpt fix`: plan a repair, show it, carry it out where the checkpoint lies."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from deploy import host
from deploy.checkpoint import repair, rules, verdict, versions
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.rules import Serving, Target
from deploy.ckpt import Where, document, opened
from deploy.deployment import releases, state
from deploy.errors import CheckFailed, ConfigError
from deploy.host import remedy
from deploy.host import repair as program
from deploy.host.remedy import Plan
from deploy.options import Options
from deploy.remote import Remote
from deploy.text.legible import clean, one_line

SHOWN, LONG = 60, 70  # rows of a plan, and characters of a cell; --json has all


@dataclass(frozen=True)
class How:
    """The options of the command, as they were typed."""

    out: str | None = None
    engine: str | None = None
    target: str | None = None
    in_place: bool = False
    no_orig: bool = False
    undo: bool = False
    dry_run: bool = False


def run(path: str, options: Options, how: How) -> int:
    """0: done, or nothing to do; 5: it cannot be repaired, or what is there now would still not serve."""
    _agree(how)
    engine, version = versions.parse(how.engine or "sglang")
    target = _target(how.target, options) if how.target else None
    with opened([path, *([how.out] if how.out else [])], options, "fix", locked=not how.dry_run) as places:
        where = places[0]
        to = _there(places[1], where) if how.out else None
        told: dict[str, Any] = {"path": path, "recovered": ""}
        if not how.dry_run:
            told["recovered"] = _act(where, {"mode": "recover"})["did"]
        if how.undo:
            told["undone"] = told["recovered"] or _act(where, {"mode": "undo"})["did"]
            return _tell(told, options)
        facts = where.facts(values=True)
        plan = repair.plan(facts, target.config if target else None, engine, version)
        told |= _as_json(plan)
        _show(_planned(told), options)
        now = where
        if plan and not plan.refusals and not how.dry_run:
            told |= _done(where, facts, plan, how, to)
            now = where if how.in_place else Where(told["folder"], where.remote)
            facts = now.facts(values=True)
        if not plan.refusals and not how.dry_run and remedy.NO_DRAFT not in plan.notes:
            told |= {"verdict": _verdict(facts, target, Serving(engine, version)), "check": _check(now, how)}
    return _tell(told, options, dry=how.dry_run)


def _agree(how: How) -> None:
    """Words that do not go together."""
    if how.out == "":
        raise ConfigError("--out names no folder", remedy="say --out PATH, or leave it out")
    if how.in_place and how.out:
        raise ConfigError("--in-place and --out exclude each other", remedy="say one of them")
    if how.no_orig and not how.in_place:
        raise ConfigError("--no-orig belongs to --in-place: a new folder leaves the original as it is")
    if how.undo and (how.in_place or how.out or how.dry_run):
        raise ConfigError("--undo goes alone: it takes back the last repair that was done in place")


def _target(path: str, options: Options) -> Target:
    """What the draft is for; its host is not locked, since nothing is changed there."""
    with opened([path], options, "fix") as (place,):
        facts = place.facts()
    return Target(facts.config, facts)


def _done(where: Where, facts: Facts, plan: Plan, how: How, to: str | None) -> dict[str, Any]:
    """Carry a plan out: in place, into a new folder, or of a release into a new release."""
    task = remedy.task(plan)
    folder = posixpath.dirname(facts.path) if facts.path.endswith(".safetensors") else facts.path
    release = _release(folder, where.remote)
    if how.in_place:
        if release:
            raise ConfigError(f"{folder} is a release, which is never changed", remedy="leave out --in-place")
        return _act(where, {**task, "mode": "in-place", "orig": not how.no_orig})
    if release and where.remote and to is None:
        return _as_release(where.remote, folder, release, task)
    return _act(where, {**task, "mode": "new", "out": to or f"{folder}-fixed"})


def _verdict(draft: Facts, target: Target | None, serving: Serving) -> str:
    """What `ckpt check` says of the result."""
    verdicts = {verdict.of(rules.found(case)) for case in rules.cases(draft, target, serving)}
    return verdicts.pop() if len(verdicts) == 1 else "could not tell"


def _check(where: Where, how: How) -> str:
    """The command that says more of what is there now."""
    path = f"{where.remote.host.name}:{where.path}" if where.remote else where.path
    words = ["deploy", "ckpt", "check", path, "--target", how.target or "MODEL"]
    return shlex.join(words + (["--engine", how.engine] if how.engine else []))


def _there(out: Where, where: Where) -> str:
    """The new folder's path where the checkpoint lies; on a host, a relative one lies beside it."""
    if out.remote is not None and out.remote is not where.remote:
        raise ConfigError(
            f"--out names {out.remote.host.name}, where the checkpoint does not lie", remedy="copy it first"
        )
    if where.remote is None:
        return str(Path(out.path).expanduser().absolute())
    beside = posixpath.dirname(where.path.rstrip("/"))
    return out.path if out.path.startswith("~") else posixpath.join(beside, out.path)


def _release(path: str, remote: Remote | None) -> str:
    """The folder of releases that a checkpoint lies in, or nothing."""
    folder = posixpath.dirname(path)
    if remote is not None:
        return folder if folder == state.read(remote).releases else ""
    return folder if posixpath.basename(folder) == "releases" and Path(f"{path}.json").is_file() else ""


def _as_release(remote: Remote, path: str, folder: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """A release is named by its content, so a repaired one is another; it keeps from which it was made."""
    incoming = f"{folder}/.{posixpath.basename(path)}-fixed.{state.read(remote).id}.incoming"
    remote.change('rm -rf -- "$1"', incoming)  # what a killed one left, perhaps of another plan
    answer = _act(Where(path, remote), {**task, "mode": "new", "out": incoming})
    found = releases.digest(incoming, remote)
    target = f"{folder}/{found.short}"
    releases.seal(found, incoming, target, remote, origin=f"{path}, repaired")
    return {**answer, "folder": target}


def _act(where: Where, task: Mapping[str, Any]) -> dict[str, Any]:
    """Let the host's program, or the same function here, do it."""
    task = {"path": where.path, **task}
    if where.remote is None:
        answer = program.act(task)
    else:
        text = json.dumps(task).encode()
        answer = where.remote.change_python(host.source("repair"), stdin=text, timeout=releases.READ_BACK)
    if "error" in answer:
        raise CheckFailed(answer["error"], remedy=answer.get("remedy", ""))
    return dict(answer)


def _as_json(plan: Plan) -> dict[str, Any]:
    return {
        "changes": [{"where": file, "old": old, "new": new} for file, old, new in repair.rows(plan)],
        "notes": list(plan.notes),
        "refusals": [asdict(refusal) for refusal in plan.refusals],
    }


def _tell(told: dict[str, Any], options: Options, *, dry: bool = False) -> int:
    bad = bool(told.get("refusals")) or told.get("verdict") in verdict.ORDER
    code = CheckFailed.exit_code if bad else 0
    if options.json:
        click.echo(document({"exit_code": code, **told}))
    else:
        _show(_ended(told, dry=dry), options)
    return code


def _show(lines: list[str], options: Options) -> None:
    for line in lines if not options.json else []:
        click.echo(clean(line))


def _planned(told: Mapping[str, Any]) -> list[str]:
    """A plan, for people: shown before anything is done."""
    changes = told["changes"]
    rows = [(change["where"], *(one_line(change[side], LONG) for side in ("old", "new"))) for change in changes[:SHOWN]]
    wide = max((len(old) for _, old, _ in rows), default=0)
    lines = [told["recovered"]] if told["recovered"] else []
    lines += [f"{where}:  {old:{wide}}  ->  {new}" for where, old, new in rows]
    lines += [f"... and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    lines += [f"note: {note}" for note in told["notes"]]
    for refusal in told["refusals"]:
        lines.append(f"cannot be repaired: {refusal['what']}")
        lines += [f"  {line}" for line in refusal["why"].splitlines()]
        lines += [f"-> {refusal['remedy']}"] if refusal["remedy"] else []
    return lines


def _ended(told: Mapping[str, Any], *, dry: bool) -> list[str]:
    """What came of a plan, for people."""
    if "undone" in told:
        return [told["undone"]]
    count = len(told["changes"])
    if told["refusals"]:
        return ["nothing was changed"]
    if not count:
        return ["nothing to repair", *_now(told)]
    changes = f"{count} change{'s' * (count != 1)}"
    if dry:
        return [f"{changes}; nothing was changed, as --dry-run wants it"]
    lines = [f"{name}: {how}" for name, how in told["files"].items() if how != "written"]
    lines.append(f"{changes}, {told['did']}: {told['folder']}")
    return [*lines, *_now(told)]


def _now(told: Mapping[str, Any]) -> list[str]:
    """What would come of serving it, and who says why; nothing where that was not asked."""
    now = told.get("verdict")
    if now is None:
        return []
    return ["now: will serve"] if now == "will serve" else [f"now: {now}", f"-> {told['check']}"]
