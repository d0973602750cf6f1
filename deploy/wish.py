"""What the command line asks for, before any host is touched: a profile with its overrides, on its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deploy import environments, hooks, loads, plan, prompts, registry, settings
from deploy.checkpoint import manifest
from deploy.deployment import drafts
from deploy.engines._log import Signature
from deploy.errors import ConfigError
from deploy.inventory import Host, Inventory
from deploy.logs import failures
from deploy.options import Options, environ
from deploy.plan import Draft, Installed, Plan
from deploy.profile import Profile
from deploy.project import home
from deploy.settings import Settings

PATHS = {"draft": "draft.path", "draft.path": "draft.path", "model": "model.path", "model.path": "model.path"}


@dataclass(frozen=True)
class Wish:
    """A profile as it was asked for, and the hosts that are meant."""

    settings: Settings
    hosts: tuple[Host, ...]
    words: tuple[str, ...]
    ckpt: str | None = None
    known: tuple[Signature, ...] = ()  # of the user's failures.yaml

    @property
    def profile(self) -> Profile:
        return self.settings.profile()

    @property
    def inventory(self) -> Inventory:
        return self.settings.inventory

    def profiles(self) -> Mapping[Host, Profile]:
        """The profile on each host."""
        return {host: self.settings.profile(host) for host in self.hosts}

    def plan(self, draft: Draft | None) -> Plan:
        """What will run."""
        return plan.make(self.profiles(), draft, installed(self.profile))


def load(
    name: str | None, options: Options, words: Iterable[str] = (), ckpt: str | None = None, kept: str | None = None
) -> Wish:
    """Read the profile, the inventory and all overrides. ConfigError tells everything that is wrong.

    `words` are those of an earlier launch; `ckpt` is another checkpoint, `kept` one that an earlier restart gave.
    """
    earlier, own = tuple(words), options.words
    found = settings.load(name, own, home(options), environ(), repeated=earlier)
    if ckpt is not None:
        key = "draft.path" if found.profile().draft else "model.path"
        own = (*own, f"{key}={ckpt}")
        found = settings.load(name, own, home(options), environ(), repeated=earlier)
    profile, said = found.profile(), (*earlier, *own)
    hosts = found.inventory.select(options.hosts) if options.hosts else found.hosts()
    source, known = _source(profile) if ckpt else kept, failures.load(home(options))
    wish = Wish(found, hosts, _settled(said, profile), source, known)
    _look_at_draft(wish)
    _look_at_hooks(profile)
    _look_at_waivers(wish)
    _look_at_questions(wish)
    return wish


def where(wish: Wish, hosts: Iterable[Host]) -> Wish:
    """The same on these hosts alone."""
    return replace(wish, hosts=tuple(hosts))


def installed(profile: Profile) -> Installed | None:
    """The environment that the profile names, if it names one."""
    name = profile.engine.environment
    if name is None:
        return None
    found = environments.locate(name)
    if found is None:
        raise ConfigError(f"the environment {name} is not installed", remedy=f"deploy engine install {name}")
    return Installed(found.python, found.env)


def _source(profile: Profile) -> str:
    return profile.draft.path if profile.draft else profile.model.path


def _settled(words: Iterable[str], profile: Profile) -> tuple[str, ...]:
    """Words that will mean the same in another folder; a path that each restart has named stands there once."""
    told = [_settled_word(word, profile) for word in words]
    return tuple(word for at, word in enumerate(told) if not (_path(word) and word in told[at + 1 :]))


def _path(word: str) -> str | None:
    """The key of the checkpoint's path that a word gives."""
    return PATHS.get(word.lstrip("+").partition("=")[0])


def _settled_word(word: str, profile: Profile) -> str:
    plain, key = word.lstrip("+"), _path(word)
    if key == "draft.path" and profile.draft:
        return f"{key}={profile.draft.path}"
    if plain.startswith("bench.prompts=") and isinstance(profile.bench.prompts, str):
        return f"bench.prompts={profile.bench.prompts}"
    return f"{key}={profile.model.path}" if key == "model.path" else word


def _look_at_draft(wish: Wish) -> None:
    """A draft that is not there is told before any host is reached."""
    if wish.profile.draft is None:
        return
    host, path = drafts.split(wish.profile.draft.path, wish.inventory)
    if host:
        return
    try:
        manifest.source(Path(path))
    except ConfigError as error:
        where = wish.settings.origin("draft.path").where
        remedy = error.remedy or "draft=PATH or --ckpt PATH names another one; without a draft: ~draft ~speculative"
        raise ConfigError(f"{where}: draft: {error.what}", evidence=error.evidence, remedy=remedy) from error


def _look_at_waivers(wish: Wish) -> None:
    """A waiver that names no check lets nothing pass: a typo would wait until that check fails."""
    known = registry.names("deploy.checks")
    for name in wish.profile.waive:
        if name not in known:
            where = wish.settings.origin("waive").where
            raise ConfigError(f"{where}: waive: there is no check {name!r}", remedy=registry.nearest(name, known))


def _look_at_questions(wish: Wish) -> None:
    """What would be asked once the server is up is read before it is started."""
    bench = wish.profile.bench
    for key, read in (
        ("bench.prompts", lambda: prompts.wished(bench.prompts)),
        ("bench.load", lambda: loads.load(bench.load)),
    ):
        try:
            read()
        except ConfigError as error:
            where = wish.settings.origin(key).where
            raise ConfigError(f"{where}: {key}: {error.what}", evidence=error.evidence, remedy=error.remedy) from error


def _look_at_hooks(profile: Profile) -> None:
    """A hook that cannot run is told now, not after the load."""
    for _, of_a_point in profile.hooks:
        for hook in of_a_point:
            hooks.located(hook)
