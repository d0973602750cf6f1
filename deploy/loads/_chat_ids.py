"""Chats as tokens, under the model's own chat template, by the engine's interpreter on the host."""

from __future__ import annotations

import json
from collections.abc import Sequence

from deploy import host
from deploy.errors import DeployError
from deploy.measuring.prompts import Prompt
from deploy.plan import Node
from deploy.remote import Remote

PATIENCE = 120.0  # seconds: transformers from a cold disk


def of(prompts: Sequence[Prompt], node: Node, remote: Remote) -> list[tuple[int, ...]] | None:
    """The tokens of each; None where the model has no chat template. Kept on the host by `ask_engine`, since every
    round asks the same.
    """
    job = {
        "python": str(node.argv[0]),
        "env": dict(node.env),
        "engine": node.profile.engine.name,
        "program": host.source("chat_ids"),
        "question": {
            "model": node.profile.model.path,
            "identity": dict(remote.place.model),
            "trust": "--trust-remote-code" in [str(word) for word in node.argv],
            "chats": [[{"role": role, "content": text} for role, text in one.messages] for one in prompts],
        },
        "cache": f"{remote.place.machine.work}/cache",
        "timeout": PATIENCE,
    }
    answer = remote.python(host.source("ask_engine"), timeout=PATIENCE + 60, stdin=json.dumps(job).encode())
    if answer.get("unsupported"):
        raise DeployError(
            f"{remote.host.name}: the prompts cannot be put under the model's chat template",
            evidence=str(answer.get("error"))[:1500],
            remedy="SGLang 0.5.20 and later apply it themselves; or measure with bench.load=bench_serving",
        )
    ids = answer["ids"]
    return None if ids is None else [tuple(map(int, one)) for one in ids]
