"""Files written all or none, and never over one that exists."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import ConfigError


@dataclass(frozen=True)
class File:
    """What a new file holds."""

    text: str
    executable: bool = False


def refuse(root: Path, names: Mapping[str, File]) -> None:
    """ConfigError that names what is there already."""
    there = [name for name in names if (root / name).is_symlink() or (root / name).exists()]
    if there:
        raise ConfigError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already in {root}; nothing was written",
            remedy="another name: profile=NAME" if all("profiles/" in name for name in there) else _remedy(there),
        )


def write(root: Path, files: Mapping[str, File]) -> None:
    """Write them; where one cannot be written, those that were are taken away again."""
    refuse(root, files)
    made: list[Path] = []
    try:
        for name, file in files.items():
            path = root / name
            made += _folders(path.parent)
            with path.open("x", encoding="utf-8") as opened:  # never over what came meanwhile
                made.append(path)
                opened.write(file.text)
            if file.executable:
                path.chmod(path.stat().st_mode | 0o111)
    except BaseException as error:
        remove(made)
        if isinstance(error, OSError):
            raise ConfigError(f"{error.filename or root}: cannot be written: {error.strerror}") from error
        raise


def remove(paths: list[Path]) -> None:
    """Take away what was written here; a folder only if nothing else came into it."""
    for path in reversed(paths):
        with suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def _folders(folder: Path) -> list[Path]:
    """Make a folder; those that were not there, the outer ones first."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()][::-1]
    for one in missing:
        one.mkdir()
    return missing


def _remedy(there: list[str]) -> str:
    if "inventory.yaml" in there:
        return "this is a project already; `deploy init --from launch.sh` adds a profile to it"
    return "another folder, or another name: profile=NAME"
