"""Somebody else's processes in the way: on a terminal it is asked whether they shall end, before anything does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import click

from deploy import looking
from deploy.facts import About, processes
from deploy.ownership import foreign, theirs
from deploy.ownership.foreign import Holder
from deploy.plan import Node, Replica
from deploy.remote import Remote
from deploy.render import clean
from deploy.walk.course import Course
from deploy.walk.recipe import VERIFY
from deploy.walk.session import Session


def asked(courses: list[Course], session: Session) -> list[Course]:
    """The courses, with `evict` on the hosts of those that the user gave away. As they are where there is nobody to
    ask, where he says no, and where one is not ours to end: preflight refuses then, with everything else it found.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return courses
    found = _found(courses, session)
    if not found:
        return courses
    for host, holders in found.items():
        for holder in holders:
            click.echo(f"{host}: {clean(str(holder))}", err=True)
    if not click.confirm("These are not this deployment's. End them?", err=True):
        return courses
    return [_evicting(course, found) for course in courses]


def _found(courses: list[Course], session: Session) -> dict[str, list[Holder]]:
    """By host; empty where one of them cannot be ended."""
    nodes = {node.host.name: node for one in courses if one.recipe is not VERIFY for node in one.replica.nodes}
    found: dict[str, list[Holder]] = {}
    kept: list[Holder] = []

    def look(remote: Remote) -> None:
        node = nodes.get(remote.host.name)
        if node is None or node.profile.evict:
            return
        seen = looking.look(remote, About(), foreign.WANTED)
        living = seen[processes.FACT]
        held = foreign.holders(node, foreign.ports(node, remote.place.engine), seen)
        others = theirs.among(held, living, remote)
        kept.extend(one for one in others if foreign.unendable(one, living))
        if others:
            found[remote.host.name] = others

    session.each(look)  # a host that does not answer is preflight's to tell
    return {} if kept else {host: found[host] for host in nodes if host in found}


def _evicting(course: Course, found: Mapping[str, list[Holder]]) -> Course:
    nodes = (_given_away(node) if node.host.name in found else node for node in course.replica.nodes)
    return replace(course, replica=Replica(tuple(nodes)))


def _given_away(node: Node) -> Node:
    return replace(node, profile=node.profile.model_copy(update={"evict": True}))
