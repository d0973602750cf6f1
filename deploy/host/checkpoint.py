"""Say what the files of a checkpoint hold, without reading the weights; JSON on stdout.

Runs on a host as `python3 -I -c SOURCE PATH [-]`, standard library only, Python 3.8 and later; the same function
reads a checkpoint here. PATH is a folder, one .safetensors file with its config beside it, or a .gguf with its other
parts. {"path", "format", "files": {name: [size, data_start, tensors, metadata]}, "tensors": {file: {name: [dtype,
shape, start, end]}}, "config", "index", "problems": [[what, file, at, outcome]], "d2t", "t2d", "values", "unseen",
"digests"}; or {"error", "evidence", "remedy"} where there is no checkpoint. `tensors` are those of the files that a
server reads.

Whatever is asked for besides comes as JSON on stdin where there is a `-`: {"values": true} looks at a sample of the
weights, for at most SECONDS or BRIEF, and says how many tensors were left; with {"deep": true} at all of them.
{"digests": [names]} gives sums of these tensors' samples, or of all their bytes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from deploy.host.folder import INDEX, PICKLES, NoCheckpoint, files, neighbours, read_json, served, some, uncollected
from deploy.host.gguf import Gguf, GgufError
from deploy.host.header import Header, HeaderError, load, look
from deploy.host.journal import BEGUN, RepairError, recover
from deploy.host.spread import spread
from deploy.host.values import digests, readable, statistics

INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B", "BOOL": "B"}
SMALL = 64 << 20  # bytes: a vocabulary map of eight million tokens
SECONDS, BRIEF = 0.3, 0.05  # for a look at the values of a draft, of a whole model; unless all are asked for
DRAFT = 1000  # tensors: of more, so short a sample says little in any case


def main() -> None:
    ask = json.load(sys.stdin) if sys.argv[2:] == ["-"] else {}  # names of tensors may be too long for a command line
    print(json.dumps(describe(sys.argv[1], **ask)))


def describe(path: str, **ask: Any) -> dict[str, Any]:
    """The whole answer for one path; `ask` as in ASK."""
    try:
        with uncollected():
            return _described(Path(path).expanduser().absolute(), ask)
    except NoCheckpoint as error:
        what, evidence, remedy = error.args
        return {"error": what, "evidence": evidence, "remedy": remedy}
    except (OSError, ValueError, RuntimeError) as error:  # a null byte in the path; ~ of a user who is not there
        return {"error": f"cannot read {path}", "evidence": str(error), "remedy": "look at its permissions"}


def _described(path: Path, ask: dict[str, Any]) -> dict[str, Any]:
    root, names = files(path)
    found = Found(root)
    found.recover()
    shards = [name for name in names if name.endswith(".safetensors")]
    parts = [name for name in names if name.endswith(".gguf")]
    kind = "safetensors" if shards else "gguf" if parts else "none"
    if kind == "gguf":
        for name in parts:
            found.read_gguf(name)
    else:
        kind = "pickle" if kind == "none" and any(name.endswith(PICKLES) for name in names) else kind
        found.read_folder(names, shards, kind)
    answer: dict[str, Any] = {"path": str(path), "format": kind, "files": found.files, "tensors": found.tensors}
    answer.update(config=found.config, index=found.index, problems=found.problems, **found.maps)
    if ask.get("values"):
        answer.update(found.values(deep=bool(ask.get("deep"))))
    if ask.get("digests"):
        answer["digests"] = found.digests(set(ask["digests"]), deep=bool(ask.get("deep")))
    return answer


class Found:
    """What was read of a folder so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config: dict[str, Any] = {}
        self.files: dict[str, list[Any]] = {}
        self.tensors: dict[str, dict[str, Any]] = {}
        self.problems: list[list[Any]] = []
        self.index: dict[str, str] | None = None
        self.maps: dict[str, list[int] | None] = {"d2t": None, "t2d": None}

    def problem(self, what: str, file: str, at: int | None, outcome: str) -> None:
        self.problems.append([what, file, at, outcome])

    def recover(self) -> None:
        """Who opens a checkpoint whose repair broke off takes it back first; it could not be read otherwise."""
        try:
            recover(str(self.root))
        except (RepairError, OSError) as error:
            self.problem(f"a repair broke off, or is at work: {error}; deploy ckpt fix ends it", BEGUN, None, "corrupt")

    def json(self, name: str) -> dict[str, Any]:
        """An object from a small file; an empty one where there is none, which is a problem."""
        found, wrong = read_json(self.root, name)
        self.problems += [wrong] if wrong else []
        return found

    def read_folder(self, names: list[str], shards: list[str], kind: str) -> None:
        """Config, index, and every shard."""
        self.config = self.json("config.json")
        if kind == "pickle":
            self.problem("the weights are pickles, which run code when they are opened: nothing is read of them",
                         next(name for name in names if name.endswith(PICKLES)), None, "could not tell")  # fmt: skip
        elif kind == "none":
            self.problem("there is no .safetensors file in it", "", None, "will not start")
        work = spread(lambda name: _weights(self.root / name), shards)
        if INDEX in names:
            self._read_index(set(shards))
        read = served(shards, set((self.index or {}).values()))
        self.problems += neighbours(names, shards, read)
        for name, told in work:
            self._keep(name, told, meant=name in read)
        self._compare()

    def read_gguf(self, name: str) -> None:
        """One part of a .gguf; metadata stand for the config."""
        try:
            gguf = Gguf(str(self.root / name))
        except GgufError as error:
            self.files[name] = [(self.root / name).stat().st_size, 0, 0, {}]
            return self.problem(error.what, name, error.at, "corrupt")
        except OSError as error:
            return self.problem(f"cannot be read: {error.strerror}", name, None, "will not start")
        for what, at in gguf.faults:
            self.problem(what, name, at, "corrupt")
        self.files[name] = [gguf.size, gguf.data_start, len(gguf.tensors), {}]
        self.tensors[name] = gguf.tensors
        self.config = {**gguf.metadata, **self.config}
        return None

    def values(self, *, deep: bool) -> dict[str, Any]:
        """Statistics of the values, file by file, and how many tensors there was no time for."""
        count = sum(map(len, self.tensors.values()))
        until = math.inf if deep else time.monotonic() + (SECONDS if count <= DRAFT else BRIEF)
        readables = len({
            tensor for own in self.tensors.values() for tensor, line in own.items()
            if readable(line[0]) and line[3] > line[2]
        })  # fmt: skip
        found: dict[str, Any] = {}
        for name in self.tensors:
            if found and time.monotonic() > until:
                break
            whole = self._whole(name, self.tensors[name])
            found.update(statistics(str(self.root / name), self.files[name][1], whole, until, deep=deep))
        return {"values": found, "unseen": readables - len(found)}

    def digests(self, wanted: set[str], *, deep: bool) -> dict[str, str]:
        """Sums of tensors' bytes, to find the same ones under another name."""
        found: dict[str, str] = {}
        for name, tensors in self.tensors.items():
            these = {tensor: line for tensor, line in tensors.items() if tensor in wanted}
            these = self._whole(name, these)
            if these:
                found.update(digests(str(self.root / name), self.files[name][1], these, deep=deep))
        return found

    def _whole(self, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
        """Those of a file that is cut off which are not."""
        size, data, _, _ = self.files[name]
        if not any(problem[1] == name for problem in self.problems):
            return tensors
        return {tensor: line for tensor, line in tensors.items() if data + line[3] <= size}

    def _read_index(self, shards: set[str]) -> None:
        """The index, as far as it maps names to files."""
        wanted = self.json(INDEX).get("weight_map")
        if wanted == {}:
            self.problem("has an empty weight_map, so that no file is read", INDEX, None, "will not start")
        elif not isinstance(wanted, dict) or not set(map(type, wanted.values())) <= {str}:
            if not self.problems or self.problems[-1][1] != INDEX:
                self.problem("has no weight_map from names to files", INDEX, 0, "will not start")
            wanted = {}
        self.index = wanted
        for name in sorted(set(wanted.values()) - shards):
            self.problem("is named by the index, missing", name, None, "corrupt")

    def _keep(self, name: str, told: tuple[Any, ...], *, meant: bool) -> None:
        """What `_weights` says of one file; that something is wrong with it matters if a server reads it."""
        described, tensors, problems, maps = told
        for what, at, outcome in problems:
            self.problem(what, name, at, outcome if meant else "")
        if described:
            self.files[name] = described
        if meant and described and described[1]:
            self.tensors[name] = tensors
            self.maps.update(maps)

    def _compare(self) -> None:
        """Names that are in two files, and what the index says against what is there. The server goes by the files."""
        count = sum(map(len, self.tensors.values()))
        there = set().union(*self.tensors.values())
        if count > len(there):
            seen: dict[str, str] = {}
            twice = [(name, seen[name], file) for file, tensors in self.tensors.items() for name in tensors
                     if seen.setdefault(name, file) != file]  # fmt: skip
            what = f"has {twice[0][0][:200]!r}, which {twice[0][1]} has too ({len(twice)} such): which one is served?"
            self.problem(what, twice[0][2], None, "could not tell")
        if not self.index:
            return
        lost = [name for name in self.index if name not in there and self.index[name] in self.tensors]
        if lost:
            what = f"does not have {some(lost)}, which the index says it has, nor has any other file"
            self.problem(what, self.index[lost[0]], None, "")  # a server goes by the files
        for file, tensors in self.tensors.items():
            strange = [name for name in tensors if self.index.get(name) != file]
            if strange:
                self.problem(f"has {some(strange)}, of which the index does not say so", file, None, "")


def _weights(path: Path) -> tuple[Any, ...]:
    """([bytes, where the data begin, tensors, metadata], {tensor: line}, what is wrong: [what, at, outcome], the maps)
    of one file; the first is empty where nothing could be read.
    """
    try:
        header, faults = look(path)
    except HeaderError as error:
        lost = "will not start" if "git-lfs" in error.what else "corrupt"
        return [path.stat().st_size, 0, 0, {}], {}, [[error.what, error.at, lost]], {}
    except OSError as error:
        return [], {}, [[f"cannot be read: {error.strerror}", None, "will not start"]], {}
    maps = {}
    for name in [name for name in header.tensors if "d2t" in name or "t2d" in name]:
        numbers = _integers(path, header, name)
        if "d2t" in name:
            maps["d2t"] = numbers
        else:  # of 160 thousand flags those that are set are asked for
            maps["t2d"] = None if numbers is None else [i for i, known in enumerate(numbers) if known]
    plain = dict(zip(header.tensors, map(tuple, header.tensors.values())))  # noqa: B905 (Python 3.8)
    described = [header.size, header.data_start, len(plain), header.metadata]
    return described, plain, [[fault.what, fault.at, "corrupt"] for fault in faults], maps


def _integers(path: Path, header: Header, name: str) -> list[int] | None:
    """A vocabulary map; None where it is not of integers, beyond belief, or cut off."""
    tensor = header.tensors[name]
    code, length = INTEGERS.get(tensor.dtype), tensor.end - tensor.start
    if code is None or length > SMALL:
        return None
    content = load(path, header, name)
    return array(code, content).tolist() if len(content) == length else None


if __name__ == "__main__":
    main()
