"""Which processes have a GPU's device file open: more than nvidia-smi names, and no proof that they hold memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import Fact, told_by
from deploy.facts.processes import Process

# They have the files open wherever they run, and hold nothing that a server needs: names, which the kernel cuts at 15.
DAEMONS = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter", "nvidia-smi", "nvtop"})


@dataclass(frozen=True)
class Devices:
    """`files` are {pid: device files that it has open}, `minors` {GPU's UUID: the number of its device file}."""

    files: Mapping[int, tuple[str, ...]]
    unread: frozenset[int]  # pids of other users, whose files may not be seen
    minors: Mapping[str, int]
    there: bool = False  # the files can be seen here

    def on(self, uuid: str) -> tuple[int, ...]:
        """The pids that have this GPU's file open, or some GPU's where it is not told which is whose."""
        minor = self.minors.get(uuid)
        if minor is None:
            return tuple(pid for pid, files in self.files.items() if any(file[-1].isdigit() for file in files))
        return tuple(pid for pid, files in self.files.items() if f"/dev/nvidia{minor}" in files)

    def without(self, process: Process) -> bool:
        """Whether it cannot be on a GPU, whatever nvidia-smi calls it: in a container that names pids of the host, and
        another process may have that number here. One that is ending has closed its files, and has no words any more.
        """
        seen = self.there and process.pid not in self.unread
        return seen and process.pid not in self.files and bool(process.cmdline) and process.state not in "DZX"


def parse(answer: Mapping[str, Any]) -> Devices:
    """From what `deploy.host.devices` prints."""
    files = {told["pid"]: tuple(told["files"]) for told in answer["open"]}
    return Devices(files, frozenset(answer["unread"]), dict(answer["minors"]), answer["there"])


FACT: Fact[Devices] = told_by("devices", parse)
