"""Which files a checkpoint is of, and which of them a server reads: a part of programs, no program.

By the rules of deploy/checkpoint/manifest.py. Standard library, Python 3.8.
"""

from __future__ import annotations

import gc
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
BESIDE = (".json", ".jinja", ".model", ".txt")  # config, tokenizer, chat template, merges
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
LEFTOVER = re.compile(r"training_args|optimizer|scheduler|scaler|rng_state")  # of a training run


class NoCheckpoint(Exception):
    """There is nothing to be read: what, evidence, remedy."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector: of two hundred thousand tensors' lines nothing is garbage, and it would look at
    them again and again.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def files(path: Path) -> tuple[Path, list[str]]:
    """The folder, and the names of the files in it that are meant."""
    if path.is_dir():
        names = sorted(entry.name for entry in os.scandir(path) if _is_file(entry))
        if not names:
            raise NoCheckpoint(f"{path} is empty", "", "name the folder that holds config.json and the weights")
        return path, names
    if not path.is_file():
        what = "is not a file or a folder" if path.exists() else "does not exist"
        raise NoCheckpoint(f"{path} {what}", "", "name a folder, a .safetensors or a .gguf file")
    if path.suffix in PICKLES:
        what = f"{path} is a pickle, which runs code when it is opened"
        raise NoCheckpoint(what, "", "save it as .safetensors")
    if path.suffix == ".gguf":
        return path.parent, _parts(path)
    if path.suffix != ".safetensors":
        raise NoCheckpoint(f"{path} is not a checkpoint", "", "name a folder, a .safetensors or a .gguf file")
    if re.search(r"-\d+-of-\d+\.safetensors$", path.name):
        raise NoCheckpoint(f"{path} is one shard of several", "", f"name the folder: {path.parent}")
    if not (path.parent / "config.json").is_file():
        raise NoCheckpoint(f"there is no config.json beside {path}", "", "put the draft's config.json there")
    return path.parent, [path.name]


def companions(path: Path) -> list[str]:
    """The names of the files that go with a weights file; an index would name other weights."""
    names = [entry.name for entry in os.scandir(path.parent) if _is_file(entry)]
    return [name for name in names if name.endswith(BESIDE) and not name.endswith(".index.json")]


def served(shards: list[str], indexed: set[str]) -> list[str]:
    """The files that a server reads: those that the index names, else all, but for one pair.

    `filter_duplicate_safetensors_files` in model_loader/weight_utils.py, SGLang 0.5.8 to 0.5.23. vLLM's has no such
    pair: wherever there are `consolidated*.safetensors` it reads these alone (default_loader.py, 0.32.0).
    """
    if indexed:
        return [name for name in shards if name in indexed]
    if len(shards) == 2 and shards[0].endswith("consolidated.safetensors") and shards[1].endswith("model.safetensors"):
        return shards[1:]
    return shards


def read_json(root: Path, name: str) -> tuple[dict[str, Any], list[Any]]:
    """(the object in a small file, []), or ({}, [what is wrong, the file, the byte where it shows, the outcome])."""
    at, outcome = None, "corrupt"
    try:
        found = json.loads((root / name).read_bytes().decode("utf-8"))
        if isinstance(found, dict):
            return found, []
        what, at = "is not a JSON object", 0
    except json.JSONDecodeError as error:
        what, at = f"is not JSON: {error}", len(error.doc[: error.pos].encode())
        if error.doc[error.pos : error.pos + 1] == "\0":
            what = f"holds null bytes from byte {at} on, as after a crash while it was written"
    except UnicodeDecodeError as error:
        what, at = f"is not JSON: {error}", error.start
    except FileNotFoundError:
        what, outcome = "is missing", "will not start"
    except OSError as error:
        what, outcome = f"cannot be read: {error.strerror}", "will not start"
    except (ValueError, RecursionError) as error:
        what, at = f"is not JSON: {error}", 0
    return {}, [what, name, at, outcome]


def neighbours(names: list[str], shards: list[str], read: list[str]) -> list[list[Any]]:
    """Problems of files that lie together: what a server leaves alone, and copies of one thing in two layouts."""
    found: list[list[Any]] = []
    pickles = [name for name in names if name.endswith(PICKLES) and not LEFTOVER.match(name)]
    if shards and pickles:
        what = "is a pickle beside the weights: no server reads it where there are .safetensors"
        found.append([f"{what} ({some(pickles)})" if len(pickles) > 1 else what, pickles[0], None, ""])
    ignored = [name for name in shards if name not in read]
    if ignored:
        which = "the index names others" if INDEX in names else "SGLang takes the other, vLLM this one alone"
        which += f" ({some(read)})" if read else ""
        found.append([f"is not read: {which}", ignored[0], None, ""])
        found[-1][0] += f"; the same goes for {some(ignored[1:])}" if ignored[1:] else ""
    if INDEX not in names:
        found += _incomplete(read)
    layouts = {re.sub(r"[0-9]+", "0", name) for name in read}
    if len(layouts) > 1:
        what = f"lies beside weights under another name, and a server reads all of them: {some(read)}"
        found.append([what, read[0], None, ""])
    return found


def _incomplete(read: list[str]) -> list[list[Any]]:
    """Shards that are counted in the names of others and are not there, which no index would tell."""
    sets: dict[tuple[str, str], set[int]] = {}
    for name in read:
        split = re.fullmatch(r"(.*)-(\d{1,9})-of-(\d{1,9})\.safetensors", name, re.DOTALL)
        if split:
            sets.setdefault((split[1], split[3]), set()).add(int(split[2]))
    found: list[list[Any]] = []
    for (stem, of), there in sets.items():
        lost = int(of) - len(there)
        if lost > 0:
            first = next(number for number in range(1, int(of) + 1) if number not in there)
            what = f"is missing: {len(there)} of {int(of)} shards are there, and no index"
            found.append([what, f"{stem}-{first:0{len(of)}}-of-{of}.safetensors", None, "corrupt"])
    return found


def some(names: list[str]) -> str:
    """The first few of many names."""
    return ", ".join(name[:200] for name in names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Regular files that are not hidden; a link without a target is one, and says so when it is read."""
    if entry.name.startswith("."):
        return False
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def _parts(path: Path) -> list[str]:
    """A `.gguf` alone, or all parts of it where it was split: the server opens the others by itself."""
    split = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name, re.DOTALL)
    if not split:
        return [path.name]
    names = [f"{split[1]}-{number:05}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise NoCheckpoint(f"{path} is one of {len(names)} parts, and some are missing", ", ".join(missing[:5]), "")
    return names
