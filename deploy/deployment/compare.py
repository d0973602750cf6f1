"""Does what runs serve what is wished? Idempotency lives here alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from deploy import host
from deploy.deployment.state import Place, Run
from deploy.facts import interpreter
from deploy.facts.interpreter import Interpreter
from deploy.plan import Node
from deploy.remote import Remote
from deploy.text import scrub, words

NOTHING = "(nothing)"


@dataclass(frozen=True)
class Decision:
    """Whether a replica is replaced or only verified, and why."""

    mode: Literal["replace", "verify"]
    why: str


def decide(nodes: Sequence[tuple[Node, Place]]) -> Decision:
    """For one replica: its nodes, and what was found where each would live. One host that differs replaces it whole."""
    for node, place in nodes:
        reason = _reason(node, place.current, place.model)
        if reason:
            return Decision("replace", reason if len(nodes) == 1 else f"{node.host.name}: {reason}")
    run = nodes[0][1].current
    return Decision("verify", f"run {run and run.id} is what is wished: it is verified, not restarted")


def _reason(node: Node, run: Run | None, model: Mapping[str, Any]) -> str:
    if run is None or not run.alive or run.stopped or run.manifest is None:
        return not_there(run)
    if run.torn:
        return f"an exchange of the draft of run {run.id} broke off: what is loaded is not known"
    if run.manifest.get("wished") != node.digest:
        return _what_differs(run.manifest, node)
    return others(run.manifest, node, model, os.environ)


def others(manifest: Mapping[str, Any], node: Node, model: Mapping[str, Any], values: Mapping[str, str]) -> str:
    """What a run was launched with besides its node, and is otherwise now: the model's files, one of these secrets."""
    if (manifest.get("model") or {}).get("identity") != model.get("identity"):
        return f"the model at {node.profile.model.path} is not the one that was loaded"
    known = manifest.get("secrets") or {}
    for name in node.profile.secrets:
        # A secret that we do not have here cannot differ from what runs.
        if name in values and known.get(name) != fingerprint(known.get("salt", ""), values[name]):
            return f"the secret {name} differs"
    return ""


def _what_differs(manifest: Mapping[str, Any], node: Node) -> str:
    try:
        return "; ".join(differences(manifest["node"], node.to_json())) or "its hooks or secrets differ"
    except (KeyError, TypeError, ValueError):  # pydantic's error is a ValueError
        return f"it was launched by version {manifest.get('tool')} of deploy, whose manifest this one cannot read"


def not_there(run: Run | None) -> str:
    """Why a run, which is not alive or was told to end, serves nothing that could be kept; in words."""
    if run is None:
        return "nothing runs"
    if run.alive and run.stopped:
        return f"run {run.id} was told to end, {run.stopped}"
    return f"run {run.id} has no manifest" if run.alive else f"run {run.id} {run.ending}"


def fingerprint(salt: str, value: str) -> str:
    """Tells whether a secret changed, without keeping it in a second place."""
    return sha256(f"{salt}{value}".encode()).hexdigest()[:16]


def model_identity(node: Node, remote: Remote) -> dict[str, Any]:
    """The model on the host: headers' digests, sizes, mtimes, its config. Its `error` if it cannot be read."""
    answer: dict[str, Any] = remote.python(host.source("model_identity"), node.profile.model.path, timeout=60.0)
    return answer


def installed_engine(node: Node, remote: Remote) -> Interpreter | None:
    """The interpreter in which the engine is installed; None for a program that is no Python distribution."""
    distribution = node.engine.DISTRIBUTION
    if distribution is None or node.profile.engine.binary:
        return None
    return interpreter.read(remote, str(node.argv[0]), distribution, dict(node.env).get("PYTHONPATH", ""))


def differences(running: Mapping[str, Any], wished: Mapping[str, Any]) -> Iterator[str]:
    """What a user would want to know of two nodes (as `Node.to_json`): one line each."""
    old, new = Node.from_json(running), Node.from_json(wished)
    before, after = (node.draft.digest if node.draft else "none" for node in (old, new))
    if before != after:
        yield f"the draft differs: {before} -> {after}"
    yield from _changed("environment", dict(old.env), dict(new.env))
    yield from _changed("file", dict(old.files), dict(new.files), shown=False)
    if changes := list(_command(flags(old.argv), flags(new.argv))):
        yield f"the command differs: {', '.join(changes)}"
    elif old.argv != new.argv:
        yield "the command's words stand in another order"
    if old.prepared_by != new.prepared_by:
        yield "the prepare hooks differ"
    if old.profile.secrets != new.profile.secrets:
        yield "the names of the secrets differ"


def _command(old: Mapping[str, list[str]], new: Mapping[str, list[str]]) -> Iterator[str]:
    """`--port 30000 -> 30001` for each flag that has another value, then those that one of them has alone."""
    for flag in old:
        if flag in new and old[flag] != new[flag]:
            was, will = (" ".join(_told(flag, values)[1:]) or NOTHING for values in (old[flag], new[flag]))
            yield f"{flag} {was} -> {will}".lstrip()
    gone, come = (
        " ".join(word for flag in one if flag not in other for word in _told(flag, one[flag]))
        for one, other in ((old, new), (new, old))
    )
    if gone or come:
        yield f"{gone or NOTHING} -> {come or NOTHING}"


def _told(flag: str, values: list[str]) -> list[str]:
    """A flag and its values, without what is secret."""
    if scrub.is_secret(flag):
        return [flag, *(scrub.HIDDEN for _ in values)]
    return scrub.words([flag, *values])


def flags(argv: Sequence[words.Word]) -> dict[str, list[str]]:
    """The words behind each flag, as a shell reads them; those before the first one under ""."""
    found: dict[str, list[str]] = {}
    flag = ""
    for word in map(_shown, argv):
        if re.match(r"--?[A-Za-z]", word):
            flag = word
            found.setdefault(flag, [])
        else:
            found.setdefault(flag, []).append(word)
    return found


def _shown(word: words.Word) -> str:
    return words.shell([word]) if isinstance(word, str) else str(word)


def _changed(kind: str, old: Mapping[str, str], new: Mapping[str, str], *, shown: bool = True) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            was, will = (_open(name, values.get(name)) for values in (old, new))
            values = f": {json.dumps(was)} -> {json.dumps(will)}" if shown and not scrub.is_secret(name) else ""
            yield f"{kind} {name} differs{values}"


def _open(name: str, value: str | None) -> str | None:
    """A variable's value, without what is secret in it."""
    return None if value is None else scrub.words([f"{name}={value}"])[0].removeprefix(f"{name}=")
