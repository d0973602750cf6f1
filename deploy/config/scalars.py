"""What a word without quotes is: by YAML 1.2's core schema, and by the field for which it is meant."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

from deploy.config import schema

NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_SWITCH = MappingProxyType({"yes": True, "on": True, "no": False, "off": False})  # only where nothing else may stand
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def scalar(text: str) -> Any:
    """What an unquoted scalar is by YAML 1.2's core schema."""
    if text in NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text) and len(text) < 1000:  # int() itself refuses more than 4300 digits
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def typed(text: str, annotation: Any) -> Any:
    """What an unquoted scalar is where `annotation` stands."""
    if schema.holds_text(annotation):
        return None if text in NULL else text
    if schema.options(annotation) == (bool,) and text.lower() in _SWITCH:
        return _SWITCH[text.lower()]
    found = scalar(text)
    # where text is allowed as well, a number that would be written differently stays as it was: 0.80, 1e5, 007
    if isinstance(found, int | float) and not isinstance(found, bool) and str in schema.options(annotation):
        return found if str(found) == text else text
    return found
