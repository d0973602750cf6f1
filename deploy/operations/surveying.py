"""`deploy hosts`: every host of the inventory as it is now, by one program on each, as a document and as text."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import click

from deploy import engines, environments, host, inventory, registry, settings
from deploy.abreast import on_all
from deploy.deployment import state
from deploy.deployment.state import Machine, Run
from deploy.errors import ConfigError, DeployError, RemoteFailed
from deploy.facts import gpus, interpreter, system
from deploy.inventory import Host, Inventory
from deploy.operations import running
from deploy.options import Options, environ
from deploy.profile import Engine
from deploy.project import home
from deploy.remote import Remote
from deploy.text import tables
from deploy.walk.session import Session

EACH = 20  # seconds that one question may take on a host
QUIET = 2.0  # seconds after which it is said who is waited for
COLUMNS = tuple("host address groups ms user system python gpus engines deployed busy hold why".split())

Row = dict[str, Any]


def survey(options: Options, session: Session) -> list[Row]:
    """A row for each host, side by side; one that cannot be reached says why."""
    found = inventory.load(home(options).inventory)
    wanted = running.named(options, found)
    pythons = _interpreters(options, wanted)
    rows: dict[str, Row] = {}

    def one(where: Host) -> None:
        began = time.monotonic()
        remote = session.reach(where)
        ms = round((time.monotonic() - began) * 1000)
        rows[where.name] = {"state": "reachable", "ms": ms, **_ask(remote, pythons[where.name])}

    waiting = threading.Timer(QUIET, lambda: _say_who_is_awaited({host.name for host in wanted} - rows.keys()))
    waiting.daemon = True
    waiting.start()
    failed = on_all(list(wanted), one)
    waiting.cancel()
    return [{**_written(where, found), **rows.get(where.name, {}), **_why(failed.get(where.name))} for where in wanted]


def _say_who_is_awaited(names: set[str]) -> None:
    if sys.stderr.isatty():
        click.echo(f"waiting for {', '.join(sorted(names))}", err=True)


def _written(where: Host, found: Inventory) -> Row:
    """What the inventory says of a host."""
    groups = [name for name in found.groups if any(one.name == where.name for one in found.select(name))]
    row = {"host": where.name, "transport": where.transport, "address": where.address, "port": where.port}
    return {**row, "user": where.user, "jump": where.jump, "groups": groups, "gpus_expected": where.gpus}


def _why(error: DeployError | None) -> Row:
    if error is None:
        return {}
    return {"state": "unreachable", "why": error.what, "evidence": error.evidence, "remedy": error.remedy}


# ---- one round trip ------------------------------------------------------------------------------------------------


def _ask(remote: Remote, pythons: Iterable[tuple[str, str]]) -> Row:
    """All questions at once: the programs of the facts, run side by side by one."""
    questions: dict[str, tuple[str, ...]] = {
        "state": (*remote.interpreter, *state.question(remote.host)),
        "system": (*remote.interpreter, host.source("system")),
        "gpus": gpus.PLAIN,
    }
    for number, pair in enumerate(pythons):
        questions[f"engine {number}"] = (*remote.interpreter, host.source("interpreter"), *pair)
    answers = remote.python(
        host.source("several"), str(EACH), timeout=EACH + 10.0, stdin=json.dumps(questions).encode()
    )
    about, machine = _about(answers["system"]), _machine(answers["state"])
    installed = (answers[f"engine {number}"] for number in range(len(questions) - 3))
    return {**about, **machine, **_gpus(answers["gpus"]), "engines": list(_engines(installed, pythons))}


def _document(answer: list[Any]) -> Any:
    """What a program printed. RemoteFailed with its last words where that is nothing."""
    status, out, err = answer
    try:
        return json.loads(out)
    except ValueError as error:
        raise RemoteFailed("", status=status or 0, evidence=(err or out).strip()[-500:]) from error


def _about(answer: list[Any]) -> Row:
    about = system.parse(_document(answer))
    return {name: getattr(about, name) for name in ("system", "kernel", "machine", "python", "user", "cpus", "memory")}


def _machine(answer: list[Any]) -> Row:
    try:
        machine: Machine = state.parse(_document(answer))
    except RemoteFailed as error:
        return {"deployed": [], "why": f"its work folder: {error.evidence}"}
    deployed = [
        {"deployment": name, "run": one.current.id, "state": _alive(one.current)}
        for name, one in machine.deployments.items()
        if one.current
    ]
    hold = machine.hold.to_json() if machine.hold else None
    why = {"why": f"its lock cannot be read: {machine.unread}"} if machine.unread else {}
    return {"deployed": deployed, "busy": machine.busy or None, "hold": hold, **why}


def _alive(run: Run) -> str:
    """Without asking the server, which `deploy status` does."""
    if run.alive or run.left:
        return "runs"
    return "stopped" if run.stopped or not run.pid else "dead"


def _gpus(answer: list[Any]) -> Row:
    status, out, err = answer
    found, wrong = gpus.parse(out)
    if status in (None, 126, 127):
        wrong = "" if "No such file" in err else err
    counted = Counter(gpu.name for gpu in found)
    drivers = sorted({gpu.driver for gpu in found if gpu.driver})
    return {
        "gpus": [{"name": name, "count": count} for name, count in counted.items()],
        "driver": ", ".join(drivers) or None,
        "gpus_error": wrong or None,
    }


def _engines(answers: Iterable[list[Any]], pythons: Iterable[tuple[str, str]]) -> Iterable[Row]:
    for answer, (python, distribution) in zip(answers, pythons, strict=True):
        try:
            found = interpreter.parse(_document(answer))
        except RemoteFailed:
            continue
        if found.installed:
            yield {"engine": distribution, "version": found.installed, "python": python}


def _interpreters(options: Options, hosts: Iterable[Host]) -> dict[str, list[tuple[str, str]]]:
    """For each host the (Python, distribution) pairs to look at: its own Python, and those that profiles name there."""
    known = {name: engines.load(name).DISTRIBUTION for name in registry.names("deploy.engines")}
    pairs = {host.name: {("python3", one): None for one in known.values() if one} for host in hosts}
    project = home(options)
    for name in project.profiles():
        try:
            said = settings.load(name, [], project, environ())
            for where in said.hosts():
                engine = said.profile(where).engine
                distribution = known[engine.name]
                if distribution and where.name in pairs and not engine.binary:
                    pairs[where.name][_python(engine), distribution] = None
        except ConfigError:  # a profile that is wrong is told by those who want it
            continue
    return {name: list(own) for name, own in pairs.items()}


def _python(engine: Engine) -> str:
    """The interpreter of a profile's engine: its environment's, where it has one."""
    installed = environments.locate(engine.environment) if engine.environment else None
    return installed.python if installed else str(engine.python)


# ---- as text -------------------------------------------------------------------------------------------------------


def show(rows: list[Row]) -> None:
    """A table; on a terminal that is too narrow for it, a paragraph for each host."""
    tables.table([_shown(row) for row in rows], COLUMNS)


def _shown(row: Row) -> Row:
    """A row in words."""
    port = f":{row['port']}" if row["port"] else ""
    through = f" via {row['jump']}" if row["jump"] else ""
    there = row.get("engines", ())
    several = {name for name, count in Counter(one["engine"] for one in there).items() if count > 1}
    versions = [
        f"{one['engine']} {one['version']}" + (f" ({one['python']})" if one["engine"] in several else "")
        for one in there
    ]
    return {
        **row,
        "address": "local" if row["transport"] == "local" else f"{row['address']}{port}{through}",
        "groups": ",".join(row["groups"]),
        "system": ", ".join(str(row[name]) for name in ("system", "kernel") if row.get(name)),
        "gpus": _gpus_in_words(row),
        "engines": ", ".join(versions),
        "deployed": ", ".join(f"{one['deployment']} {one['state']}" for one in row.get("deployed", ())),
        "why": _why_in_words(row),
    }


def _gpus_in_words(row: Row) -> str:
    there = row.get("gpus")
    if there is None:
        return ""
    words = [f"{one['count']}x {one['name']}" for one in there] + ([f"driver {row['driver']}"] if row["driver"] else [])
    count = sum(one["count"] for one in there)
    if row["gpus_expected"] and count != row["gpus_expected"]:
        words.append(f"the inventory says {row['gpus_expected']}")
    return ", ".join([*words, *([row["gpus_error"].splitlines()[0]] if row["gpus_error"] else [])])


def _why_in_words(row: Row) -> str:
    why = str(row.get("why") or "")
    remedy = str(row.get("remedy") or "")
    return f"{why}: {remedy}" if remedy.startswith("deploy hosts trust") else why
