"""NVSwitch and NVLink: whether the GPUs have joined their fabric, and whether all links are up.

Where they have not, every CUDA program ends with error 802 (system not yet initialized), after its weights were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deploy.checks import Case
from deploy.checks._gpu_rules import lines, named
from deploy.checks._words import counted
from deploy.facts import fabric, gpu_health, gpus, topology
from deploy.facts.fabric import Fabric
from deploy.facts.gpu_health import Health
from deploy.facts.topology import Links, Topology
from deploy.findings import Finding
from deploy.ownership import visible

SERVICE = "nvidia-fabricmanager"


def check(case: Case) -> Iterator[Finding]:
    """Nothing to say of boards without NVLink, or of GPUs that cannot be seen, which is told elsewhere."""
    found, healths = case.facts[gpus.FACT], case.facts[gpu_health.FACT]
    if (case.node and not case.node.gpus) or not found.all or not healths.all:
        return
    taken = visible.of(case.node, found.all).gpus if case.node else found.all
    uuids = {gpu.uuid for gpu in taken}
    ours = [gpu for gpu in healths.all if gpu.uuid in uuids and not gpu.lost]
    manager, links = case.facts[fabric.FACT], _links(case.facts[topology.FACT], ours)
    told = [*_joined(ours, manager, healths.driver), *_manager(ours, manager, links, healths.driver), *_up(ours, links)]
    yield from told
    if not told and links:
        count = sorted({len(one.speeds) for one in links})
        what = f"{counted(len(links), 'GPU')} with {' or '.join(map(str, count))} NVLinks, all up"
        yield Finding("fabric", "PASS", what)


def _joined(ours: Sequence[Health], manager: Fabric, driver: str | None) -> Iterator[Finding]:
    switched = [gpu for gpu in ours if gpu.fabric_state is not None]
    apart = [gpu for gpu in switched if gpu.fabric_state != "Completed" or gpu.fabric_status not in (None, "Success")]
    if apart:
        yield Finding(
            "fabric",
            "FAIL",
            f"{named(apart)}: not joined to the NVLink fabric, so CUDA ends with error 802",
            f"{lines({gpu: _state(gpu) for gpu in apart})}\n{_seen(manager, driver)}",
            _remedy(manager, driver, apart),
        )
    ill = [gpu for gpu in switched if gpu not in apart and _ill(gpu)]
    if ill:
        broken = len(ours) > 1 and any(gpu.fabric_health == "Unhealthy" for gpu in ill)
        yield Finding(
            "fabric",
            "FAIL" if broken else "WARN",
            f"{named(ill)}: the NVLink fabric is not whole",
            lines({gpu: _ill(gpu) for gpu in ill}),
            f"look at nvidia-smi nvlink --status and /var/log/fabricmanager.log; restart {SERVICE}, or reset the GPUs",
        )


def _manager(
    ours: Sequence[Health], manager: Fabric, links: Sequence[Links] | None, driver: str | None
) -> Iterator[Finding]:
    """Of the service itself, where the GPUs do not already say that it is missing."""
    if any(gpu.fabric_state not in (None, "Completed") for gpu in ours) or not links:
        return
    joined = any(gpu.fabric_state for gpu in ours)
    if manager.version and driver and manager.version != driver:
        yield Finding(
            "fabric",
            "WARN",
            "fabric manager is not of the driver's version: after the next start the GPUs do not join their fabric",
            _seen(manager, driver),
            _remedy(manager, driver),
        )
    elif not joined and manager.state in ("inactive", "failed"):
        # An A100's driver does not tell whether it has joined; boards without NVSwitch do not need the service.
        yield Finding(
            "fabric",
            "WARN",
            "fabric manager is installed and does not run: with NVSwitch, CUDA ends with error 802",
            _seen(manager, driver),
            _remedy(manager, driver),
        )


def _up(ours: Sequence[Health], links: Sequence[Links] | None) -> Iterator[Finding]:
    """With NVSwitch every link is in use; between cards with bridges, only what others have is expected."""
    if not links:
        return
    switched = any(gpu.fabric_state is not None for gpu in ours)
    usual = 0 if switched else min(one.down for one in links)
    worse = {one.gpu: _down(one) for one in links if not one.speeds or one.down > usual}
    if worse and (switched or len(worse) < len(links)):
        yield Finding(
            "fabric",
            "WARN",
            f"{named(gpu for gpu in ours if gpu.index in worse)}: NVLinks are down",
            lines({gpu: worse[gpu.index] for gpu in ours if gpu.index in worse}),
            f"look for Xid 74 in dmesg; restart {SERVICE}, or reset the GPUs; then have the board looked at",
        )


def _links(found: Topology, ours: Sequence[Health]) -> list[Links] | None:
    if found.nvlinks is None:
        return None
    return [one for one in found.nvlinks if one.gpu in {gpu.index for gpu in ours}]


def _down(one: Links) -> str:
    numbers = [str(i) for i, speed in enumerate(one.speeds) if speed is None]
    return f"links {', '.join(numbers)} of {len(one.speeds)}" if one.speeds else "all links"


def _state(gpu: Health) -> str:
    return f"{gpu.fabric_state}{f', {gpu.fabric_status}' if gpu.fabric_status else ''}"


def _ill(gpu: Health) -> str:
    """What its driver says of a fabric that it has joined."""
    told = [] if gpu.fabric_health in (None, "Healthy") else [f"{gpu.fabric_health}"]
    told += [] if gpu.fabric_bandwidth in (None, "Full") else [f"bandwidth {gpu.fabric_bandwidth}"]
    return ", ".join(told)


def _seen(manager: Fabric, driver: str | None) -> str:
    if not manager.installed:
        return f"fabric manager cannot be seen; driver {driver}"
    state = manager.state or "its state cannot be seen"
    return f"fabric manager {manager.version or 'of unknown version'}, {state}; driver {driver}"


def _remedy(manager: Fabric, driver: str | None, apart: Sequence[Health] = ()) -> str:
    """What mends it; of GPUs that are about to join, with nothing against it, that they may need a minute."""
    hindered = manager.state in ("inactive", "failed") or (manager.version and driver and manager.version != driver)
    joining = bool(apart) and not hindered and all(gpu.fabric_state == "In Progress" for gpu in apart)
    return f"{'they may still be joining: check again in a minute; else ' * joining}{_mended(manager, driver)}"


def _mended(manager: Fabric, driver: str | None) -> str:
    if manager.version and driver and manager.version != driver:
        return f"install {SERVICE} {driver}, the very version of the driver, then as root: systemctl restart {SERVICE}"
    if manager.state in ("inactive", "failed"):
        return f"as root: systemctl enable --now {SERVICE}; why it ended: journalctl -u {SERVICE}"
    if manager.installed:
        return f"look at /var/log/fabricmanager.log, then as root: systemctl restart {SERVICE}"
    return f"install and start {SERVICE} {driver or ''}; of a container or virtual machine, on the machine around it"
