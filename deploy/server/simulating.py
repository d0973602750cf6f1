"""Whether a server makes its acceptance up: every engine has a setting for that, to try how fast a good draft would be.

SGLang: SGLANG_SIMULATE_ACC_LEN above 0 in its environment (srt/environ.py, srt/speculative/spec_utils.py, 0.5.8 to
0.5.23). vLLM: a rejection_sample_method "synthetic" (vllm/config/speculative.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from deploy.facts import identity
from deploy.plan import Node
from deploy.remote import Remote

VARIABLES = ("SGLANG_SIMULATE_ACC_LEN",)
METHOD, SYNTHETIC = "rejection_sample_method", "synthetic"
OFF = "-1"  # the engine's own default


def wished(node: Node) -> str:
    """What of it the profile says; "" where it says nothing."""
    told = [f"{name}={value}" for name, value in node.env if name in VARIABLES and _on(value)]
    return ", ".join([*told, *_words(node)])


def found(node: Node, remote: Remote) -> str:
    """What of it the server really has, whoever gave it: a login shell, a wrapper, a machine's environment; "" where
    there is nothing. Environments that may not be read tell nothing.
    """
    asked = identity.Question(remote.place.server, node.port, dict.fromkeys(VARIABLES, OFF), hidden=(), paths=())
    look = identity.read(remote, asked)
    told = {
        f"{name}={value}"
        for environment in look.environments.values()
        for name, value in environment.differs.items()
        if value is not None and _on(value)
    }
    return ", ".join([*sorted(told), *_words(node)])


def why(node: Node, remote: Remote) -> str:
    """Why nothing may be measured; "" where it may."""
    told = found(node, remote)
    return f"the server makes its acceptance up: {told}" if told else ""


def _words(node: Node) -> Iterator[str]:
    """A flag of its own, with a dot, or a part of one whose value is JSON."""
    words = [str(word) for word in node.argv]
    for flag, value in pairwise([*words, ""]):
        said = f"{flag} {value}" if flag.endswith(METHOD) else flag
        if METHOD in said and SYNTHETIC in said:
            yield said


def _on(value: str) -> bool:
    """Off are zero and less. What is no number would stop the server, and is told all the same."""
    try:
        return float(value) > 0
    except ValueError:
        return True
