"""What a push sends, file by file, and the digest that names it on every host.

The digest is the sha256 of the canonical listing: a JSON array of [path, size, sha256], sorted by path, without
spaces. Its first 16 hex digits name the release folder. These are 64 bits: among a million releases on one host
the chance of two sharing a name is 3 in 100 million, and whoever doubts it compares the whole digest.

Hidden files are left out: a clone's `.git` holds every weight twice, `.cache` is the downloader's own. So are
`*.safetensors.orig*`, which `deploy ckpt fix --in-place` keeps of what it changes.
`deploy/host/digest.py` lists a host's folder by the same rules.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from deploy.errors import ConfigError, DeployError
from deploy.host.folder import PICKLES, companions

WEIGHTS = (".safetensors", ".gguf")
KEPT = ".safetensors.orig"
REMEMBERED = 10_000  # files in the cache: about 2 MB

Known = dict[str, list[Any]]  # absolute path -> [size, mtime_ns, inode, sha256]


@dataclass(frozen=True, order=True)
class File:
    """One file: its path inside the folder, bytes, and sha256 in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Every file of a checkpoint, sorted by path."""

    files: tuple[File, ...]

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical listing, in hex."""
        listing = [[file.path, file.size, file.sha256] for file in self.files]
        return hashlib.sha256(json.dumps(listing, separators=(",", ":")).encode()).hexdigest()

    @property
    def short(self) -> str:
        """The digest as a folder's name: its first 16 hex digits."""
        return self.digest[:16]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """For the record of a plan or a release."""
        return {"digest": self.digest, "size": self.size, "files": [asdict(file) for file in self.files]}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Manifest:
        """From `to_json`, or from `deploy/host/digest.py`; raises DeployError where the host could not tell."""
        if "error" in answer:
            raise DeployError(f"cannot read back {answer.get('folder')}", evidence=str(answer["error"]))
        return cls(tuple(sorted(File(**file) for file in answer["files"])))


@dataclass(frozen=True)
class Source:
    """What is to be pushed: a folder, and the files in it by their relative paths, sorted."""

    root: Path
    files: tuple[str, ...]

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """A temporary folder of links to exactly these files, so that whoever copies a folder copies nothing else."""
        with tempfile.TemporaryDirectory(prefix="deploy-push-") as folder:
            for name in self.files:
                link = Path(folder, name)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to((self.root / name).resolve())
            yield Path(folder)


def of(path: Path, cache: Path | None = None) -> Manifest:
    """Hash what `path` names (see `source`); files known to the `cache` file by size, mtime and inode are not read."""
    what = source(path)
    known = _recall(cache)
    before = dict(known)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        files = tuple(pool.map(lambda name: _hashed(what.root, name, known), what.files))
    if cache and known != before:
        _remember(cache, known)
    return Manifest(tuple(sorted(files)))


def cache_file() -> Path:
    """Where digests are remembered: ${XDG_CACHE_HOME:-~/.cache}/deploy/digests.json."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "deploy", "digests.json")


def source(path: Path) -> Source:
    """The files meant by a folder, a `.gguf` (with its other parts), or a weights file (with its config beside it)."""
    path = path.expanduser().absolute()
    with _told(path):
        if path.is_dir():
            return _folder(path)
        if not path.is_file():
            raise ConfigError(f"{path} {'is not a file or a folder' if path.exists() else 'does not exist'}")
    if path.suffix in PICKLES:
        raise ConfigError(f"{path} is a pickle, which runs code when it is opened", remedy="save it as .safetensors")
    if path.suffix == ".gguf":
        return Source(path.parent, _parts(path))
    if path.suffix == ".safetensors":
        return Source(path.parent, _with_config(path))
    raise ConfigError(f"{path} is not a checkpoint", remedy="name a folder, a .safetensors or a .gguf file")


def _folder(path: Path) -> Source:
    names = tuple(sorted(_walk(path, "", ())))
    if not names:
        raise ConfigError(f"{path} is empty", remedy="name the folder that holds config.json and the weights")
    pickles = [name for name in names if name.endswith(PICKLES)]
    if pickles and not any(name.endswith(WEIGHTS) for name in names):
        raise ConfigError(
            f"{path} holds its weights only as pickles, which run code when they are opened",
            evidence=", ".join(pickles[:5]),
            remedy="save them as .safetensors",
        )
    return Source(path, names)


def _walk(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    here = folder.stat()
    if (here.st_dev, here.st_ino) in above:
        raise ConfigError(f"{folder} is a link to a folder above it", remedy="remove the link")
    for entry in folder.iterdir():
        if entry.name.startswith(".") or KEPT in entry.name:
            continue
        with _told(entry):
            mode = entry.stat().st_mode
        if S_ISDIR(mode):
            yield from _walk(entry, f"{prefix}{entry.name}/", (*above, (here.st_dev, here.st_ino)))
        elif S_ISREG(mode):
            yield prefix + entry.name
        else:
            raise ConfigError(f"{entry} is a socket, a pipe or a device", remedy="a checkpoint holds files only")


def _parts(path: Path) -> tuple[str, ...]:
    """A `.gguf` alone, or all parts of it where it was split: the server opens the others by itself."""
    split = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name, re.DOTALL)
    if not split:
        return (path.name,)
    names = [f"{split[1]}-{number:05}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise ConfigError(f"{path} is one of {len(names)} parts, and some are missing", evidence=", ".join(missing[:5]))
    return tuple(names)


def _with_config(path: Path) -> tuple[str, ...]:
    if re.search(r"-\d+-of-\d+\.safetensors$", path.name):
        raise ConfigError(f"{path} is one shard of several", remedy=f"name the folder: {path.parent}")
    if not (path.parent / "config.json").is_file():
        raise ConfigError(f"there is no config.json beside {path}", remedy="put the draft's config.json there")
    return tuple(sorted([path.name, *companions(path)]))


def _hashed(root: Path, name: str, known: Known) -> File:
    path = root / name
    with _told(path), path.open("rb", buffering=0) as file:
        before = _stamp(file.fileno())
        entry = known.pop(str(path), [])  # put back at the end: the least used are forgotten first
        if entry[:3] != before:
            started = time.time_ns()
            entry = [*before, hashlib.file_digest(file, "sha256").hexdigest()]
            if _stamp(file.fileno()) != before or file.tell() != before[0]:
                raise ConfigError(
                    f"{path} changed while it was read", remedy="wait until it is written, then try again"
                )
            if started - before[1] < 2_000_000_000:  # a change within the same tick of the clock would not show
                return File(name, before[0], entry[3])
    known[str(path)] = entry
    return File(name, before[0], entry[3])


def _stamp(descriptor: int) -> list[int]:
    status = os.fstat(descriptor)
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _recall(cache: Path | None) -> Known:
    """What the cache knows; one that is missing or spoilt knows nothing and is written anew."""
    try:
        known = json.loads(cache.read_bytes()) if cache else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {path: entry for path, entry in known.items() if isinstance(entry, list) and len(entry) == 4}


def _remember(cache: Path, known: Known) -> None:
    temporary = cache.with_name(f".{cache.name}.{os.getpid()}.tmp")
    with suppress(OSError):  # a home that cannot be written to only costs speed
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(dict(list(known.items())[-REMEMBERED:])))
        temporary.replace(cache)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Translate what the file system says about `path`."""
    try:
        yield
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename or path} does not exist", remedy="a link whose target is gone?") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}", evidence=str(error), remedy="look at its permissions") from error
