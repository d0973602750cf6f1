"""Engines that the tool can install for itself, each in a virtual environment of its own.

An environment is one package here: `VERSION` (the engine's), `PYTHON` (the first and the last interpreter it takes),
`variables(folder)` (what the server's environment needs), `PROOF` (a Python program that ends with 0 where all is
well), `requirements.txt`, `requirements-no-deps.txt` (installed with --no-deps), and perhaps a folder `shim`, which
is copied beside the virtual environment. `self` is the tool's own interpreter: nothing to install.

They lie in `$XDG_CACHE_HOME/deploy/engines/NAME-DIGEST`, where the digest is that of all these files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata

from deploy import registry
from deploy.errors import ConfigError

SELF = "self"
ENGINE = "xllamacpp"  # the engine that the tool's own interpreter may have


@dataclass(frozen=True)
class Installed:
    """An environment that is there: its interpreter, the variables its server needs, the engine's version or ""."""

    python: str
    env: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


def names() -> list[str]:
    """What can be installed, and `self`."""
    return [*(name.replace("_", "-") for name in registry.names(__name__)), SELF]


def install(name: str, say: Callable[[str], None]) -> Installed:
    """The environment, installed if it is not there; `say` hears how far it is.

    ConfigError where there is none of that name; DeployError, with pip's last lines, where it cannot be installed.
    """
    if name == SELF:
        return _self()
    from deploy.environments import _install

    return _install.install(_known(name), say)


def locate(name: str) -> Installed | None:
    """The environment, or None where it is not installed. ConfigError where there is none of that name."""
    if name == SELF:
        return _self()
    from deploy.environments import _install

    return _install.locate(_known(name))


def _known(name: str) -> str:
    if name not in names():
        raise ConfigError(f"there is no environment {name!r}", remedy=registry.nearest(name, names()))
    return name


def _self() -> Installed:
    try:
        version = metadata.version(ENGINE)
    except metadata.PackageNotFoundError:
        version = ""
    return Installed(sys.executable, {}, version)
