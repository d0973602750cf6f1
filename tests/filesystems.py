"""Real file systems for tests: an image, mounted in a mount namespace that ends with whoever made it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.project import PATIENCE

SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
HOLD = 'mount -o loop "$1" "$2" && echo mounted && exec cat'
KINDS = {"ext4": [], "xfs": ["-m", "reflink=1"]}


@dataclass(frozen=True)
class Mount:
    """A file system that only programs started by `run` see at `at`; everybody sees it at `seen`."""

    at: Path
    pid: int

    @property
    def seen(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.at}")

    def run(self, *argv: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run a program where it is mounted."""
        inside = ["nsenter", "--target", str(self.pid), "--mount", f"--wd={Path.cwd()}", "--", *argv]
        return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=600, **options)  # type: ignore[call-overload,no-any-return]


def missing(kind: str) -> str:
    """Why such a file system cannot be made here, or nothing."""
    if os.geteuid() != 0:
        return "mounting needs root"
    tools = [
        tool for tool in (f"mkfs.{kind}", "unshare", "nsenter", "setpriv") if shutil.which(tool, path=SBIN) is None
    ]
    return (
        f"not installed: {', '.join(tools)}"
        if tools
        else ""
        if Path("/dev/loop-control").exists()
        else "no loop devices"
    )


@contextmanager
def mounted(kind: str, folder: Path, megabytes: int = 400) -> Iterator[Mount]:
    """A new file system of a kind; XFS takes no less than 300 MB, of which next to nothing is used."""
    image, at = folder / f"{kind}.img", folder / kind
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    environ = {**os.environ, "PATH": SBIN}
    subprocess.run([f"mkfs.{kind}", "-q", *KINDS[kind], str(image)], check=True, env=environ, timeout=PATIENCE)
    argv = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--propagation", "private", "--", "sh", "-c"]
    holder = subprocess.Popen(
        [*argv, HOLD, "sh", str(image), str(at)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        yield Mount(at, holder.pid)
    finally:
        holder.kill()
        holder.communicate()
        image.unlink()
