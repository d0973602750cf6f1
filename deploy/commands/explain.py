"""`deploy explain`: why a server died or hangs, from its log."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from deploy.commands._options import Finite, looking
from deploy.errors import ConfigError
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.engines._log import Signature
    from deploy.logs.explaining import Account


@click.command
@click.option("--engine", metavar="NAME", help="Whose log it is: sglang, vllm, llamacpp; else it is recognised.")
@click.option("--exit", "status", type=click.IntRange(0, 255), help="The status with which it ended, if known.")
@click.option("--silent", type=Finite(min=0), metavar="SECONDS", help="It lives, and says nothing for so long.")
@looking("[LOGFILE|-] [KEY=VALUE]...")
def explain(options: Options, engine: str | None, status: int | None, silent: float | None) -> int:
    """Say why a server died, or what it waits for: from LOGFILE, from stdin (- or a pipe), else what the hosts have.

    The first failure in time, with the lines that show it; what only followed from it is counted. Lines that you know
    yourself stand in failures.yaml beside inventory.yaml.

    \b
    Examples:
      deploy explain server.log
      ssh gpu1 cat run/server.log | deploy explain
      deploy explain profile=kimi-eagle3 --json
      deploy explain server.log --silent 600
    """
    from deploy import engines, project
    from deploy.engines._log import Seen
    from deploy.logs import explaining, failures, logfile

    known = failures.load(project.home(options))
    if engine is not None:
        engines.load(engine)  # there is such a one
    place, options = _split(options)
    if place is None:
        told = _on_hosts(options, engine, known)
    else:
        seen = Seen(exit=status, silent=silent, known=known)
        told = [explaining.of_log(place, logfile.read(place), engine, seen)]
    if options.json:
        documents = [one.document("log" if place else "host") for one in told]
        click.echo(json.dumps(documents[0] if place else documents, indent=1))
    else:
        for one in told:
            one.show()
    return 0 if all(one.decided for one in told) else 10


def _split(options: Options) -> tuple[str | None, Options]:
    """The log that is named, and the options that say which hosts are meant where none is."""
    chosen = tuple(word for word in options.words if word.startswith("profile="))
    places = [word for word in options.words if word not in chosen]
    if len(places) > 1 or (places and (chosen or options.hosts)):
        said = " ".join([*options.words, *(["--hosts"] if options.hosts else [])])
        raise ConfigError(f"one log is explained at a time, not {said!r}", remedy="deploy explain LOGFILE")
    if not places and not chosen and not options.hosts and _piped():
        places = ["-"]
    return (places[0] if places else None), replace(options, words=chosen)


def _piped() -> bool:
    """Whether a log comes on stdin: there is a pipe or a file, not a terminal, /dev/null or a login without one."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _on_hosts(options: Options, engine: str | None, known: tuple[Signature, ...]) -> list[Account]:
    from deploy.logs import explaining
    from deploy.operations import running
    from deploy.walk import walking
    from deploy.walk.session import Session

    with Session("explain") as session:
        running.only_profile(options)
        running.ask(options, session)
        found = running.the_one(options, session)
        for run in found.runs.values():
            if run.node:
                walking.learn(run.node, session)
        return explaining.on_hosts(session, found.runs, engine, known)
