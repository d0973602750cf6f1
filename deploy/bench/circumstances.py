"""What a number was measured on and by which question: without this it is hearsay."""

from __future__ import annotations

from deploy.facts import gpus
from deploy.measuring.measurement import On
from deploy.measuring.prompts import Set
from deploy.plan import Node
from deploy.remote import Remote


def of(node: Node, remote: Remote, asked: Set) -> On:
    """Of which run on which hosts, of what model and draft, by what question."""
    wish, place = node.profile.bench, remote.place
    loaded = (place.current.manifest if place.warm and place.current else None) or {}  # when it was launched
    return On(
        run=place.run,
        hosts=remote.mates,
        digest=node.digest,
        draft=node.draft.digest if node.draft else None,
        draft_path=node.draft.source if node.draft else None,
        model=node.profile.model.path,
        model_id=str((loaded.get("model") or place.model).get("identity") or "")[:12],
        engine=node.profile.engine.name,
        engine_version=loaded.get("engine_version") or (place.engine.installed if place.engine else None),
        gpus=_gpus(node, remote),
        num_steps=node.num_steps,
        load=wish.load,
        prompts=asked.name,
        prompts_digest=asked.digest,
        max_tokens=wish.max_tokens,
        fixed_length=wish.fixed_length,
        temperature=wish.temperature,
        seed=wish.seed,
        concurrency=tuple(sorted(set(wish.concurrency))),
        slo=(wish.slo.ttft, wish.slo.itl),
    )


def _gpus(node: Node, remote: Remote) -> tuple[str, ...]:
    """The names of those that it takes; of more than are there, of all that are."""
    found = gpus.read(remote).all if node.gpus else None
    return tuple(gpu.name for gpu in found or ())[: node.gpus]
