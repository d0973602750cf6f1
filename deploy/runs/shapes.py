"""What a run's documents must be like for their readers: of other versions, or of a broken disk, they may be anything.

Only what is read is looked at; whatever else stands there is let be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _File(_Shape):
    path: str
    sha256: str
    size: int


class _Manifest(_Shape):
    digest: str = ""
    files: list[_File] = Field(default_factory=list)


class _Draft(_Shape):
    path: str = ""
    host: str | None = ""
    manifest: _Manifest | None = None


class _Host(_Shape):
    name: str


class _Node(_Shape):
    host: _Host | None = None
    profile: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, Any] = Field(default_factory=dict)
    argv: list[str | dict[str, str]] = Field(default_factory=list)
    draft: _Draft | None = None


class _Plan(_Shape):
    replicas: list[list[_Node]] = Field(default_factory=list)


class _Installed(_Shape):
    gpus: list[Any] | None = None


class _Versions(_Shape):
    tool: str | None = None
    hosts: dict[str, _Installed | int | str | list[Any] | None] = Field(default_factory=dict)


class _Checkpoints(_Shape):
    draft: _Manifest | None = None
    model: dict[str, dict[str, Any]] | None = None


class _Project(_Shape):
    changed: list[Any] | None = None
    more: int | None = None


SHAPES: Mapping[str, type[_Shape]] = {
    "plan": _Plan, "versions": _Versions, "checkpoints": _Checkpoints, "project": _Project,
}  # fmt: skip


def wrong(name: str, document: Mapping[str, Any]) -> str:
    """Where a document is not what its readers rely on; "" where it is."""
    try:
        SHAPES[name].model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return ""
