"""`deploy hosts trust`: host keys that are not known yet, the outermost jump first, each shown before it is added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.errors import CheckFailed, DeployError
from deploy.inventory import Host
from deploy.remote import jumps
from deploy.transport import trust
from deploy.transport.trust import CHANGED, REVOKED, Shown, Stop

COMPARE = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"  # on the host's own console


@dataclass(frozen=True)
class Row:
    """What became of one host. `state`: known, added, unknown, changed, revoked, unreachable, behind, local."""

    host: str
    state: str
    where: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    file: str = ""
    error: DeployError | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """As one JSON object, without what is empty."""
        told = self.error
        found = {
            "host": self.host,
            "state": self.state,
            "where": self.where,
            "keys": [{"kind": kind, "fingerprint": fingerprint} for kind, fingerprint in self.keys],
            "file": self.file,
            "why": told.what if told else "",
            "evidence": told.evidence if told else "",
            "remedy": told.remedy if told else "",
        }
        return {key: value for key, value in found.items() if value}


Agree = Callable[[Shown], None]


def trust_all(hosts: Iterable[Host], agree: Agree) -> list[Row]:
    """Walk the ways to hosts; `agree` is asked for each host whose keys are not known, and raises the
    DeployError of a no. Every host has a row, and every jump host.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    ways: list[list[Stop]] = []
    for host in hosts:
        if host.transport == "local":
            rows[host.name,] = Row(host.name, "local")
            continue
        try:
            ways.append(trust.way(host, jumps(host)))
        except DeployError as error:
            rows[host.name,] = Row(host.name, "unreachable", error=error)
    for depth in range(max(map(len, ways), default=0)):
        level = {way[depth].identity: way for way in ways if len(way) > depth}
        new = {identity: way for identity, way in level.items() if identity not in rows}
        for identity, way in new.items():
            gate = rows[way[depth - 1].identity] if depth else None
            if gate and gate.state not in ("known", "added"):
                rows[identity] = _behind(way[depth], gate)
        stops = [way[depth] for identity, way in new.items() if identity not in rows]
        rows |= {stop.identity: _row(stop, found, agree) for stop, found in zip(stops, trust.look(stops), strict=True)}
    return list(rows.values())


def _row(stop: Stop, found: Shown | DeployError, agree: Agree) -> Row:
    if isinstance(found, DeployError):
        return Row(stop.name, "unreachable", stop.where, error=found)
    if found.verdict in ("changed", "revoked"):
        what = {"changed": CHANGED, "revoked": REVOKED}[found.verdict]
        error = CheckFailed(f"{stop.name}: {what}", evidence=found.evidence, remedy=found.remedy)
        return Row(stop.name, found.verdict, stop.where, tuple(found.fingerprints), error=error)
    if found.verdict == "known":
        return Row(stop.name, "known", stop.where, tuple(found.fingerprints))
    try:
        agree(found)
        file = trust.add(found)
    except DeployError as error:
        return Row(stop.name, "unknown", stop.where, tuple(found.fingerprints), error=error)
    return Row(stop.name, "added", stop.where, tuple(found.fingerprints), str(file))


def _behind(stop: Stop, gate: Row) -> Row:
    error = type(gate.error)(f"{stop.name}: not looked at: the way leads through {gate.host}") if gate.error else None
    return Row(stop.name, "behind", stop.where, error=error)


def failures(rows: Iterable[Row]) -> Mapping[str, DeployError]:
    """The hosts that cannot be connected to, and why."""
    return {row.host: row.error for row in rows if row.error}
