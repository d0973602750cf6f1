"""Going back to the last run that had passed its gates: its command, its secrets, its draft, through the same gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from deploy.deployment import compare, releases, secret, state
from deploy.deployment.state import Asked, Deployment, Place, Run
from deploy.errors import CheckFailed, ConfigError
from deploy.plan import Node, Replica
from deploy.remote import Remote

STARTS = "deploy up starts what the profile says"


def source(back: Replica, remotes: Mapping[str, Remote]) -> str:
    """The id of the run that is gone back to, on the head."""
    run = remotes[back.head.host.name].place.source
    return run.id if run else ""


def replica(deployment: str, run: str, remotes: Mapping[str, Remote], command: str, wanted: str = "") -> Replica:
    """The earlier server on these hosts; each host's place is set for going back to it as run `run`.

    It is the run whose id is `wanted`, or the last good one. CheckFailed where a host has it not any more.
    """
    machines = {name: state.read(remote) for name, remote in remotes.items()}
    known = [machines[name].deployments.get(deployment) for name in remotes]
    sources: list[Run] | list[Run | None]
    if wanted := wanted or _instead(known):
        folders = [f"{machines[name].root}/{deployment}/runs/{wanted}" for name in remotes]
        sources = [_named(remote, folder) for remote, folder in zip(remotes.values(), folders, strict=True)]
    else:
        sources = _sources(known)
    nodes = [
        prepared(Place(machines[name], deployment, run, source=source), remote, command)
        for (name, remote), source in zip(remotes.items(), sources, strict=True)
    ]
    if len(ids := {source.id for source in sources if source}) > 1:
        raise CheckFailed(
            f"the hosts of {deployment} had passed their gates last in different runs: {', '.join(sorted(ids))}",
            remedy="deploy up starts what the profile says on all of them",
        )
    return Replica(tuple(sorted(nodes, key=lambda node: node.rank)))


def named(word: str, known: Iterable[Deployment | None]) -> str:
    """The id of the run that a word means by its name or the beginning of it, of those that the hosts have.

    ConfigError where that is none, or several.
    """
    ids = sorted({run for found in known if found for run in found.runs})
    meant = [word] if word in ids else [run for run in ids if run.startswith(word)]
    if len(meant) == 1:
        return meant[0]
    last = "\n".join((meant or ids)[-10:])
    what = f"{len(meant)} runs begin with {word!r}" if meant else f"no host has a run {word!r}"
    raise ConfigError(
        what,
        evidence=last and f"the last of those that are there:\n{last}",
        remedy="name one of these; a deployment is named by profile=NAME",
    )


def _named(remote: Remote, folder: str) -> Run:
    """The run in a folder of the host, with all that is needed to start it again."""
    run, name = state.one(remote, folder), folder.rpartition("/")[2]
    where = f"{remote.host.name}: run {name}"
    if run is None:
        raise CheckFailed(f"{where} is not there any more", evidence=folder, remedy=STARTS)
    if run.manifest is None or run.node is None:
        raise CheckFailed(f"{where} has no manifest that this version can read", evidence=folder, remedy=STARTS)
    if run.draft and not releases.is_whole(run.draft, remote):
        raise CheckFailed(
            f"{where} had a draft that is gone from the host",
            evidence=f"{run.draft} is not there, or not whole",
            remedy="push it again: deploy restart --ckpt PATH",
        )
    return run


def _sources(known: list[Deployment | None]) -> list[Run | None]:
    """The last good run of each host before its current one; that itself where an exchange of its draft broke off, for
    it is still the last that is known. Where the current one is itself a rollback, and was broken off, that is done
    again: the run before it is the one to get away from.
    """
    current = [found.current for found in known if found and found.current]
    proven = any(run.verdict for run in current)
    sources = any(found.source for found in known if found)
    broken_off = sources and not proven and any(run.alive or not run.pid for run in current)
    if broken_off:
        return [found.source if found else None for found in known]
    return [_before(found) if found else None for found in known]


def _before(found: Deployment) -> Run | None:
    current = found.current
    return current if current and current.torn and current.good else found.previous


def _instead(known: list[Deployment | None]) -> str:
    """The run that was to be brought back, where what runs was only tried in its place, as all hosts tell alike."""
    found = {one.current.instead if one and one.current else "" for one in known}
    return found.pop() if len(found) == 1 else ""


def prepared(place: Place, remote: Remote, command: str) -> Node:
    """The node of the place's source on this host, which is made ready for going back to it."""
    source = place.source
    node = source.node if source else None
    if source is None or node is None or source.manifest is None:
        raise CheckFailed(
            f"{remote.host.name}: there is no earlier run of {place.deployment} that had passed its gates",
            remedy=f"deploy history lists what was tried; {STARTS}",
        )
    asked = Asked(command, tuple(source.manifest.get("words", ())), source.manifest.get("ckpt"))
    node = replace(node, host=remote.host)
    model, engine = compare.model_identity(node, remote), compare.installed_engine(node, remote)
    key = secret.api_key_of(node.profile, source, remote)
    remote.place = replace(place, model=model, engine=engine, asked=asked, key=key)
    return node
