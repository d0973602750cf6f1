"""What a node's command line comes to on one host, and amounts in words."""

from __future__ import annotations

from deploy.plan import Node

GIB = 1 << 30


def number(node: Node, flag: str) -> float:
    """The number that a flag says, 0 where it says none."""
    try:
        return float(node.said().word(flag) or 0)
    except ValueError:
        return 0.0


def ranks(node: Node) -> int:
    """How many processes of the server on this host hold a part of the model, at least one.

    SGLang's `dp` divides the ranks that `tp` makes (attention), vLLM's makes further ones.
    """
    parallel = node.profile.parallel
    whole = parallel.tp * parallel.pp * (1 if node.profile.engine.name == "sglang" else parallel.dp)
    return max(1, whole // node.profile.nodes)


def gib(size: float) -> str:
    """1.5 GiB, or in MiB what is less than one."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"


def counted(number: int, what: str) -> str:
    """1 GPU, 8 GPUs."""
    return f"{number} {what}{'s' * (number != 1)}"
