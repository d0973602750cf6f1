"""Find the draft that a profile names: here, or on a host of the inventory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from deploy import host
from deploy.checkpoint import facts as files
from deploy.checkpoint import manifest
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.manifest import Manifest
from deploy.deployment import releases
from deploy.errors import ConfigError, DeployError
from deploy.host.journal import RepairError, recover
from deploy.inventory import Inventory
from deploy.plan import Draft
from deploy.profile import Profile
from deploy.remote import Remote

ANSWER = 60.0  # seconds: the headers of a terabyte, from a disk that is cold


def split(path: str, inventory: Inventory) -> tuple[str, str]:
    """(host, path) of `host:path`, or ("", path) of a path here: only names of the inventory are hosts."""
    name, colon, rest = path.partition(":")
    is_host = bool(colon) and "/" not in name and name in inventory.hosts
    return (name, rest) if is_host else ("", path)


def facts(path: str, remote: Remote | None = None, **ask: Any) -> Facts:
    """What the files of a checkpoint say, here or on a host; `ask` as in `checkpoint.facts.read`.

    ConfigError where there is nothing.
    """
    if remote is None:
        return files.read(Path(path), **ask)
    seconds = releases.READ_BACK if ask.get("deep") else ANSWER
    return files.from_json(_asked(remote, "checkpoint", path, "-", timeout=seconds, stdin=json.dumps(ask)))


def outline(path: str, remote: Remote) -> dict[str, Any]:
    """Which tensors a checkpoint on a host has, folded there. ConfigError where there is nothing."""
    return files.found(_asked(remote, "outline", path, timeout=ANSWER))


def _asked(remote: Remote, program: str, *words: str, timeout: float, stdin: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = remote.python(host.source(program), *words, timeout=timeout, stdin=stdin.encode())
    return {**answer, "error": f"{remote.host.name}: {answer['error']}"} if "error" in answer else answer


@contextmanager
def found(profile: Profile, inventory: Inventory, remotes: Mapping[str, Remote]) -> Iterator[Draft | None]:
    """The draft, hashed where it lies. One that lies on a host and is wanted on others comes by way of this machine."""
    if profile.draft is None:
        yield None
        return
    name, path = split(profile.draft.path, inventory)
    if not name:
        yield Draft(path, manifest.of(_whole(Path(path)), manifest.cache_file()))
        return
    if name not in remotes:
        raise ConfigError(
            f"the draft {profile.draft.path} lies on a host that the deployment is not on",
            remedy=f"fetch it first (rsync {profile.draft.path} .), then name the local folder",
        )
    if set(remotes) == {name}:
        yield Draft(path, _hashed(path, remotes[name]), name)
        return
    facts(path, remotes[name])  # who opens it takes back a repair that broke off
    with TemporaryDirectory(prefix="deploy-fetch-") as folder:
        target = Path(folder, PurePosixPath(path).name)
        _fetch(path, target, remotes[name])
        yield Draft(str(target), manifest.of(target))


def _fetch(path: str, target: Path, remote: Remote) -> None:
    """A folder's files, or a file with those that go with it, into the folder `target`."""
    remote.transport.fetch(path, target, timeout=releases.READ_BACK)
    if (target / target.name).is_file():
        for file in _hashed(path, remote).files:
            beside = str(PurePosixPath(path).with_name(file.path))
            remote.transport.fetch(beside, target, timeout=releases.READ_BACK)


def _hashed(path: str, remote: Remote) -> Manifest:
    """A draft of a host. ConfigError where it is not there, or cannot be read."""
    try:
        return releases.digest(path, remote)
    except DeployError as error:
        if type(error) is not DeployError:  # the host is gone, or its python3 failed
            raise
        told = f"{remote.host.name}: the draft {path} cannot be read"
        raise ConfigError(told, evidence=error.evidence, remedy="draft=HOST:PATH names another one") from error


def _whole(path: Path) -> Path:
    """A draft of this machine; a repair of it that broke off is taken back before it is hashed."""
    try:
        recover(str(path.expanduser() if path.expanduser().is_dir() else path.expanduser().parent))
    except (RepairError, OSError) as error:
        raise ConfigError(
            f"a repair of {path} broke off, or is at work", evidence=str(error), remedy="deploy ckpt fix ends it"
        ) from error
    return path
