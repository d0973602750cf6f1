"""The state of the fake GPUs: who holds how much of them, and what is wrong with them."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import uuid
from pathlib import Path

from tests.fake_gpus.models import FAULTS, MODELS

BUSES = ("16", "27", "38", "5A", "98", "A9", "BA", "DB")
FAILURES = {
    "no-driver": (
        9,
        """NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. \
Make sure that the latest NVIDIA driver is installed and running.
""",
    ),
    "mismatch": (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 595.71\n"),
    "no-devices": (6, "No devices were found\n"),
    "fallen-off": (15, "Unable to determine the device handle for GPU{bus}: Unknown Error\n"),
}


def fail(status, text):
    """What is wrong goes to stdout, as with the real one."""
    sys.stdout.write(text)
    sys.exit(status)


class State:
    """The GPUs of this host, and who holds how much of them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.told = json.loads((self.folder / "gpus.json").read_text())
        model, _, count = self.told["preset"].partition(" x")
        self.count = int(count or 1)
        self.model = MODELS[model]
        self.driver = self.told.get("driver", self.model.driver)
        self.cuda = self.told.get("cuda", self.model.cuda)

    def bus(self, index):
        return f"00000000:{BUSES[index % 8]}:00.0"

    def uuid(self, index):
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.folder.resolve()} {index}')}"

    def processes(self):
        """(gpu, pid, name, mib) of what is listed."""
        listed = [(g["gpu"], g["pid"], g.get("name", "[Not Found]"), g["mib"]) for g in self._ghosts() if "pid" in g]
        for holder in self._holders():
            if alive(holder):
                listed += [(int(gpu), holder["pid"], holder["name"], mib) for gpu, mib in holder["mib"].items()]
        return [] if self.told.get("apps") == "hidden" else sorted(listed)

    def used(self, index):
        """MiB in use: by the living, by the dead that linger, by ghosts."""
        held = sum(ghost["mib"] for ghost in self._ghosts() if ghost["gpu"] == index)
        return held + sum(h["mib"].get(str(index), 0) for h in self._holders() if alive(h) or self._lingers(h))

    def _ghosts(self):
        return self.told.get("ghosts", [])

    def _holders(self):
        for path in sorted(self.folder.glob("holders/*.json")):
            try:
                yield {**json.loads(path.read_text()), "path": path}
            except FileNotFoundError:
                continue  # just taken away

    def _lingers(self, holder):
        """Nobody tells when it died: that counts from the first look after it."""
        if "died" not in holder:
            holder["died"] = time.time()
            path = holder["path"]
            kept = {key: value for key, value in holder.items() if key != "path"}
            scratch = path.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps(kept))
            scratch.replace(path)
        patience = self.told.get("linger_seconds", 0)
        return patience is None or time.time() - holder["died"] < patience

    def overridden(self, kind, index):
        """What a GPU says otherwise: by its faults, and by single "fields" or "elements"."""
        found: dict[str, str] = {}
        for gpu in ("*", str(index)):
            for fault in self.told.get("faults", {}).get(gpu, ()):
                found |= FAULTS[fault][kind == "fields"]
            found |= self.told.get(kind, {}).get(gpu, {})
        return found

    def gpu(self, index):
        """Everything that can be asked of one GPU."""
        used = self.used(index)
        fields = {
            "index": str(index), "uuid": self.uuid(index), "name": self.model.name, "count": str(self.count),
            "memory.total": self.model.total, "memory.used": str(used),
            "memory.free": str(int(self.model.total) - used),
            "utilization.gpu": "0", "driver_version": self.driver, "compute_cap": self.model.capability,
            "pci.bus_id": self.bus(index), "power.limit": self.model.power, "power.draw": "74.10",
            "mig.mode.current": "Disabled",
            "persistence_mode": "Enabled", "temperature.gpu": "31", "pstate": "P0", "serial": "[N/A]",
            "ecc.errors.uncorrected.volatile.total": "0", "ecc.errors.uncorrected.aggregate.total": "0",
            "remapped_rows.pending": "No", "remapped_rows.failure": "No", "fabric.state": "[N/A]",
            "fabric.status": "[N/A]", "clocks_event_reasons.active": "0x0000000000000001", "fan.speed": "[N/A]",
        }  # fmt: skip
        if self.model.links:
            fields |= {"fabric.state": "Completed", "fabric.status": "Success"}
        fields |= self.overridden("fields", index)
        if fields["mig.mode.current"] == "Enabled":
            fields["utilization.gpu"] = "[N/A]"
        return {**fields, "gpu_uuid": fields["uuid"], "gpu_name": fields["name"]}


def alive(holder):
    """Whether the very process lives; a zombie's memory is gone with its last thread."""
    try:
        fields = Path(f"/proc/{holder['pid']}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    gone = fields[0] in "ZX" and int(fields[17]) <= 1
    return int(fields[19]) == holder["start_ticks"] and not gone


def loaded():
    """The state, or the end of a program that finds no driver."""
    folder = os.environ.get("FAKE_GPU_STATE")
    if not folder or not Path(folder, "gpus.json").exists():
        fail(*FAILURES["no-driver"])
    return State(folder)


def fabric_manager():
    """What the state tells of it; nothing where there is no state."""
    path = Path(os.environ.get("FAKE_GPU_STATE", "/nonexistent"), "gpus.json")
    return json.loads(path.read_text()).get("fabric_manager", {}) if path.exists() else {}


def missing(program):
    """Goes on as if this stand-in were not there: with the machine's own program, or as a shell does without one."""
    here, name = Path(program).resolve().parent, Path(program).name
    others = [part for part in os.environ.get("PATH", "").split(os.pathsep) if Path(part or ".").resolve() != here]
    own = shutil.which(name, path=os.pathsep.join(others))
    if own:
        os.execv(own, [own, *sys.argv[1:]])
    fail(127, f"{name}: not found\n")
