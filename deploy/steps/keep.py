from __future__ import annotations

from deploy.bench import baseline, benching
from deploy.errors import Undecided
from deploy.plan import Node
from deploy.remote import Remote


def keep(node: Node, remote: Remote) -> str:
    """Keep what was measured as the baseline: what a draft gains is told over it"""
    measured = benching.read(remote)
    if measured is None or not measured.rungs:
        raise Undecided(
            f"{remote.host.name}: there is no baseline: nothing was measured",
            evidence=measured.why if measured else "",
            remedy="is bench.prompts empty? Else run it again, when nobody else asks the server",
        )
    path = baseline.keep(measured, node, remote)
    first = measured.figures()["tok_s"]
    return f"{first.value:.1f} tokens/s without a draft, kept as {path}"
