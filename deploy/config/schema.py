"""What a dotted key of a model may hold, read from its annotations: so that one text means one thing everywhere.

A file, a `DEPLOY_SET_` variable and a word of the command line all give text. Whether `010` is a number or three
characters is for the field to say, not for the place where it was written.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Path = tuple[str, ...]

NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
FLAG = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
LABEL = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
VERSION = r"^\s*(?:===|[~=!]=|[<>]=?)\s*[\w.*+!-]+(?:\s*,\s*(?:===|[~=!]=|[<>]=?)\s*[\w.*+!-]+)*\s*$"
COUNT = r"^\d+$"
INDEX = r"^(?:\d+|-1)$"
FORMS: Mapping[str, str] = types.MappingProxyType(
    {
        NAME: "a variable's name: letters, digits and _ only",
        FLAG: "a flag's name without dashes in front: tp-size",
        LABEL: "a name: letters, digits, _ . and - only",
        VERSION: "a version specifier: ==0.5.23 or >=0.5.20,<0.6",
        COUNT: "a whole number",
        INDEX: "a whole number, or -1",
    }
)


class Part(BaseModel):
    """A frozen piece of a profile or an inventory.

    `shorthand` is the field that a plain string stands for; `made` are fields that no file and no override may say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    shorthand: ClassVar[str | None] = None
    made: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return {cls.shorthand: value} if cls.shorthand and isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = handler(core)
        return {"anyOf": [{"type": "string"}, whole]} if cls.shorthand else whole


def options(annotation: Any) -> tuple[Any, ...]:
    """The types that `annotation` allows, without `Annotated` and with unions taken apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return options(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(kind for member in get_args(annotation) for kind in options(member))
    return (annotation,)


def optional(annotation: Any) -> bool:
    """Whether nothing may stand there."""
    return type(None) in options(annotation)


def part(annotation: Any) -> type[BaseModel] | None:
    """The model among the types allowed, if there is one."""
    return next((kind for kind in options(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def shorthand(annotation: Any) -> str | None:
    """The field that a plain string stands for where a part may stand, if there is one."""
    model = part(annotation)
    return model.shorthand if model and issubclass(model, Part) else None


def container(annotation: Any) -> type | None:
    """`dict` or `list` where one is allowed, a mapping first."""
    origins = [get_origin(kind) or kind for kind in options(annotation)]
    return dict if dict in origins else list if list in origins else None


def holds_text(annotation: Any) -> bool:
    """Whether a scalar there is text whatever it looks like: no number and no switch is allowed."""
    kinds = options(annotation)
    text = str in kinds or any(get_origin(kind) is Literal for kind in kinds)
    return text and not {bool, int, float} & set(kinds)


def choices(annotation: Any) -> list[str]:
    """The words that may stand there, where they can be listed."""
    if options(annotation) == (bool,):
        return ["true", "false"]
    return [word for kind in options(annotation) if get_origin(kind) is Literal for word in get_args(kind)]


def key_choices(annotation: Any) -> list[str]:
    """The keys that a mapping may have, where they can be listed."""
    return [word for kind in options(annotation) if get_origin(kind) is dict for word in choices(get_args(kind)[0])]


def examples(model: type[BaseModel], path: Path) -> list[str]:
    """What may stand at `path`, as far as that can be listed; for a field of any text, what it says is usual."""
    around = part(at(model, path[:-1])) if path[1:] else model
    field = around.model_fields.get(path[-1]) if around else None
    return choices(at(model, path)) or list(map(str, (field and field.examples) or ()))


def under(annotation: Any, key: str) -> Any:
    """The annotation of `key` in a mapping or a model; None where there is no such key, or it is not known."""
    model = part(annotation)
    if model is not None:
        field = model.model_fields.get(key)
        return None if field is None else field.annotation
    for kind in options(annotation):
        if get_origin(kind) is dict:
            return get_args(kind)[1]
    return None


def element(annotation: Any) -> Any:
    """The annotation of a list's elements; None where that is not known."""
    return next((get_args(kind)[0] for kind in options(annotation) if get_origin(kind) is list), None)


def at(model: type[BaseModel], path: Path) -> Any:
    """The annotation at `path`; None where there is no such key."""
    annotation: Any = model
    for key in path:
        annotation = under(annotation, key)
    return annotation


def default(model: type[BaseModel], path: Path) -> Any:
    """What the field at `path` holds where nobody says it; None for nothing, and where there is no such field."""
    around = part(at(model, path[:-1])) if path[1:] else model
    field = around.model_fields.get(path[-1]) if around else None
    return None if field is None or field.is_required() else field.get_default(call_default_factory=True)


def names(model: type[BaseModel]) -> list[str]:
    """The keys of `model` that may be said."""
    made = model.made if issubclass(model, Part) else frozenset()
    return [name for name in model.model_fields if name not in made]


def keys(model: type[BaseModel], prefix: Path = ()) -> Iterator[str]:
    """Every dotted key of `model` that may be said, branches and leaves, but what stands under a free mapping."""
    for name in names(model):
        yield ".".join((*prefix, name))
        inner = part(model.model_fields[name].annotation)
        if inner is not None:
            yield from keys(inner, (*prefix, name))


def nearest(word: str, known: list[str]) -> str:
    """The known key meant by `word`: the closest, or the one that ends in it; empty where none is near."""
    last = word.rpartition(".")[2].casefold()
    same = [key for key in known if key.rpartition(".")[2].casefold() == last]
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return next(iter(same or close), "")


def flatten(tree: Mapping[str, Any], prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of a tree of mappings, each with its path; an empty mapping is a leaf."""
    for key, value in tree.items():
        path = (*prefix, key)
        if isinstance(value, Mapping) and value:
            yield from flatten(value, path)
        else:
            yield path, value
