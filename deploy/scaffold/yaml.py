"""A profile's file as a person would write it: keys in the order of the documentation, a comment where each is from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from deploy.config import documents, schema
from deploy.config.schema import Path as Key
from deploy.engines import _flags
from deploy.errors import ConfigError
from deploy.profile import Profile
from deploy.scaffold.said import Entry

WIDTH = 110
BLOCKS = ("nccl", "env", "args")  # one line each, with its own comment
APART = ("engine", "hosts", "model", "parallel", "nccl", "env", "args", "secrets", "hooks")  # a blank line before these
APART_HINTS = ("parallel", "nccl", "smoke")  # and before these where they are only hinted at


def profile(said: Mapping[Key, Entry], title: str, source: str = "", hints: Mapping[str, str] | None = None) -> str:
    """The file's text. `hints` are lines for keys that are not said; `source` is the file whose lines are meant."""
    lines = [*(f"# {line}" for line in title.splitlines())]
    for name in schema.names(Profile):
        entries = {key[1:]: entry for key, entry in said.items() if key[0] == name}
        told = list(_key(name, entries, source)) if entries else [(hints or {})[name]] if name in (hints or {}) else []
        if told and name in (APART if entries else APART_HINTS):
            lines.append("")
        lines += told
    return "\n".join(lines) + "\n"


def _key(name: str, entries: Mapping[Key, Entry], source: str) -> Iterator[str]:
    annotation = schema.at(Profile, (name,))
    comment = _comment([entry.where for entry in entries.values()], source)
    if name in BLOCKS:
        yield f"{name}:"
        for key, entry in entries.items():
            inner = schema.under(annotation, key[0])
            yield f"  {_name(key[0])}: {value(entry.value, inner)}{_comment([entry.where], source)}"
        return
    whole = _tree(name, entries)
    line = f"{name}: {value(whole, annotation)}{comment}"
    if len(line) <= WIDTH or not isinstance(whole, dict):
        yield line
        return
    yield f"{name}:"
    for key, item in whole.items():
        where = [entry.where for path, entry in entries.items() if path[:1] == (key,)]
        yield f"  {key}: {value(item, schema.under(annotation, key))}{_comment(where, source)}"


def _tree(name: str, entries: Mapping[Key, Entry]) -> Any:
    """The value at a key: shorthands as a person would write them."""
    if () in entries:
        return entries[()].value
    tree: dict[str, Any] = {}
    order = schema.names(part) if (part := schema.part(schema.at(Profile, (name,)))) else []
    for key in sorted(entries, key=lambda key: order.index(key[0]) if key[0] in order else 0):
        inner = tree
        for step in key[:-1]:
            inner = inner.setdefault(step, {})
        inner[key[-1]] = entries[key].value
    if name == "secrets" and set(tree.values()) == {"env"}:
        return list(tree)
    short = schema.shorthand(schema.at(Profile, (name,)))
    return tree[short] if short and set(tree) == {short} else tree


def value(item: Any, annotation: Any = None) -> str:
    """A value in the flow form of YAML, with quotes only where they are needed."""
    if isinstance(item, dict):
        inner = ", ".join(f"{_name(key)}: {value(one, schema.under(annotation, key))}" for key, one in item.items())
        return f"{{{inner}}}"
    if isinstance(item, list | tuple):
        return f"[{', '.join(value(one, schema.element(annotation)) for one in item)}]"
    if not isinstance(item, str):
        return _flags.text(item)
    return item if _is_plain(item, annotation) else _quoted(item)


def _is_plain(text: str, annotation: Any) -> bool:
    """Whether text without quotes is read as this very text, here and within { } and [ ]."""
    if not re.fullmatch(r"[\w/.~<>=+$(-][^\n\t\r{}\[\],#'\"]*", text) or text != text.strip():
        return False
    try:
        node = yaml.compose(f"key: {text}", yaml.BaseLoader), yaml.compose(f"{{key: {text}}}", yaml.BaseLoader)
        read = documents.value(text, annotation, "")
    except (yaml.YAMLError, ConfigError):
        return False
    same = all(isinstance(one, yaml.MappingNode) and _only(one) == text for one in node)
    read = read.get(schema.shorthand(annotation) or "") if isinstance(read, dict) else read
    return same and read is not None and not isinstance(read, bool) and _flags.text(read) == text


def _only(node: yaml.MappingNode) -> Any:
    return node.value[0][1].value if len(node.value) == 1 else None


def _quoted(text: str) -> str:
    style = "'" if text.isprintable() and text.isascii() and "'" not in text else '"'
    dumped: str = yaml.safe_dump(text, default_style=style, width=1 << 20, allow_unicode=True)
    return dumped.strip()


def _name(text: str) -> str:
    return (
        text
        if re.fullmatch(r"[A-Za-z_][\w.-]*", text) and text.lower() not in ("null", "true", "false")
        else _quoted(text)
    )


def _comment(places: list[str], source: str) -> str:
    """Where it is from: lines of the source by their numbers, other places as they are called."""
    found = list(dict.fromkeys(filter(None, places)))
    lines = [place.removeprefix(f"{source}:") for place in found if place.startswith(f"{source}:")]
    others = [place for place in found if not place.startswith(f"{source}:")]
    numbers = sorted(set(lines), key=int)
    told = [f"line{'s' * (len(numbers) > 1)} {', '.join(numbers)}"] if numbers else []
    return f" # {'; '.join([*told, *others])}" if told or others else ""
