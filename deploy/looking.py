"""One look at a host: all questions of all facts, by one program, in one round trip."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from deploy import host, registry
from deploy.facts import About, Answer, Command, Fact, Facts, Question
from deploy.plan import Node
from deploy.remote import Remote

PATIENCE = 20.0  # seconds that one question may take on a host: a driver without persistence takes some to wake


class Texts(dict[str, str]):
    """The programs' texts by name, and the facts, each put together when it is first wanted: for who looks at several
    hosts.
    """

    @cached_property
    def facts(self) -> tuple[Fact[Any], ...]:
        return every()

    def __missing__(self, name: str) -> str:
        self[name] = text = host.source(name)
        return text


def look(
    remote: Remote,
    about: About,
    wanted: Iterable[Fact[Any]] | None = None,
    patience: float = PATIENCE,
    texts: Texts | None = None,
) -> Facts:
    """Ask for all facts, or for those that are wanted; `patience`: seconds for each question."""
    texts = Texts() if texts is None else texts
    facts = texts.facts if wanted is None else tuple(wanted)
    asked = {fact.name: fact.questions(about) for fact in facts}
    questions = {f"{name}.{which}": one for name, several in asked.items() for which, one in several.items()}
    programs = {one.name: texts[one.name] for one in questions.values() if not isinstance(one, Command)}
    message = {
        "seconds": patience,
        "programs": programs,
        "questions": {name: _said(one) for name, one in questions.items()},
    }
    began, sent = time.monotonic(), time.time()
    answer = remote.python(texts["look"], timeout=patience + 10, stdin=json.dumps(message).encode())
    took = time.monotonic() - began
    answers = {
        name: {which: Answer(*answer["answers"][f"{name}.{which}"]) for which in several}
        for name, several in asked.items()
    }
    under_way = took - (answer["ended"] - answer["began"])
    ahead = (answer["began"] - sent + answer["ended"] - (sent + took)) / 2
    return Facts(remote.host.name, answers, about, ahead, under_way)


def about(node: Node | None, remote: Remote) -> About:
    """What a host is asked about, for a node at its place, or for nothing in particular."""
    if node is None:
        return About(remote.host.work, sudo=remote.host.sudo)
    place, distribution = remote.place, node.engine.DISTRIBUTION
    folder = place.releases(node)
    paths = [place.machine.root, folder, *([f"{folder}/{node.draft.digest}"] if node.draft else [])]
    paths.append(node.profile.model.path)
    own = distribution and not node.profile.engine.binary
    python = (str(node.argv[0]), str(distribution), dict(node.env).get("PYTHONPATH", ""))
    return About(remote.host.work, tuple(paths), (python,) if own else (), node.env, remote.host.sudo)


def every() -> tuple[Fact[Any], ...]:
    """The facts there are."""
    modules = (registry.load("deploy.facts", name, "fact") for name in registry.names("deploy.facts"))
    return tuple(module.FACT for module in modules if hasattr(module, "FACT"))


def _said(question: Question) -> dict[str, Any]:
    if isinstance(question, Command):
        return {"argv": question.argv, "otherwise": question.otherwise}
    return {"program": question.name, "args": question.args}
