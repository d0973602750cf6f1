"""Installing an environment: a lock, a virtual environment, pip twice, a proof, and a stamp that is written last."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

from deploy import registry
from deploy.environments import Installed, _pip
from deploy.errors import DeployError

Say = Callable[[str], None]

STAMP = "installed.json"
SHIM = "shim"


def locate(name: str) -> Installed | None:
    """The environment, if its installation came to its end and its interpreter still works."""
    module = _load(name)
    home = folder(name)
    python = _python(home)
    if not (home / STAMP).is_file() or not os.access(python, os.X_OK):
        return None
    return Installed(str(python), module.variables(home), module.VERSION)


def install(name: str, say: Say) -> Installed:
    """Install it, unless it is there. What an earlier attempt left is removed first; pip has kept its downloads."""
    module = _load(name)
    home = folder(name)
    found = locate(name)
    if found:
        say(f"{name} {module.VERSION} is there: {home}")
        return found
    _fits(module)
    home.parent.mkdir(parents=True, exist_ok=True)
    with _alone(home.with_suffix(".lock"), say) as lock:
        found = locate(name)
        if found is None:
            _build(module, home, say, lock)
            found = locate(name)
    if found is None:
        raise DeployError(f"{name} was installed, and now it is gone", evidence=str(home))
    return found


def _load(name: str) -> ModuleType:
    return registry.load("deploy.environments", name, "environment")


def _source(module: ModuleType) -> Path:
    return Path(module.__path__[0])


def folder(name: str) -> Path:
    """Where the environment lies, or will lie."""
    module = _load(name)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "deploy" / "engines" / f"{name}-{_digest(_source(module))}"


def _digest(source: Path) -> str:
    """Of all that the environment is made from."""
    digest = hashlib.sha256()
    shim = (path for path in source.glob(f"{SHIM}/**/*") if path.is_file() and path.parent.name != "__pycache__")
    for path in sorted([*source.glob("requirements*.txt"), *shim]):
        digest.update(f"{path.relative_to(source)}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _python(home: Path) -> Path:
    return home / "venv" / "bin" / "python"


def _fits(module: ModuleType) -> None:
    """Say before the download that there are no wheels for this interpreter or machine."""
    first, last = module.PYTHON
    if not first <= sys.version_info[:2] <= last:
        wanted = f"{'.'.join(map(str, first))} to {'.'.join(map(str, last))}"
        raise DeployError(
            f"the engine has no wheels for Python {platform.python_version()}",
            evidence=f"it takes Python {wanted}; {sys.executable} would be used",
            remedy=f"run deploy itself with Python {wanted}",
        )
    library, version = platform.libc_ver()
    found = tuple(int(part) for part in version.split(".") if part.isdigit())
    if platform.machine() != "x86_64" or library != "glibc" or found < module.GLIBC:
        raise DeployError(
            "the engine has no wheels for this machine",
            evidence=f"found {platform.machine()}, {library or 'no glibc'} {version}",
            remedy=f"use an x86_64 Linux with glibc {'.'.join(map(str, module.GLIBC))} (Debian 12, Ubuntu 22.04)",
        )


@contextlib.contextmanager
def _alone(path: Path, say: Say) -> Iterator[IO[str]]:
    """Hold the lock; pip inherits it, so that a pip whose parent was killed keeps others out until it ends."""
    with path.open("w", encoding="utf-8") as lock:
        waited = 0
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited % 10 == 0:
                    say(f"another installation holds {path.name}: waiting, {waited} s")
            time.sleep(1)
            waited += 1
        yield lock


def _build(module: ModuleType, home: Path, say: Say, lock: IO[str]) -> None:
    """From nothing to the stamp."""
    began = time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    source = _source(module)
    if (source / SHIM).is_dir():
        shutil.copytree(source / SHIM, home / SHIM, ignore=shutil.ignore_patterns("__pycache__"))
    job = _pip.Job(home, say, lock)
    job.make_venv(_python(home))
    job.pip(_python(home), "--requirement", source / "requirements.txt")
    job.pip(_python(home), "--no-deps", "--requirement", source / "requirements-no-deps.txt")
    job.at("trying it")
    job.run([_python(home), "-c", module.PROOF], module.variables(home), "the engine does not work")
    _stamp(home, {"version": module.VERSION, "seconds": round(time.monotonic() - began, 1), "megabytes": job.megabytes})
    say(f"installed in {time.monotonic() - began:.0f} s: {home}")


def _stamp(home: Path, facts: dict[str, object]) -> None:
    temporary = home / f"{STAMP}.tmp"
    temporary.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    temporary.rename(home / STAMP)
