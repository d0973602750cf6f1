"""The flags of an engine that is installed on a host: asked in its own interpreter, and kept there.

What runs where: `deploy/host/ask_engine.py` on the host, with its python3; from there `deploy/host/flags.py` in the
engine's own interpreter. The first time takes as long as the engine's import, 5 to 10 s, and the next a tenth of a
second: the answer is kept in `<work>/cache` under the engine's version and the digest of the sources that define flags.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from deploy import flags, host
from deploy.errors import RemoteFailed
from deploy.flags import Grammar
from deploy.text.legible import one_line

PATIENCE = 120.0  # seconds: a cold disk, a busy machine, an import of 10 000 files
BEYOND = 45.0  # seconds more for the way there and for the fingerprint
WORDS = 1000  # characters of what an engine says


class Runs(Protocol):
    """As much of a host as this needs (`deploy.remote.Remote`)."""

    def python(self, source: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> Any: ...


@dataclass(frozen=True)
class Asked:
    """What is asked: the engine as `deploy.host.flags` names it, the interpreter that is to answer, the server's own
    variables.
    """

    engine: str
    python: str
    env: Mapping[str, str]


def grammar(asked: Asked, remote: Runs, cache: str) -> Grammar | str:
    """The flags, or a reason in words why they are not known. Unreachable where the connection is lost."""
    job = {
        "python": asked.python,
        "env": dict(asked.env),
        "engine": asked.engine,
        "program": host.source("flags"),
        "question": {},
        "cache": cache,
        "timeout": PATIENCE,
    }
    try:
        answer = remote.python(host.source("ask_engine"), timeout=PATIENCE + BEYOND, stdin=json.dumps(job).encode())
        return one_line(answer["error"], WORDS) if answer.get("unsupported") else flags.parse(answer)
    except RemoteFailed as error:
        return one_line(f"{error.what}: {error.evidence}" if error.evidence else error.what, WORDS)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return one_line(f"the engine's interpreter answers what nobody understands: {error!r}", WORDS)
