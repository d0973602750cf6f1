"""Secrets by name: their values come from our own environment, and reach a server by 0600 files alone."""

from __future__ import annotations

import os

from deploy.errors import ConfigError
from deploy.plan import Node

API_KEY = "api-key"  # the flag whose value we must send as well


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
