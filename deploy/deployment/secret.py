"""Secrets by name: their values come from our own environment, and reach a server by 0600 files alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from deploy.deployment.state import Run
from deploy.errors import ConfigError
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote

API_KEY = "api-key"  # the flag whose value we must send as well
ADMIN_KEY = "admin-api-key"  # the flag of the one that SGLang may want for what is not a request of everybody's
FILE = "secrets.json"  # in a run's folder, 0600: what it was launched with, for those who come later and have it not
READ = f'for folder; do [ ! -e "$folder/{FILE}" ] || cat -- "$folder/{FILE}" || exit; done'


def values(node: Node) -> dict[str, str]:
    """The values of the profile's secrets. ConfigError where one is missing, or cannot be sent as an API key."""
    missing = [name for name in node.profile.secrets if name not in os.environ]
    if missing:
        raise ConfigError(
            f"the secret {missing[0]} is not in the environment", remedy=f"export {missing[0]}=... and run it again"
        )
    found = {name: os.environ[name] for name in node.profile.secrets}
    for name, flag in node.profile.secrets.items():
        if flag == API_KEY and not (found[name].isascii() and found[name].isprintable()):
            raise ConfigError(
                f"the secret {name} cannot be sent as an API key", remedy="it has a line break, or is not ASCII"
            )
    return found


def of_runs(runs: Iterable[Run | None], remote: Remote) -> list[dict[str, str]]:
    """The values by name with which each run was launched; runs that had none are left out."""
    folders = [run.folder for run in runs if run and _had_any(run)]
    text = remote.sh(READ, *folders) if folders else ""
    return [json.loads(line) for line in text.splitlines()]


def _had_any(run: Run) -> bool:
    """Whether its manifest names any beside the salt of their fingerprints, or cannot tell."""
    return run.manifest is None or len(run.manifest.get("secrets") or ()) > 1


def keys_of(run: Run, remote: Remote) -> list[str]:
    """What a running server may want for a change of its weights, the best first: an admin's key, the key of all."""
    named = {flag: name for name, flag in run.node.profile.secrets.items()} if run.node else {}
    values = next(iter(of_runs([run], remote)), {})
    return [values[named[flag]] for flag in (ADMIN_KEY, API_KEY) if named.get(flag) in values]


def api_key(profile: Profile, values: Mapping[str, str]) -> str:
    """The server's API key among the values by name, or nothing."""
    return next((values.get(name, "") for name, flag in profile.secrets.items() if flag == API_KEY), "")


def api_key_of(profile: Profile, run: Run, remote: Remote) -> str:
    """The API key with which a run was launched, or nothing."""
    return next((api_key(profile, values) for values in of_runs([run], remote)), "")
