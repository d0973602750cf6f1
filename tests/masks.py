"""What stands in a recorded log for the paths and the addresses of the machine that it was recorded on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.environments import Installed
from tests.project import ROOT


def machine(installed: Installed) -> dict[str, str]:
    """What stands for the paths of this machine."""
    python = Path(installed.python)
    base = subprocess.check_output([python, "-c", "import sys; print(sys.base_prefix)"], text=True)
    own = subprocess.check_output(["hostname", "-I"], text=True).split()
    addresses = {address: "192.0.2.1" for address in own if "." in address}
    shim = {path: "/srv/shim" for path in installed.env.get("PYTHONPATH", "").split(os.pathsep) if path}
    return {str(python.parents[1]): "/srv/engine", **shim, str(ROOT): "/srv/deploy", base.strip(): "/usr", **addresses}


def masked(text: str, masks: Mapping[str, str]) -> str:
    """The text without this machine's paths; the longest first, since one may lie in another."""
    for path in sorted(masks, key=len, reverse=True):
        text = text.replace(path, masks[path])
    return text
