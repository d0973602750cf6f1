"""The ports and the GPUs that the server will take, while an earlier run of ours may still have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deploy.checks import Case
from deploy.engines import _ports
from deploy.engines._ports import Port
from deploy.facts import ephemeral, processes
from deploy.facts.ephemeral import Ephemeral
from deploy.findings import Finding
from deploy.ownership import foreign, theirs
from deploy.ownership.foreign import Holder
from deploy.ownership.owned import owned


def check(case: Case) -> Iterator[Finding]:
    """Held by nobody but us: SGLang finds a taken port after the whole load, and memory that is taken still later."""
    if case.node is None:
        return
    node, living = case.node, case.facts[processes.FACT]
    ports = foreign.ports(node, case.remote.place.engine)
    found = foreign.holders(node, ports, case.facts)
    others = theirs.among(found, living, case.remote)
    held = [one for one in found if one.process is None or one in others]
    alone = held == found and not owned(case.remote.place.runs, living)
    kept = [one for one in others if not node.profile.evict or foreign.unendable(one, living)]
    kept += [one for one in held if _stays(one, alone=alone)]
    if kept:
        ours = foreign.deployments(kept)
        what = f"the server of deployment {ours[0]} is in the way" if ours else "somebody else's server is in the way"
        remedy = foreign.whose([one for one in kept if one.process] or kept, living)
        remedy = "; ".join([f"if it is yours: deploy down profile={ours[0]}", remedy]) if ours else remedy
        yield Finding("ports", "FAIL", what, _lines(kept), remedy)
    elif held:
        rest = "it must be gone before the launch" if any(one not in others for one in held) else ""
        remedy = "; ".join(filter(None, ("evict=yes ends it" if others else "", rest)))
        yield Finding("ports", "WARN", "in the way now", _lines(held), remedy)
    else:
        yield Finding("ports", "PASS", f"{_ports.spans(ports)}: ours to take")
    yield from _given_away(ports, case.facts[ephemeral.FACT])


def _stays(one: Holder, *, alone: bool) -> bool:
    """Another user's port; or one in another namespace, who cannot be our old server where there is none."""
    return one.how == "hidden" and (one.uid is not None or alone)


def _given_away(ports: Sequence[Port], given: Ephemeral | None) -> Iterator[Finding]:
    """Ports that a connection of anybody's may be given before the server binds them, minutes into its load."""
    among = [port for port in ports if given and given.gives(port.number)]
    if among and given:
        numbers = ",".join(str(port.number) for port in among)
        yield Finding(
            "ports",
            "WARN",
            "the kernel may give some of its ports to outgoing connections",
            "\n".join(f"{port.number} ({port.what}) is in {given.first}-{given.last}" for port in among),
            f"choose ports below {given.first}, or reserve them as root on the host: "
            f"sysctl -w net.ipv4.ip_local_reserved_ports={numbers}",
        )


def _lines(held: Sequence[Holder]) -> str:
    return "\n".join(map(str, held))
