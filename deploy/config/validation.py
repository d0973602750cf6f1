"""A tree of plain values made a model, with every mistake told in plain words and with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deploy.config import schema
from deploy.config.documents import dotted
from deploy.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]

_WORDS: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "a mapping (key: value)",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping (key: value)",
    "string_type": "text",
}


def validate(model: type[M], tree: Mapping[str, Any], where: Callable[[Path], str]) -> M:
    """`tree` as a `model`; a ConfigError lists every mistake. `where` gives the place (file:line) of a path."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        lines = [f"{where(path)}: {message}" for path, message in _told(model, tree, error)]
        raise ConfigError("\n".join(lines)) from error


def _told(model: type[BaseModel], tree: Any, error: ValidationError) -> Iterator[tuple[Path, str]]:
    """Each (path, message), once for each path: a union complains once for each of its members."""
    grouped: dict[Path, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_path(detail, tree), []).append(detail)
    for path, details in grouped.items():
        for wrong in details[0].get("ctx", {}).get("wrong", ()):
            yield wrong["path"], f"{dotted(wrong['path'])}: {wrong['message']}"
        if details[0]["type"] != "cross":
            yield path, f"{dotted(path)}: {_message(model, path, details)}"


def _path(detail: ErrorDetails, tree: Any) -> Path:
    """The error's place in the tree: without the names of union members, and of validators, that pydantic puts in."""
    path: list[str | int] = []
    for index, key in enumerate(detail["loc"]):
        last = index == len(detail["loc"]) - 1
        missing = last and detail["type"] == "missing"
        if missing or (isinstance(tree, Mapping) and key in tree):
            path.append(key)
            tree = None if missing else tree[key]
        elif isinstance(tree, list) and isinstance(key, int):
            path.append(key)
            tree = tree[key]
    return tuple(path)


def _message(model: type[BaseModel], path: Path, details: list[ErrorDetails]) -> str:
    first = details[0]
    if first["type"] == "missing":
        return "is missing"
    if first["type"] == "extra_forbidden":
        return _unknown(model, path)
    if first["loc"][-1] == "[key]":
        return _key(first)
    deepest = [detail for detail in details if detail["type"] not in _WORDS]
    if deepest:
        return _sentence(deepest[0])
    wanted = dict.fromkeys(_WORDS[detail["type"]] for detail in details)
    return f"should be {' or '.join(wanted)}, not {_shown(first['input'])}"


def _sentence(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "value_error":
        return str(context["error"])
    if detail["type"] in {"string_too_short", "too_short"}:
        return "should not be empty"
    if detail["type"] == "string_pattern_mismatch":
        return f"should be {_form(detail)}, not {_shown(detail['input'])}"
    message = detail["msg"]
    message = message.replace("Input should be", "should be").replace("String should", "should")
    return f"{message[0].lower()}{message[1:]}, not {_shown(detail['input'])}"


def _key(detail: ErrorDetails) -> str:
    """A key of a free mapping that is not spelled as one may be."""
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if str(detail["input"]).startswith("-"):
        return f"is written without dashes: {str(detail['input']).lstrip('-')}"
    return f"is not {_form(detail)}"


def _form(detail: ErrorDetails) -> str:
    pattern = str(detail["ctx"]["pattern"])
    return schema.FORMS.get(pattern, f"of the form {pattern}")


def _unknown(model: type[BaseModel], path: Path) -> str:
    """No such key: the nearest one of the model in which it stands."""
    annotation: Any = model
    for key in path[:-1]:
        annotation = schema.element(annotation) if isinstance(key, int) else schema.under(annotation, key)
    around = schema.part(annotation)
    known = schema.names(around) if around else []
    near = schema.nearest(str(path[-1]).removeprefix("NCCL_"), known)
    listed = f"known: {', '.join(known)}" if len(known) <= 30 else f"{len(known)} are known"
    return f"there is no such key; {f'did you mean {near}?' if near else listed}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    shown = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    shown = {"a dict": "a mapping", "a list": "a list"}.get(shown, shown)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
