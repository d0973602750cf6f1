"""The command line, against the flags that the installed engine takes: it finds a wrong one only as it starts."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.findings import Finding
from deploy.flags import asking, judging
from deploy.flags.asking import Asked
from deploy.plan import Node
from deploy.remote import Remote


def check(case: Case) -> Iterator[Finding]:
    """Nothing is said of a server that is no engine of ours: only its own command line is known."""
    if case.node:
        yield from found(case.node, case.remote, case.remote.place.machine.work)


def found(node: Node, remote: Remote, work: str) -> Iterator[Finding]:
    """What is wrong with the node's flags; the host's work folder keeps what the engine told."""
    words = [str(word) for word in node.argv]
    called = node.engine.called(words)
    if called is None or node.engine.DISTRIBUTION is None:
        return
    known = asking.grammar(asked(node, remote.interpreter[0]), remote, f"{work}/cache")
    if isinstance(known, str):
        yield Finding("flags", "UNKNOWN", "the engine does not tell which flags it takes", known)
        return
    yield from judging.judged(words[called.flags :], known, node.engine.ELSEWHERE)


def asked(node: Node, ours: str) -> Asked:
    """An engine is asked in its own interpreter; a binary of its own is run by ours on the host."""
    if node.profile.engine.binary:
        return Asked(node.profile.engine.binary, ours, dict(node.env))
    return Asked(str(node.engine.DISTRIBUTION), str(node.argv[0]), dict(node.env))
