"""`deploy bench`: what runs is measured, or its baseline; as a document, and as a table of rungs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import click

from deploy import loads, prompts, record
from deploy.errors import ConfigError
from deploy.logs import failures
from deploy.measuring.ladder import COLUMNS, rows
from deploy.operations import baselining, restoring, running
from deploy.operations.baselining import Made
from deploy.operations.deploying import teach
from deploy.options import Options
from deploy.project import home
from deploy.text import tables
from deploy.text.legible import one_line
from deploy.walk import walking
from deploy.walk.recipe import BENCH
from deploy.walk.session import Session


def worded(options: Options, said: Mapping[str, str | int | None]) -> Options:
    """The options of `deploy bench` as words of the profile: --rounds 7 is bench.rounds=7."""
    words = [f"bench.{name}={_value(name, value)}" for name, value in said.items() if value is not None]
    return replace(options, words=(*options.words, *words))


def _value(name: str, value: str | int) -> str:
    if name != "concurrency":
        return str(value)
    numbers = [part.strip() for part in str(value).split(",")]
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise ConfigError(f"--concurrency {value}: numbers of requests are meant", remedy="--concurrency 1,8,32")
    return f"[{','.join(numbers)}]"


def bench(options: Options, session: Session, *, baseline: bool) -> int:
    """Measure what runs, or its baseline; the exit code."""
    running.ask(options, session, all_must_answer=True)
    found = running.locked(running.the_one(options, session), session)
    found = restoring.meant(found, session) if baseline else found
    teach(session, failures.load(home(options)))  # it may have died
    plan = running.narrowed(options, found)
    for node in plan.nodes:  # ConfigError where a file of prompts is not there, or there is no such load generator
        prompts.wished(node.profile.bench.prompts)
        loads.load(node.profile.bench.load)
    if baseline:
        made = baselining.make(found, plan, options, session)
    else:
        courses = running.courses(plan, BENCH, session)
        running.once(plan, found, session)
        done = walking.walked(courses, plan, options, session, record.new_id())
        made = Made(done, baselining.measured(done, plan, session))
    _tell(made, options)
    return made.walked.code


def _tell(made: Made, options: Options) -> None:
    if options.json:
        told = {name: one.model_dump(mode="json", exclude={"answers"}) for name, one in made.measured.items()}
        click.echo(json.dumps({**made.walked.to_json(), "measured": told, "back": made.back}, indent=1))
        return
    for name, one in made.measured.items():
        if len(made.measured) > 1:
            click.echo(f"{name}:", err=True)
        if one.rungs and options.output != "jsonl":
            tables.table(rows(one), COLUMNS)
        for note in one.notes:
            click.echo(f"! {one_line(note)}", err=True)
