"""Small programs that run on the hosts: standard library only, Python 3.8 or newer, JSON on stdout."""

from __future__ import annotations

from importlib import resources


def source(name: str) -> str:
    """The text of the host program `name`, to be run there as `python3 -I -c SOURCE args...`."""
    return resources.files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
