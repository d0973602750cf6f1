"""The folder that says what is deployed where: `inventory.yaml`, `profiles/`, and what they name."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import ConfigError
from deploy.options import Options

INVENTORY = "inventory.yaml"


@dataclass(frozen=True)
class Project:
    """A folder with an `inventory.yaml`. Profiles are looked up in it, then among those that come with the tool."""

    root: Path

    @property
    def inventory(self) -> Path:
        """Its inventory file."""
        return self.root / INVENTORY

    def profiles(self) -> dict[str, Path]:
        """The file of each profile by name, its own before those that come with the tool."""
        return dict(sorted({**_profiles(builtin()), **_profiles(self.root)}.items()))

    def profile(self, name: str) -> Path:
        """The file of the profile `name`; a ConfigError names the nearest one."""
        known = self.profiles()
        if name in known:
            return known[name]
        if not re.fullmatch(r"[\w.-]+", name):
            raise ConfigError(f"{name!r} is not a profile's name", remedy=f"known: {', '.join(known)}")
        close = difflib.get_close_matches(name, known, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        raise ConfigError(f"there is no profile {name!r} in {self.root / 'profiles'}", remedy=remedy)

    def shown(self, file: Path) -> str:
        """`file` as messages name it: by its way from the project, if it lies in it."""
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)


def builtin() -> Path:
    """The project that comes with the tool: carried by an installed package, or the checkout itself."""
    here = Path(__file__).resolve().parent
    carried = here / "builtin"
    return carried if carried.is_dir() else here.parent


def find(start: Path | None = None, chosen: Path | None = None) -> Project | None:
    """The nearest folder from `start` (default: the current one) upward that has an inventory, or None.

    `chosen` (--project) is taken instead; without an inventory in it, ConfigError.
    """
    if chosen is not None:
        root = chosen.expanduser().resolve()
        if not (root / INVENTORY).is_file():
            raise ConfigError(
                f"{chosen} is not a project: it has no {INVENTORY}", remedy="write one, or another --project"
            )
        return Project(root)
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / INVENTORY).is_file():
            return Project(folder)
    return None


def find_or_builtin(start: Path | None = None, chosen: Path | None = None) -> Project:
    """The same; the project that comes with the tool where there is none."""
    return find(start, chosen) or Project(builtin())


def home(options: Options) -> Project:
    """The project that is meant: --project, the nearest one, or the one that comes with the tool."""
    return find_or_builtin(chosen=options.project)


def owner(file: Path) -> Path:
    """The project folder to which a profile's file belongs, from which its relative paths are taken."""
    return file.parent.parent


def _profiles(root: Path) -> dict[str, Path]:
    files = (root / "profiles").glob("[!.]*.yaml")  # an editor's lock is a hidden link to nowhere
    return {file.stem: file for file in files if file.is_file()}
