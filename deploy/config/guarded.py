"""Files whose content runs as their user: nobody else may have written them."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from deploy.errors import ConfigError


def check(file: Path, source: str) -> None:
    """ConfigError where every user of this machine may write the file, or put another one in its place, or in that of
    a folder or a link on the way to it; builtin OSError where it is not there. What a profile names is run here and
    on hosts.
    """
    if file.stat().st_mode & stat.S_IWOTH:
        raise _refused(file, source, "")
    for folder in (*file.absolute().parents, *file.resolve().parents):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _refused(folder, source, f"{folder}: ")


def _refused(path: Path, source: str, where: str) -> ConfigError:
    return ConfigError(
        f"{source}: {where}every user of this machine may change it, and what it names runs as you",
        remedy=f"chmod o-w {shlex.quote(str(path))}",
    )
