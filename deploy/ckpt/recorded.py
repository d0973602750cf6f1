"""The drafts of two recorded runs, tensor by tensor, where both still lie on this machine as they were served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.checkpoint import manifest
from deploy.ckpt import Where, diff
from deploy.errors import DeployError


def told(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """(lines, differences) of two entries `draft` of checkpoints.json; nothing where they are alike or one is none.

    A draft that is not here, or not what it was, is named in the lines instead.
    """
    if not a.get("digest") or not b.get("digest") or a["digest"] == b["digest"]:
        return [], []
    paths = [str(one.get("path")) for one in (a, b)]
    changed = [why for path, one in zip(paths, (a, b), strict=True) if (why := _changed(path, str(one["digest"])))]
    if changed:
        return [f"their tensors are not compared: {'; '.join(changed)}"], []
    try:
        first, second, found = diff.between([Where(path) for path in paths], deep=False)
    except DeployError as error:
        return [f"their tensors are not compared: {error.what}"], []
    return list(diff.lines(paths[0], paths[1], first, second, found, deep=False)), [asdict(one) for one in found]


def _changed(path: str, digest: str) -> str:
    """Why what lies at `path` is not what was served; "" where it is."""
    if not Path(path).expanduser().exists():
        return f"{path} is not on this machine"
    try:
        now = manifest.of(Path(path).expanduser(), manifest.cache_file()).digest
    except DeployError as error:
        return error.what
    return "" if now == digest else f"{path} is not what it was then"
