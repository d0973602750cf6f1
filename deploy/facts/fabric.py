"""The service that sets up NVSwitch, fabric manager: which version is installed, and whether it runs.

Its version must be the driver's to the last digit, or it does not start; without it CUDA ends with error 802 on boards
whose GPUs are joined by NVSwitch (A100, H100, H200, B200 in an HGX). In a virtual machine that has been given GPUs it
runs outside, and in a container it cannot be seen: the GPUs themselves (facts/gpu_health) are the better witness.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.facts import About, Answer, Command, Fact, Question

VERSION = ("nv-fabricmanager", "--version")
UNIT = ("systemctl", "show", "nvidia-fabricmanager.service", "--property=LoadState,ActiveState,SubState,Result")


@dataclass(frozen=True)
class Fabric:
    """None is what could not be seen."""

    version: str | None  # as "580.105.08"
    state: str | None  # systemd's ActiveState: "active", "inactive", "failed"; "not-found": there is no such service
    result: str | None  # why it ended, as systemd says: "exit-code", "signal"

    @property
    def installed(self) -> bool:
        return self.version is not None or self.state not in (None, "not-found")


def parse_version(text: str) -> str | None:
    """From what VERSION printed."""
    found = re.search(r"version is\s*:\s*([0-9][0-9.]*)", text)
    return found[1] if found else None


def parse_unit(text: str) -> tuple[str | None, str | None]:
    """(state, result) from what UNIT printed; a unit that systemd does not know is told with status 0 as well."""
    told = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    if not told.get("LoadState"):
        return None, None
    state = "not-found" if told["LoadState"] == "not-found" else told.get("ActiveState")
    return state, told.get("Result") if told.get("Result") not in ("", "success") else None


def _questions(_: About) -> dict[str, Question]:
    return {"version": Command(VERSION), "unit": Command(UNIT)}


def _parse(answers: Mapping[str, Answer]) -> Fabric:
    version, unit = answers["version"], answers["unit"]
    state, result = parse_unit(unit.out) if unit.status == 0 else (None, None)
    return Fabric(parse_version(version.out) if version.status == 0 else None, state, result)


FACT: Fact[Fabric] = Fact("fabric", _questions, _parse)
