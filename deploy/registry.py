"""A package's modules, by name: what makes "one new file" true for engines, checks, steps, views and commands."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType

from deploy.errors import ConfigError


def names(package: str) -> list[str]:
    """Names of the modules in `package`, sorted; those that begin with an underscore are its own."""
    paths = map(Path, importlib.import_module(package).__path__)
    files = [
        file for path in paths for file in path.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()
    ]
    return sorted({file.stem for file in files if not file.name.startswith("_")})


def load(package: str, name: str, kind: str) -> ModuleType:
    """The module `name` of `package`; a `kind` that does not exist is a ConfigError with the nearest name."""
    module = name.replace("-", "_")
    loaded = module.isidentifier() and module[0] != "_" and f"{package}.{module}" in sys.modules
    # without reading the folder again: a check of many hosts asks for its modules thousands of times
    if not loaded and module not in (known := names(package)):
        raise ConfigError(f"there is no {kind} {name!r}", remedy=nearest(name, known))
    return importlib.import_module(f"{package}.{module}")  # waits where another thread is just importing it


def nearest(word: str, known: list[str]) -> str:
    """A remedy for a word that is not known: the nearest one, or all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
