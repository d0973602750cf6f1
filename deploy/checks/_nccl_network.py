"""How ranks on several hosts find each other: interfaces by name, RDMA cards, GIDs.

Interfaces: `ncclFindInterfaces` and `ncclOsFindInterfaces` of NCCL 2.30; Gloo: `ProcessGroupGloo` of PyTorch 2.14,
which takes exact names, and without any the address to which the host's own name leads.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from deploy.checks._nccl import Ranks, found, key
from deploy.facts.network import Interface
from deploy.facts.rdma import Device, Gid
from deploy.findings import Finding

FAMILIES = {"AF_INET": ".", "AF_INET6": ":"}
ROUTED = "RoCE v2"
NOT_FIRST = ("docker", "lo", "virbr")  # what NCCL leaves aside by itself, as long as there are others
REACH = "look at the cables and the subnet manager; a container wants --device /dev/infiniband"
SUPPOSED = re.compile(r"^\^?=?")


def matching(said: str, names: Iterable[str]) -> list[str]:
    """The names that NCCL takes: [^][=]word,word; words are prefixes without `=`, and a port may stand behind `:`."""
    exact, out = "=" in said[:2], said.startswith("^")
    words = [word.partition(":")[0] for word in SUPPOSED.sub("", said).split(",") if word.partition(":")[0]]
    if not words:
        return [] if out else list(names)
    return [
        name for name in names if any(name == word if exact else name.startswith(word) for word in words) is not out
    ]


def interfaces(ranks: Ranks) -> Iterator[Finding]:
    """Those that variables name, and those that are taken where none is named."""
    if ranks.network.interfaces is None:
        if ranks.apart:
            yield found("UNKNOWN", "the host's network interfaces are not known", ranks.network.error)
        return
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        said, nccl = ranks.env.get(variable, ""), variable.startswith("NCCL")
        if nccl and ranks.alone:
            continue
        if len(said) > 1:  # of one character, NCCL and PyTorch take it for not set
            yield from _named(ranks, variable, said)
        elif nccl and ranks.apart:
            yield from _unnamed(ranks)
        elif variable == "GLOO_SOCKET_IFNAME" and ranks.apart:
            yield from _own_name(ranks)


def _named(ranks: Ranks, variable: str, said: str) -> Iterator[Finding]:
    there = {one.name: one for one in ranks.network.interfaces or ()}
    nccl = variable.startswith("NCCL")
    if nccl:
        taken = [there[name] for name in matching(said, there)]
        asked = [] if said.startswith("^") else [word for word in SUPPOSED.sub("", said).split(",") if word]
        missing = [word for word in asked if not matching(("=" if "=" in said[:2] else "") + word, there)]
    else:
        asked = [word for word in said.split(",") if word]
        taken, missing = [there[word] for word in asked if word in there], [word for word in asked if word not in there]
    usable = [one for one in taken if one.running and _addressed(ranks, one)]
    evidence = "\n".join(filter(None, [ranks.whence(variable), _listed(ranks)]))
    if not usable or (missing and not nccl):
        marks = " (it takes exact names, without = and ^)" if not nccl and said[0] in "=^" else ""
        what = "is down, or has no address" if taken and not missing else "names no interface of the host"
        yield found("FAIL", f"{variable}={said} {what}{marks}", evidence, _instead(ranks, variable, missing or asked))
    elif missing:
        what = f"{variable}={said}: there is no {', '.join(missing)}"
        yield found("WARN", what, evidence, _instead(ranks, variable, missing))
    elif ranks.apart and not any(one.outward for one in usable):
        what = f"{variable}={said} leads to no other host: {', '.join(f'{one.name} is {one.kind}' for one in usable)}"
        yield found("FAIL", what, evidence, _instead(ranks, variable, asked))
    elif ranks.apart and (inward := [one.name for one in usable if not one.outward]):
        what = f"{variable}={said} also takes {', '.join(inward)}, by which no other host is reached"
        yield found("WARN", what, evidence, _instead(ranks, variable, asked))


def _unnamed(ranks: Ranks) -> Iterator[Finding]:
    """NCCL takes those called ib*, else all but docker*, lo and virbr*."""
    usable = [one for one in ranks.network.interfaces or () if one.running and _addressed(ranks, one)]
    taken = [one for one in usable if one.name.startswith("ib")]
    taken = taken or [one for one in usable if not one.name.startswith(NOT_FIRST)]
    names = ", ".join(f"{one.name} ({one.kind})" for one in taken)
    if not any(one.outward for one in taken):
        what = "no interface with an address leads to another host"
        yield found("FAIL", what, _listed(ranks), "set the network up, or nccl.SOCKET_IFNAME")
    elif len(taken) > 1:
        what = f"NCCL_SOCKET_IFNAME is not set, and NCCL takes {names}"
        yield found("WARN", what, _listed(ranks), _instead(ranks, "NCCL_SOCKET_IFNAME", []))


def _own_name(ranks: Ranks) -> Iterator[Finding]:
    own = ranks.network.own
    if own is None:
        yield found("UNKNOWN", "Gloo binds to what the host's own name leads to, and that is not known")
    elif all(ip_address(one.partition("%")[0]).is_loopback for one in own):
        what = (
            f"Gloo binds to the host's own name, which leads to {', '.join(own) or 'nothing'}: no other host reaches it"
        )
        yield found("FAIL", what, _listed(ranks), _instead(ranks, "GLOO_SOCKET_IFNAME", []))


def _addressed(ranks: Ranks, one: Interface) -> bool:
    """Whether it has an address of the family asked for; where addresses are not known, it may."""
    mark = FAMILIES.get(ranks.env.get("NCCL_SOCKET_FAMILY", ""), "")
    return one.addresses is None or any(mark in address for address in one.addresses)


def _listed(ranks: Ranks) -> str:
    return "\n".join(
        f"{one.name}: {one.kind}, {'running' if one.running else one.state or 'down'}"
        f"{f', {one.speed} Mbit/s' if one.speed else ''}, {' '.join(one.addresses or ()) or 'no address'}"
        for one in ranks.network.interfaces or ()
    )


def _instead(ranks: Ranks, variable: str, said: Iterable[str]) -> str:
    """The interface that is meant: the nearest name, else the fastest that leads out, the one with the default last."""
    fit = [one for one in ranks.network.interfaces or () if one.running and one.outward and _addressed(ranks, one)]
    names = [one.name for one in sorted(fit, key=lambda one: (-(one.speed or 0), not one.default))]
    near = next((close[0] for word in said if (close := difflib.get_close_matches(word.lstrip("^="), names, n=1))), "")
    best = near or next(iter(names), "")
    if not best:
        return "no interface of the host would do"
    exact = "=" if variable.startswith("NCCL") else ""
    return f"set {key(variable)}={exact}{best}, where hosts differ by `set` of the inventory"


def rdma(ranks: Ranks) -> Iterator[Finding]:
    """InfiniBand and RoCE between several hosts; within one, nothing of it is used."""
    devices, ready = ranks.rdma.devices, ranks.rdma.ready
    net, asked = ranks.env.get("NCCL_NET", "").lower(), ranks.env.get("NCCL_IB_HCA", "")
    off = ranks.number("IB_DISABLE") == 1 or net == "socket"
    if not ranks.apart or ranks.alone:
        return
    if devices is None:
        yield found("UNKNOWN", "the host's RDMA devices are not known", ranks.rdma.error)
    elif off and ready:
        why = next(name for name in ("NCCL_IB_DISABLE", "NCCL_NET") if name in ranks.env)
        what = f"{why}={ranks.env[why]}, and RDMA is there: all goes by TCP"
        yield found("WARN", what, _devices(ready), f"leave {key(why)} out")
    elif ready and not off:
        yield from _cards(ranks, asked)
        if not ranks.rdma.direct:
            what = "RDMA cards cannot reach GPU memory: all goes through the host's memory"
            evidence = "neither nvidia_peermem is loaded nor the driver's open kernel module, which has DMA-BUF"
            yield found("WARN", what, evidence, "modprobe nvidia-peermem, as root, and at each boot")
    elif not off and (net == "ib" or asked or ranks.number("IB_GID_INDEX") is not None):
        what = "InfiniBand is asked for, and no RDMA device can be used"
        evidence = _devices(devices) or "/sys/class/infiniband is empty"
        yield found("FAIL" if net == "ib" else "WARN", what, evidence, REACH if devices else "leave it out")
    elif not off and devices:
        what = "RDMA devices are there, and none can be used: all goes by TCP"
        yield found("WARN", what, _devices(devices), REACH)


def _cards(ranks: Ranks, asked: str) -> Iterator[Finding]:
    names = [device.name for device in ranks.rdma.devices or ()]
    taken = set(matching(asked, names)) if asked else set(names)
    used = [device for device in ranks.rdma.ready if device.name in taken]
    if asked and not used:
        near = next(iter(difflib.get_close_matches(SUPPOSED.sub("", asked), names, n=1)), names[0])
        what = f"NCCL_IB_HCA={asked} {'names no RDMA device' if not taken else 'names none that can be used'}"
        yield found("FAIL", what, _devices(ranks.rdma.devices or ()), f"set nccl.IB_HCA=={near}")
        return
    words = SUPPOSED.sub("", asked).split(",")
    more = sorted(taken - {word.partition(":")[0] for word in words}) if asked and asked[0] not in "^=" else []
    if any(word.partition(":")[0] in names for word in words) and more:
        what = f"NCCL_IB_HCA={asked} takes {', '.join(more)} too: a name without = is a beginning"
        yield found("WARN", what, _devices(used), f"set nccl.IB_HCA=={asked}")
    index = ranks.number("IB_GID_INDEX")
    if index is not None and index >= 0:
        yield from _gids(used, index)


def _gids(devices: Iterable[Device], index: int) -> Iterator[Finding]:
    """The index at each RoCE port in use: InfiniBand needs none."""
    for device, port in ((card, port) for card in devices for port in card.active if port.roce):
        gid = next((one for one in port.gids if one.index == index), None)
        if wrong := _wrong(gid):
            fit = ", ".join(str(one.index) for one in port.gids if not _wrong(one))
            what = f"NCCL_IB_GID_INDEX={index} of {device.name} port {port.number} {wrong}"
            here = f" (here {fit})" if fit else ""
            remedy = f"leave nccl.IB_GID_INDEX out: from 2.21 on NCCL finds one that fits each card{here}"
            yield found("WARN" if gid else "FAIL", what, "\n".join(map(_told, port.gids)), remedy)


def _wrong(gid: Gid | None) -> str:
    if gid is None:
        return "is not there"
    if gid.type is not None and gid.type != ROUTED:
        return f"is {gid.type}, which no router passes on"
    return "is link-local, which no router passes on" if gid.link_local else ""


def _told(gid: Gid) -> str:
    return f"{gid.index}: {gid.v4 or gid.gid} {gid.type or 'of unknown type'} {gid.interface or ''}".rstrip()


def _devices(devices: Iterable[Device]) -> str:
    return "\n".join(
        f"{device.name} port {port.number}: {port.layer}, {port.state}, {port.rate or '?'} Gbit/s"
        f"{'' if device.usable else ', may not be opened'}"
        for device in devices
        for port in device.ports
    )
