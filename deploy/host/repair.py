"""Repair a checkpoint as a plan says, into a new folder or where it lies. JSON on stdin, JSON on stdout:

    {"path": FOLDER or FILE, "mode": "new", "out": FOLDER}, or "mode": "in-place" with "orig": whether a copy is kept,
    "undo" or "recover"; "rename": {file: {old: new}}, "patch": {file: {tensor: [sha256, base64]}},
    "settings": [[[key, ...], [old], [new]], ...] of config.json, each of old and new empty where the key is absent

Answers {"folder", "did", "files": {name: how}}, or {"error", "remedy"} with exit status 0: the answer is complete.
A new folder appears complete and synced, or not at all. Runs on hosts: standard library, Python 3.8 and later. The
data are shared or copied by the kernel, and pass through no program.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.host.header import HeaderError, load, read
from deploy.host.inplace import Work, change, undo
from deploy.host.journal import LOCK, RepairError, locked, recover
from deploy.host.rewrite import duplicate, renamed, rewritten, stamp, sync_folder

NOTE = ".deploy-repair.json"  # hidden: no part of what is in the folder
MOVED = "it changed since it was looked at: run the command again"


def main() -> None:
    print(json.dumps(act(json.load(sys.stdin))))


def act(task: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a task says; the answer, also of what went wrong."""
    path = Path(task["path"])
    try:
        path = path.expanduser()
        if task["mode"] == "new":
            return _new(path, Path(task["out"]).expanduser(), task)
        return _in_place(path, task)
    except RepairError as error:
        return {"error": error.what, "remedy": error.remedy}
    except HeaderError as error:
        return {"error": str(error), "remedy": "look at the file; nothing was changed"}
    except OSError as error:
        return {"error": f"{error.filename or path}: {error.strerror or error}", "remedy": _remedy(error)}
    except (
        ValueError,
        RuntimeError,
    ) as error:  # a null byte in a path, half a character in config.json; a link to itself
        return {"error": f"{path}: {error}", "remedy": "nothing was changed"}


