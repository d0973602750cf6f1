"""What will run where, as frozen data: profiles on hosts become nodes with their exact command. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deploy import engines
from deploy.checkpoint.manifest import Manifest
from deploy.config.gates import RENAMED
from deploy.engines import _ports
from deploy.engines._ports import Said
from deploy.errors import ConfigError
from deploy.inventory import Host
from deploy.profile import Profile
from deploy.text import words
from deploy.text.words import HomePath, RunPath, Word

PLACES = {RunPath: "run", HomePath: "home"}  # how a manifest names them


@dataclass(frozen=True)
class Draft:
    """A draft checkpoint to be served: what is in it, and where it comes from (no host: from this machine)."""

    path: str
    manifest: Manifest
    host: str = ""

    @property
    def digest(self) -> str:
        return self.manifest.short

    @property
    def source(self) -> str:
        """As the user would write it."""
        return f"{self.host}:{self.path}" if self.host else self.path

    @property
    def served(self) -> str:
        """Its path in the run's folder: the release, or the one .gguf file in it."""
        names = [file.path for file in self.manifest.files]
        return f"draft/{names[0]}" if len(names) == 1 and names[0].endswith(".gguf") else "draft"


@dataclass(frozen=True)
class Installed:
    """The engine's interpreter on the hosts, and the environment it wants."""

    python: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Node:
    """One server process on one host: everything that launching, waiting for and judging it needs."""

    host: Host
    profile: Profile
    rank: int
    argv: tuple[Word, ...]
    env: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    draft: Draft | None

    @property
    def deployment(self) -> str:
        return self.profile.name

    @property
    def port(self) -> int:
        return self.profile.port

    @property
    def gpus(self) -> int:
        return self.host.gpus if self.profile.gpus is None else self.profile.gpus

    @property
    def engine(self) -> engines.Engine:
        return engines.load(self.profile.engine.name)

    @property
    def served_name(self) -> str:
        """The name under which the server offers the model."""
        return self.profile.model.name or self.profile.model.path

    @property
    def num_steps(self) -> int | None:
        """How many tokens a verify step drafts, as the command line says it; `args` may have had the last word."""
        words = [str(word) for word in self.argv]
        flag = f"--{self.engine.STEPS}"
        said = words[words.index(flag) + 1 :][:1] if flag in words else []
        return int(said[0]) if said and said[0].isdecimal() else None

    def said(self, version: str | None = None) -> Said:
        """What its server is told, for asking the engine what comes of it; `version` is the installed one."""
        flags = _ports.flags(self.argv, self.engine.ALIASES)
        return Said(flags, dict(self.env), self.port, self.rank, self.profile.nodes, version)

    @property
    def secret_variables(self) -> dict[str, str]:
        """The secrets that reach the server by its environment, {variable: secret's name}."""
        named = {"env": None, **self.engine.SECRETS}
        return {named[flag] or name: name for name, flag in self.profile.secrets.items() if flag in named}

    @property
    def secret_flags(self) -> dict[str, str]:
        """The other ones, {flag: secret's name}."""
        return _secret_flags(self.profile, self.engine)

    @property
    def prepared_by(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """The `prepare` hooks by name, without their folder: two operators with a checkout each wish the same."""
        return [(hook.run.rpartition("/")[2], hook.on, tuple(hook.args)) for hook in self.profile.hooks.prepare]

    @cached_property
    def launch_script(self) -> str:
        title = f"{self.deployment} on {self.host.name}, rank {self.rank} of {self.profile.nodes}"
        return words.launch_script(title, self.argv)

    @cached_property
    def digest(self) -> str:
        """Identifies what is served: two nodes with the same digest need no restart between them.

        What is asked of the server once it runs (smoke, bench, gates, waiting) is not part of it.
        """
        served = {
            "argv": words.shell(self.argv),
            "env": self.env,
            "files": self.files,
            "draft": self.draft.digest if self.draft else None,
            "secrets": sorted(self.profile.secrets.items()),
            "prepare": self.prepared_by,
        }
        return hashlib.sha256(json.dumps(served, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The whole node as JSON; secrets are names only, so nothing is left out."""
        return {
            "digest": self.digest,
            "rank": self.rank,
            "host": self.host.model_dump(),
            "profile": self.profile.model_dump(mode="json"),
            "argv": [word if isinstance(word, str) else {PLACES[type(word)]: word.name} for word in self.argv],
            "env": dict(self.env),
            "files": dict(self.files),
            "draft": self.draft
            and {"path": self.draft.path, "host": self.draft.host, "manifest": self.draft.manifest.to_json()},
        }

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> Node:
        """The node that `to_json` wrote; how an earlier run is taken up again."""
        draft = node["draft"]
        return cls(
            host=Host.model_validate(node["host"]),
            profile=Profile.model_validate(_as_named_now(node["profile"])),
            rank=node["rank"],
            argv=tuple(map(_word, node["argv"])),
            env=tuple(node["env"].items()),
            files=tuple(node["files"].items()),
            draft=draft and Draft(draft["path"], Manifest.from_json(draft["manifest"]), draft["host"]),
        )


@dataclass(frozen=True)
class Replica:
    """One server, over one or more hosts; the first is the head."""

    nodes: tuple[Node, ...]

    @property
    def head(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True)
class Plan:
    """A deployment: its replicas side by side."""

    deployment: str
    replicas: tuple[Replica, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for replica in self.replicas for node in replica.nodes)

    def to_json(self) -> dict[str, Any]:
        return {"deployment": self.deployment, "replicas": [[n.to_json() for n in r.nodes] for r in self.replicas]}


def make(profiles: Mapping[Host, Profile], draft: Draft | None, installed: Installed | None) -> Plan:
    """The plan for profiles that are already resolved for their hosts, in the order of the inventory."""
    hosts = list(profiles)
    if not hosts:
        raise ConfigError("the profile names no hosts", remedy="set `hosts:` in the profile, or --hosts")
    first = profiles[hosts[0]]
    if len(hosts) % first.nodes:
        raise ConfigError(
            f"{len(hosts)} hosts cannot be divided into replicas of {first.nodes}", remedy="change `hosts` or `nodes`"
        )
    groups = [hosts[i : i + first.nodes] for i in range(0, len(hosts), first.nodes)]
    replicas = tuple(
        Replica(tuple(node(group, rank, profiles[host], draft, installed) for rank, host in enumerate(group)))
        for group in groups
    )
    return Plan(first.name, replicas)


def _word(written: str | Mapping[str, str]) -> Word:
    if isinstance(written, str):
        return written
    return RunPath(written["run"]) if "run" in written else HomePath(written["home"])


def _as_named_now(profile: Mapping[str, Any]) -> dict[str, Any]:
    """A profile that an earlier version has written: measures had other names."""
    known = {RENAMED.get(name, name): gate for name, gate in profile["gates"].items()}
    return {**profile, "gates": known}


def _secret_flags(profile: Profile, engine: engines.Engine) -> dict[str, str]:
    return {flag: name for name, flag in profile.secrets.items() if flag not in {"env", *engine.SECRETS}}


def node(group: list[Host], rank: int, profile: Profile, draft: Draft | None, installed: Installed | None) -> Node:
    engine = engines.load(profile.engine.name)
    command = engine.command(
        engines.Request(
            profile=profile,
            python=installed.python if installed else profile.engine.python,
            draft=RunPath(draft.served) if draft else None,
            rank=rank,
            head=group[0].address,
            address=group[rank].address,
        )
    )
    env = {
        **(installed.env if installed else {}),
        **command.env,
        **{f"NCCL_{name}": value for name, value in profile.nccl.variables().items()},
        **profile.env,
    }
    return Node(
        host=group[rank],
        profile=profile,
        rank=rank,
        argv=(*command.argv, *engine.secret_argv(_secret_flags(profile, engine))),
        env=tuple(sorted(env.items())),
        files=tuple(sorted(command.files.items())),
        draft=draft,
    )
