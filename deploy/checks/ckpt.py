"""The draft, against what the installed engine's loader makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from deploy.checkpoint import draft, draft_vllm
from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote


def check(node: Node, remote: Remote) -> Iterator[Finding]:
    """A draft that lies here is read here; one that lies on a host is not looked at yet."""
    if node.draft is None or remote.place.source:  # one that is gone back to has served already
        return
    if node.draft.host:
        yield Finding("ckpt", "UNKNOWN", f"{node.draft.source} lies on a host: its headers were not read")
        return
    speculative = node.profile.speculative
    serving = draft.Serving(
        node.profile.engine.name,
        remote.place.engine.installed if remote.place.engine else None,
        speculative.algorithm if speculative else None,
    )
    rules = draft_vllm if serving.engine == "vllm" else draft
    found = list(rules.findings(draft.load_facts(Path(node.draft.path)), remote.place.model.get("config"), serving))
    if node.profile.hooks.prepare:
        # what is served is what the hooks make of it
        found = [replace(f, verdict="WARN") if f.verdict == "FAIL" else f for f in found]
    if not found and node.profile.engine.name == "sglang":  # where nothing was looked at, nothing is said
        found = [Finding("ckpt", "PASS", "the draft's headers and config fit")]
    yield from found
