"""Say what tensors a checkpoint has, those that differ only in numbers as one; JSON on stdout.

Runs on a host as `python3 -I -c SOURCE PATH`, standard library only, Python 3.8 and later. Shards are read one after
the other and nothing of them is kept but sums, so a terabyte of two hundred thousand tensors takes no more memory than
its largest shard's header. {"path", "format", "config", "files": {name: [size, tensors]}, "rows": [[name, dtype, shape,
tensors, bytes, first file, number of files]], "index": [tensors, files] | null, "problems": [[what, file, at]]}; where
names were folded, their numbers stand as {from..to}. With at most PLAIN_ROWS tensors nothing is folded.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from deploy.host.folder import INDEX, PICKLES, NoCheckpoint, files, read_json, served, uncollected
from deploy.host.gguf import Gguf, GgufError
from deploy.host.header import HeaderError, look
from deploy.host.journal import BEGUN, RepairError, recover
from deploy.host.spread import spread

NUMBER = re.compile("[0-9]+")
NAMED = re.compile(r'"([^"\\]*)"\s*:\s*"([^"\\]*\.safetensors)"')
PLAIN_ROWS = 64
CHUNK = 1 << 20


def main() -> None:
    print(json.dumps(outline(sys.argv[1])))


def outline(path: str) -> dict[str, Any]:
    """The whole answer for one path."""
    try:
        with uncollected():
            return _outlined(Path(path).expanduser().absolute())
    except NoCheckpoint as error:
        what, evidence, remedy = error.args
        return {"error": what, "evidence": evidence, "remedy": remedy}
    except (OSError, ValueError, RuntimeError) as error:  # a null byte in the path; ~ of a user who is not there
        return {"error": f"cannot read {path}", "evidence": str(error), "remedy": "look at its permissions"}


def _outlined(path: Path) -> dict[str, Any]:
    root, names = files(path)
    broken = _recovered(root)
    shards = [name for name in names if name.endswith((".safetensors", ".gguf"))]
    shards = [name for name in shards if name.endswith(".safetensors")] or shards
    of_gguf = bool(shards) and shards[0].endswith(".gguf")
    kind = "gguf" if of_gguf else "safetensors" if shards else "pickle" if _pickles(names) else "none"
    config, wrong = ({}, []) if of_gguf else read_json(root, "config.json")
    work = spread(lambda name: _shard(root / name), shards)
    index, unread = _index(root / INDEX) if INDEX in names else (None, [])
    read = served(shards, set(index or {}))
    problems = broken + unread + ([wrong[:3]] if wrong else [])
    problems += [["is named by the index, missing", name, None] for name in sorted({*(index or {})} - {*shards})]
    problems += [["is not read by a server", name, None] for name in shards if name not in read]
    described, found = {}, Rows()
    for name, shard in work:
        size, tensors, names_sum, faults, metadata, groups, plain = shard
        described[name] = [size, tensors]
        config = {**metadata, **config} if of_gguf else config
        problems += [[what, name, at] for what, at in faults]
        if name in read:
            found.add(name, tensors, groups, plain)
        if index and name in index and index[name] != (tensors, names_sum):
            problems.append(["does not hold what the index says of it", name, None])
    return {
        "path": str(path),
        "format": kind,
        "config": config,
        "files": described,
        "rows": found.rows(),
        "index": index and [sum(count for count, _ in index.values()), len(index)],
        "problems": problems,
    }


def _recovered(root: Path) -> list[list[Any]]:
    """Who opens a checkpoint whose repair broke off takes it back first; what stands in the way is a problem."""
    try:
        recover(str(root))
    except (RepairError, OSError) as error:
        return [[f"a repair broke off, or is at work: {error}; deploy ckpt fix ends it", BEGUN, None]]
    return []


def _pickles(names: list[str]) -> bool:
    return any(name.endswith(PICKLES) for name in names)


def _shard(path: Path) -> tuple[Any, ...]:
    """(bytes, tensors, sum of their names, what is wrong, metadata of a .gguf, groups of tensors, tensors if few)."""
    metadata: dict[str, Any] = {}
    tensors: Mapping[str, Any] = {}
    faults: list[tuple[str, int | None]]
    try:
        if path.suffix == ".gguf":
            gguf = Gguf(str(path))
            metadata, tensors, faults = gguf.metadata, gguf.tensors, [*gguf.faults]
        else:
            header, wrong = look(path)
            tensors, faults = header.tensors, [(fault.what, fault.at) for fault in wrong]
        size = path.stat().st_size
    except (GgufError, HeaderError) as error:
        size, faults = path.stat().st_size, [(error.what, error.at)]
    except OSError as error:
        size, faults = 0, [(f"cannot be read: {error.strerror}", None)]
    few = len(tensors) <= PLAIN_ROWS
    plain = [[name, line[0], line[1], 1, line[3] - line[2]] for name, line in tensors.items()] if few else []
    return size, len(tensors), sum(map(hash, tensors)), faults, metadata, _groups(tensors), plain


def _groups(tensors: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Tensors folded by name without its numbers, dtype and shape: (template, dtype, shape, bytes of each, how many,
    the least and greatest number in each place). To search a joined text is several times faster than each name.
    """
    names = [name.replace("\n", " ") for name in tensors]
    templates = NUMBER.sub("{}", "\n".join(names)).split("\n")
    members: dict[Any, list[str]] = {}
    for number, line in enumerate(tensors.values()):
        key = templates[number], line[0], line[1], line[3] - line[2]
        if key in members:
            members[key].append(names[number])
        else:
            members[key] = [names[number]]
    groups = []
    for key, same in members.items():
        width = len(NUMBER.findall(same[0]))
        numbers = NUMBER.findall("\n".join(same))
        groups.append((*key, len(same), [_ends(set(numbers[place::width])) for place in range(width)]))
    return groups


