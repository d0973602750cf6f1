"""What a field of a profile or an inventory may hold: text, names, amounts, each with what is wrong with another."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    FiniteFloat,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from deploy.config import gates as grammar
from deploy.config import schema, size
from deploy.config.gates import Gate

LEAST_SIZE = 1 << 16  # bytes


def _printable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("has a NUL character, which no program can be given")
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def _whole(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("should be a whole path on the host, from / on")
    return _straight(text)


def _whole_or_home(text: str) -> str:
    if not text.startswith(("/", "~/")):
        raise ValueError("should be a whole path on the host, or begin with ~/")
    return _straight(text)


def _straight(text: str) -> str:
    if ".." in text.split("/"):
        raise ValueError("should lead straight to its place, without ..")
    return text


def _gate(value: Any) -> Any:
    return value if isinstance(value, Gate) else grammar.parse(str(value))


def without_nothing(value: Any) -> Any:
    """`NAME: null` in a mapping takes away what an earlier layer said."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def named_secrets(value: Any) -> Any:
    """A plain list of names: they reach the server as environment."""
    return dict.fromkeys(value, "env") if isinstance(value, list) else without_nothing(value)


def _enough(value: int) -> int:
    """A cap below what a server says at its start would cut that off again and again."""
    if value < LEAST_SIZE:
        raise ValueError(f"should be at least {size.shown(LEAST_SIZE)}, not {size.shown(value)}")
    return value


Text = Annotated[str, AfterValidator(_printable)]
Word = Annotated[Text, StringConstraints(min_length=1)]
# Where something is made on a host: it stays where it is told, wherever a login begins.
HostFile = Annotated[Text, AfterValidator(_whole)]
HostFolder = Annotated[Text, AfterValidator(_whole_or_home)]
Name = Annotated[str, StringConstraints(pattern=schema.NAME)]
Flag = Annotated[str, StringConstraints(pattern=schema.FLAG)]
Label = Annotated[str, StringConstraints(pattern=schema.LABEL)]
Regex = Annotated[Text, AfterValidator(_regex)]
Version = Annotated[str, StringConstraints(pattern=schema.VERSION)]
Seconds = Annotated[FiniteFloat, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[
    int,
    BeforeValidator(size.parse),
    AfterValidator(_enough),
    PlainSerializer(size.shown, return_type=str, when_used="json"),
    WithJsonSchema({"type": ["integer", "string"], "pattern": size.GRAMMAR}),
]
GateText = Annotated[
    Gate,
    BeforeValidator(_gate),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": grammar.GRAMMAR}),
]
Measure = Annotated[
    grammar.Named | str,
    BeforeValidator(lambda name: grammar.measure(str(name))),
    WithJsonSchema({"type": "string", "pattern": grammar.KEY_GRAMMAR}),
]
Argument = bool | int | FiniteFloat | Text | list[bool | int | FiniteFloat | Text]
