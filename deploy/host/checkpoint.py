"""Say what the files of a checkpoint hold, without reading the weights; JSON on stdout.

Runs on a host as `python3 -I -c SOURCE PATH`, standard library only, Python 3.8 and later; the same function reads a
checkpoint here. PATH is a folder, one .safetensors file with its config beside it, or a .gguf with its other parts.
{"path", "format", "files": {name: [size, data_start, tensors, metadata]}, "tensors": {name: [dtype, shape, start, end,
file]}, "config", "index", "problems": [[what, file, at, outcome]], "d2t", "t2d"}; or {"error", "evidence", "remedy"}
where there is no checkpoint. `tensors` are those of the files that a server reads: with an index, of the files that it
names (filter_duplicate_safetensors_files in SGLang's and vLLM's model_loader/weight_utils.py).
"""

from __future__ import annotations

import gc
import json
import os
import re
import stat
import sys
from array import array
from pathlib import Path
from typing import Any

from deploy.host.header import Header, HeaderError, load, look

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B", "BOOL": "B"}
SMALL = 64 << 20  # bytes: a vocabulary map of eight million tokens, an index of half a million tensors


class NoCheckpoint(Exception):
    """There is nothing to be read: what, evidence, remedy."""


def main() -> None:
    print(json.dumps(describe(sys.argv[1])))


def describe(path: str) -> dict[str, Any]:
    """The whole answer for one path."""
    collecting = gc.isenabled()
    gc.disable()  # of a hundred thousand headers' entries nothing is garbage
    try:
        return _described(Path(path).expanduser().absolute())
    except NoCheckpoint as error:
        what, evidence, remedy = error.args
        return {"error": what, "evidence": evidence, "remedy": remedy}
    except (OSError, ValueError, RuntimeError) as error:  # a null byte in the path; ~ of a user who is not there
        return {"error": f"cannot read {path}", "evidence": str(error), "remedy": "look at its permissions"}
    finally:
        if collecting:
            gc.enable()


def _described(path: Path) -> dict[str, Any]:
    root, names = _files(path)
    found = Found(root)
    shards = [name for name in names if name.endswith(".safetensors")]
    if not shards and any(name.endswith(".gguf") for name in names):
        return {"path": str(path), "format": "gguf", "problems": found.problems}
    config = found.json("config.json")
    if INDEX in names:
        found.read_index(shards)
    for name in shards:
        found.read(name)
    if not shards:
        found.problem("there is no .safetensors file in it", "", None, "will not start")
    return {
        "path": str(path),
        "format": "safetensors" if shards else "pickle" if any(n.endswith(PICKLES) for n in names) else "none",
        "files": found.files,
        "tensors": found.tensors,
        "config": config,
        "index": found.index,
        "problems": found.problems,
        **found.maps,
    }


class Found:
    """What was read of a folder so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, list[Any]] = {}
        self.tensors: dict[str, list[Any]] = {}
        self.problems: list[list[Any]] = []
        self.index: dict[str, str] | None = None
        self.maps: dict[str, list[int] | None] = {"d2t": None, "t2d": None}

    def problem(self, what: str, file: str, at: int | None, outcome: str) -> None:
        self.problems.append([what, file, at, outcome])

    def json(self, name: str) -> dict[str, Any]:
        """An object from a small file; an empty one where there is none, which is a problem."""
        try:
            text = (self.root / name).read_bytes()
            found = json.loads(text.decode("utf-8"))
        except json.JSONDecodeError as error:
            at = len(error.doc[: error.pos].encode())
            self.problem(f"is not JSON: {error}", name, at, "will not start")
        except UnicodeDecodeError as error:
            self.problem(f"is not JSON: {error}", name, error.start, "will not start")
        except FileNotFoundError:
            self.problem("is missing", name, None, "will not start")
        except (OSError, ValueError, RecursionError) as error:
            self.problem(f"cannot be read: {error}", name, None, "will not start")
        else:
            if isinstance(found, dict):
                return found
            self.problem("is not a JSON object", name, 0, "will not start")
        return {}

    def read_index(self, shards: list[str]) -> None:
        """The index, as far as it maps names to files."""
        wanted = self.json(INDEX).get("weight_map")
        wanted = wanted if isinstance(wanted, dict) else {}
        self.index = {name: file for name, file in wanted.items() if isinstance(file, str)}
        for name in sorted(set(self.index.values()) - set(shards)):
            self.problem("is named by the index, missing", name, None, "will not start")

    def read(self, name: str) -> None:
        """One file of weights; what is wrong with it is a problem, and what else it says is kept."""
        path = self.root / name
        try:
            header, faults = look(path)
        except HeaderError as error:
            self.files[name] = [path.stat().st_size, 0, 0, {}]
            return self.problem(error.what, name, error.at, "corrupt")
        except OSError as error:
            return self.problem(f"cannot be read: {error.strerror}", name, None, "will not start")
        for fault in faults:
            self.problem(fault.what, name, fault.at, "corrupt")
        self.files[name] = [header.size, header.data_start, len(header.tensors), header.metadata]
        if self.index and name not in self.index.values():
            return None
        for tensor, line in header.tensors.items():
            self.tensors[tensor] = [*line, name]
            key = "d2t" if "d2t" in tensor else "t2d" if "t2d" in tensor else ""
            if key:
                numbers = _integers(path, header, tensor)
                # of 160 thousand flags those that are set are asked for
                spoken = key == "t2d" and numbers is not None
                self.maps[key] = [i for i, known in enumerate(numbers) if known] if spoken and numbers else numbers
        return None


def _integers(path: Path, header: Header, name: str) -> list[int] | None:
    """A vocabulary map; None where it is not of integers, beyond belief, or cut off."""
    tensor = header.tensors[name]
    code, length = INTEGERS.get(tensor.dtype), tensor.end - tensor.start
    if code is None or length > SMALL:
        return None
    content = load(path, header, name)
    return array(code, content).tolist() if len(content) == length else None


def _files(path: Path) -> tuple[Path, list[str]]:
    """The folder, and the names of the files in it that are meant; by the rules of deploy/checkpoint/manifest.py."""
    if path.is_dir():
        names = sorted(entry.name for entry in os.scandir(path) if _is_file(entry))
        if not names:
            raise NoCheckpoint(f"{path} is empty", "", "name the folder that holds config.json and the weights")
        return path, names
    if not path.is_file():
        what = "is not a file or a folder" if path.exists() else "does not exist"
        raise NoCheckpoint(f"{path} {what}", "", "")
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


if __name__ == "__main__":
    main()