class Rows:
    """What the table will have: sums of groups, and single tensors as long as these are few."""

    def __init__(self) -> None:
        self.count = 0
        self.plain: list[list[Any]] = []
        self.folded: dict[Any, list[Any]] = {}

    def add(self, file: str, count: int, groups: list[tuple[Any, ...]], plain: list[list[Any]]) -> None:
        """A shard's tensors."""
        self.count += count
        self.plain = [*self.plain, *([*line, file, 1] for line in plain)] if self.count <= PLAIN_ROWS else []
        for template, dtype, shape, size, many, slots in groups:
            fold = self.folded.setdefault((template, dtype, shape), [0, 0, file, 0, slots])
            fold[0] += many
            fold[1] += many * size
            fold[3] += 1
            fold[4] = [_ends({*known, *slot}) for known, slot in zip(fold[4], slots)]  # noqa: B905 (Python 3.8)

    def rows(self) -> list[list[Any]]:
        """One for each tensor where there are few of them, else one for those that differ only in numbers."""
        if self.count <= PLAIN_ROWS:
            return self.plain
        return [[_named(key[0], fold[4]), key[1], key[2], *fold[:4]] for key, fold in self.folded.items()]


def _ends(numbers: set[str]) -> list[str]:
    """The least and the greatest."""
    ordered = sorted(numbers, key=lambda number: (len(number), number))
    return [ordered[0], ordered[-1]]


def _named(template: str, slots: list[list[str]]) -> str:
    """The name with what its numbers are: one, or from the least to the greatest."""
    parts = template.split("{}")
    if len(parts) != len(slots) + 1:  # a name that has braces of its own
        return template
    said = [least if least == most else "{" + least + ".." + most + "}" for least, most in slots]
    return "".join(part + more for part, more in zip_longest(parts, said, fillvalue=""))


def _index(path: Path) -> tuple[dict[str, tuple[int, int]], list[list[Any]]]:
    """For each file that the index names: how many tensors it is said to have, and the sum of their names; and what is
    wrong. Read piece by piece: of a terabyte's model the index is the largest thing in memory.
    """
    found: dict[str, tuple[int, int]] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rest, piece = "", file.read(CHUNK)
            while piece:
                text, _, rest = (rest + piece).rpartition(",")
                piece = file.read(CHUNK)
                for name, shard in NAMED.findall(text if piece else f"{text},{rest}"):
                    count, total = found.get(shard, (0, 0))
                    found[shard] = (count + 1, total + hash(name))
    except OSError as error:
        return found, [[f"cannot be read: {error.strerror}", path.name, None]]
    return found, [] if found else [["maps no tensor to a file", path.name, 0]]


if __name__ == "__main__":
    main()
