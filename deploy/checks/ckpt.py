"""The draft, against what the installed engine's loader makes of it, and against its target and the profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from deploy.checkpoint import exact, rules, versions
from deploy.checkpoint.config import is_eagle3
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.rules import Serving, Target
from deploy.checkpoint.trace import Trace
from deploy.checks import Case
from deploy.deployment import drafts
from deploy.errors import ConfigError
from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote

LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def check(case: Case) -> Iterator[Finding]:
    """The draft is read where it lies. One that a hook is still to change is judged again when it has."""
    node, remote = case.node, case.remote
    if node is None or node.draft is None or remote.place.source:  # one that is gone back to has served already
        return
    found = judged(node, remote, node.draft.path, remote if node.draft.host else None)
    if node.profile.hooks.prepare:
        # what is served is what the hooks make of it
        found = [replace(finding, verdict="WARN") if finding.verdict == "FAIL" else finding for finding in found]
    yield from found


def judged(node: Node, remote: Remote, path: str, where: Remote | None) -> list[Finding]:
    """Everything that is found in the draft at `path`, here or on a host, beside what the profile says of it."""
    try:
        draft = drafts.facts(path, where, values=True)
    except ConfigError as error:
        return [Finding("ckpt", "FAIL", error.what, error.evidence, error.remedy, "will not start")]
    if node.profile.engine.name == "llamacpp" and draft.format != "gguf":
        what = "llama.cpp takes a draft as one .gguf file, and there is none"
        return [Finding("ckpt", "FAIL", what, f"{path}: {draft.format}", "name the .gguf of it", "will not start")]
    given, by = _cases(node, remote, draft)
    found = rules.agreed([(case, rules.found(case)) for case in given])
    found += rules.compared(given[0]) if len(given) == 1 else []
    return [replace(f, evidence=by) if f.verdict == "PASS" and by else f for f in found]


def cases(
    node: Node, remote: Remote, path: str, where: Remote | None, *, values: bool = True
) -> tuple[list[rules.Case], str]:
    """What the rules judge: the draft at `path`, here or on a host, for each version that may serve it; and who said
    where its tensors land. Without `values`, what is asked of its weights is not read. ConfigError where there is no
    draft.
    """
    return _cases(node, remote, drafts.facts(path, where, values=values))


def _cases(node: Node, remote: Remote, draft: Facts) -> tuple[list[rules.Case], str]:
    config = remote.place.model.get("config")
    target = Target(config) if isinstance(config, dict) else None
    traced, reason = _asked(node, remote, draft)
    by = "the engine's own loader was asked" if traced else f"by our table: {reason}" if reason else ""
    return rules.cases(draft, target, serving(node, remote), traced), by


def serving(node: Node, remote: Remote) -> Serving:
    """How the draft is to be served: what the command line says, on which `args` had the last word."""
    words = [str(word) for word in node.argv]

    def said(*flags: str) -> str | None:
        places = [words.index(f"--{flag}") for flag in flags if f"--{flag}" in words]
        return words[places[0] + 1] if places and places[0] + 1 < len(words) else None

    def number(*flags: str) -> int | None:
        value = said(*flags) or ""
        return int(value) if value.isdecimal() else None

    return Serving(
        node.profile.engine.name,
        remote.place.engine.installed if remote.place.engine else None,
        algorithm=said("speculative-algorithm"),
        num_steps=number("speculative-num-steps"),
        eagle_topk=number("speculative-eagle-topk"),
        num_draft_tokens=number("speculative-num-draft-tokens"),
        attention_backend=said("decode-attention-backend", "attention-backend"),
        draft_attention_backend=said("speculative-draft-attention-backend"),
        draft_window=number("speculative-draft-window-size"),
        context_length=number("context-length"),
        longer_context=dict(node.env).get(LONGER, "").lower() in {"1", "true", "yes"},
        tp=number("tp-size", "tensor-parallel-size") or 1,
    )


def _asked(node: Node, remote: Remote, draft: Facts) -> tuple[Trace | None, str]:
    """What the installed engine itself makes of the draft, or why it was not asked; the host keeps its answers."""
    if node.profile.engine.name not in versions.RANGES or draft.format != "safetensors" or not is_eagle3(draft.config):
        return None, ""
    if draft.problems:
        return None, "its files have faults"
    engine = exact.Engine(node.profile.engine.name, str(node.argv[0]), dict(node.env))
    found: Any = exact.trace(draft, engine, remote, f"{remote.place.machine.work}/cache")
    return (None, found) if isinstance(found, str) else (found, "")