def _in_place(path: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    folder = path if path.is_dir() else path.parent
    did, how = recover(str(folder)), {}
    if task["mode"] != "recover":
        with locked(str(folder / LOCK)):
            if task["mode"] == "undo":
                did = did or undo(str(folder))
            else:
                works = [_work(folder / name, name, task) for name in _changed_weights(task)]
                texts = {name: new for name, (old, new) in _texts(folder, _listed(path), task).items() if old != new}
                did, how = "changed in place", change(str(folder), works, texts, orig=bool(task.get("orig")))
    return {"folder": str(folder), "did": did, "files": how}


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room, and run the command again; nothing was changed"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "nothing was changed; --out names another folder, where you may write"
    return "nothing was changed"


def _changed_weights(task: Mapping[str, Any]) -> list[str]:
    return sorted({*task.get("rename", {}), *task.get("patch", {})})


def _work(path: Path, name: str, task: Mapping[str, Any]) -> Work:
    """What a weights file becomes. RepairError where it is not what the plan was made for."""
    before = read(path)
    patches = []
    for tensor, content in _patches(path, name, task).items():
        old = load(path, before, tensor)
        patches.append((before.tensors[tensor].start, old, content))
    return Work(name, before, renamed(path, before, task.get("rename", {}).get(name, {})), patches)


def _patches(path: Path, name: str, task: Mapping[str, Any]) -> dict[str, bytes]:
    """New bytes of tensors by their old names."""
    header, found = read(path), {}
    for tensor, (sha256, content) in task.get("patch", {}).get(name, {}).items():
        new = base64.b64decode(content)
        old = load(path, header, tensor) if tensor in header.tensors else b""
        if hashlib.sha256(old).hexdigest() != sha256 or len(old) != len(new):
            raise RepairError(f"{path}: {tensor} is not what it was", MOVED)
        found[tensor] = new
    return found


def _texts(folder: Path, names: list[str], task: Mapping[str, Any]) -> dict[str, tuple[bytes, bytes]]:
    """The small files that are changed: (as they are, as they will be)."""
    found = {}
    every = {old: new for names in task.get("rename", {}).values() for old, new in names.items()}
    for name in names:
        if name == "config.json" and task.get("settings"):
            old, document = _document(folder / name)
            for keys, was, becomes in task["settings"]:
                _set(document, keys, was, becomes, folder / name)
        elif name.endswith(".safetensors.index.json") and every:
            old, document = _document(folder / name)
            places = document.get("weight_map")
            if isinstance(places, dict):
                document["weight_map"] = {every.get(tensor, tensor): file for tensor, file in places.items()}
        else:
            continue
        found[name] = (old, json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
    return found


def _document(path: Path) -> tuple[bytes, dict[str, Any]]:
    content = path.read_bytes()
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RepairError(f"{path} is not JSON: {error}", "mend it") from None
    if not isinstance(document, dict):
        raise RepairError(f"{path} is not a JSON object", "mend it")
    return content, document


def _set(document: dict[str, Any], keys: list[str], old: list[Any], new: list[Any], path: Path) -> None:
    inner: Any = document
    for key in keys[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    there = [inner[keys[-1]]] if isinstance(inner, dict) and keys[-1] in inner else []
    if not isinstance(inner, dict) or there != old:
        raise RepairError(f"{path}: {'.'.join(keys)} is not what it was", MOVED)
    if new:
        inner[keys[-1]] = new[0]
    else:
        del inner[keys[-1]]


def _listed(path: Path) -> list[str]:
    """The files of a checkpoint, hidden ones and kept originals left out; of a single file, its config beside it."""
    if not path.is_dir():
        near = [item.name for item in path.parent.glob("*.json") if not item.name.endswith(".index.json")]
        return sorted({path.name, *(name for name in near if not name.startswith("."))})
    found = []
    for above, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = os.path.relpath(above, path)
        found += [os.path.normpath(os.path.join(relative, name)) for name in names if not name.startswith(".")]
        if len(found) > 100_000:
            raise RepairError(
                f"{path} holds more than 100000 files, or links in a circle", "name the checkpoint itself"
            )
    return sorted(name for name in found if ".safetensors.orig" not in name and (path / name).is_file())


def _new(path: Path, out: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    path, out = path.resolve(strict=True), out.absolute()
    folder = path if path.is_dir() else path.parent
    if folder == out or folder in out.resolve().parents:
        raise RepairError(f"{out} lies in the folder that is repaired", "name one beside it, or say --in-place")
    names = _listed(path)
    missing = [above for above in out.parents if not above.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(str(out.parent / f".{out.name}.deploy-lock")):
            return _written_anew(path, folder, out, names, task)
    except BaseException:
        with contextlib.suppress(OSError):
            for above in missing:
                above.rmdir()
        raise


def _written_anew(path: Path, folder: Path, out: Path, names: list[str], task: Mapping[str, Any]) -> dict[str, Any]:
    wish = {key: task.get(key) for key in ("rename", "patch", "settings")}
    made = hashlib.sha256(json.dumps(wish, sort_keys=True).encode()).hexdigest()
    note = {"from": str(path), "plan": made, "sources": _stamps(folder, names)}
    if os.path.lexists(out):
        return _there(out, note)
    with _appearing(out) as incoming:
        how = _filled(folder, incoming, names, task)
        if _stamps(folder, names) != note["sources"]:
            raise RepairError(f"{path} changed while it was copied", "wait until it is written")
        note["results"] = _stamps(incoming, names)
        _wrote(incoming / NOTE, json.dumps(note).encode())
    return {"folder": str(out), "did": "written", "files": how}


def _there(out: Path, note: dict[str, Any]) -> dict[str, Any]:
    """The same repair of the same files, made earlier and not touched since, is as good as done."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = json.loads((out / NOTE).read_bytes())
        if note == {key: found.get(key) for key in note} and found["results"] == _stamps(out, list(found["results"])):
            return {"folder": str(out), "did": "is there already", "files": {}}
    raise RepairError(f"{out} exists, and is something else", "name another folder with --out, or remove it")


def _stamps(folder: Path, names: list[str]) -> dict[str, list[int]]:
    return {name: stamp((folder / name).stat())[:2] for name in names}


@contextlib.contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    incoming = out.with_name(f".{out.name}.incoming")
    shutil.rmtree(incoming, ignore_errors=True)  # what a killed one left
    incoming.mkdir()
    try:
        yield incoming
        for above, _, _ in os.walk(incoming):
            sync_folder(above)
        incoming.rename(out)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    sync_folder(out.parent)


def _filled(folder: Path, incoming: Path, names: list[str], task: Mapping[str, Any]) -> dict[str, str]:
    texts, how = _texts(folder, names, task), {}
    missing = [name for name in _changed_weights(task) if name not in names]
    if missing:
        raise RepairError(f"{folder}/{missing[0]} is not there", MOVED)
    for name in names:
        target = incoming / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in texts:
            shutil.copymode(folder / name, _wrote(target, texts[name][1]))
            how[name] = "written"
        elif name in _changed_weights(task):
            rename, patch = task.get("rename", {}).get(name, {}), _patches(folder / name, name, task)
            how[name] = "shared" if rewritten(folder / name, target, rename, patch).shared else "copied"
        else:
            how[name] = "shared" if duplicate(folder / name, target) else "copied"
    return how


def _wrote(path: Path, content: bytes) -> Path:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return path


if __name__ == "__main__":
    main()
