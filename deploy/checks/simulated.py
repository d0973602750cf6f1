"""A server that makes its acceptance up is worth nothing to users, and what is measured of it is a lie."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.findings import Finding
from deploy.server import simulating


def check(case: Case) -> Iterator[Finding]:
    """What the profile says of it; the server's real environment is looked at when it is measured."""
    if case.node is None or case.node.num_steps is None:
        return
    if told := simulating.wished(case.node):
        what = "the server would make its acceptance up"
        remedy = "take it out of the profile's env or args: it is for trying how fast a good draft would be"
        yield Finding("simulated", "FAIL", what, told, remedy)
