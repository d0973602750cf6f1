"""What a load generator is given in tests: a host that is this machine, a node that serves on a port, a round."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from deploy import plan
from deploy.deployment.state import Machine, Place
from deploy.events import Event
from deploy.inventory import Host
from deploy.loads import Round
from deploy.measuring.prompts import Prompt
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.transport.local import LocalTransport


def here(folder: Path, said: list[Event] | None = None, *, key: str = "") -> Remote:
    """This machine, with its place for a run in that folder."""
    where = Host.model_validate({"name": "here", "transport": "local", "lock": str(folder / "lock")})
    told = said if said is not None else []
    made = Remote(where, LocalTransport("here"), told.append, threading.Event())
    machine = Machine("id", "here", "me", str(folder), str(folder / "work"), str(folder / "work/id"), {})
    made.place = Place(machine, "x", "r1", key=key)
    return made


def node(port: int, name: str = "command", /, **fields: Any) -> Node:
    """A server that is there already."""
    told: dict[str, Any] = {"engine": {"name": name}, "model": {"path": "/m", "name": "tiny"}, "gpus": 0}
    told |= {"args": {"argv": ["server"]}} if name == "command" else {}
    profile = Profile.model_validate({"name": "x", "hosts": "all", "port": port, **told, **fields})
    where = Host.model_validate({"name": "here", "transport": "local"})
    return plan.make({where: profile}, None, None).nodes[0]


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(f"test/{number}", "test", (("user", f"question {number}"),)) for number in range(count))


def asked(count: int = 1, concurrency: int = 1, **fields: Any) -> Round:
    """A round of so many prompts."""
    return Round(1, concurrency, prompts(count), **{"max_tokens": 8, "timeout": 10.0, **fields})
