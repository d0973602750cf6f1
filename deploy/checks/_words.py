"""What a node's command line says, on which the profile's `args` had the last word; and amounts in words."""

from __future__ import annotations

from deploy.plan import Node

GIB = 1 << 30


def said(node: Node, *flags: str) -> str | None:
    """The value of the last of these flags on the command line; "" where it is bare, None where none is there."""
    words = [str(word) for word in node.argv]
    found = None
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--") and name[2:] in flags:
            following = words[place + 1 : place + 2]
            found = value if equals else following[0] if following and not following[0].startswith("--") else ""
    return found


def number(node: Node, *flags: str) -> float:
    """The same as a number; 0 where it says none."""
    try:
        return float(said(node, *flags) or 0)
    except ValueError:
        return 0.0


def ranks(node: Node) -> int:
    """How many processes of the server on this host hold a part of the model, at least one."""
    parallel = node.profile.parallel
    whole = parallel.tp * parallel.pp * (1 if node.profile.engine.name == "sglang" else parallel.dp)
    return max(1, whole // node.profile.nodes)


def gib(size: float) -> str:
    """1.5 GiB, or in MiB what is less than one."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"
