"""YAML as a plain tree that knows where each of its values stands, and models' errors in plain words.

The YAML is 1.2's core schema without its surprises: `on`, `yes` and `no` are text, a key may stand once, there are
no tags and no merge keys. A scalar is read as its field wants it, so `version: 0.10` stays `0.10` where text belongs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from deploy.config import guarded, scalars, schema
from deploy.errors import ConfigError

LARGEST = 1 << 20  # bytes; a profile has a few thousand
FAST = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
PLAIN = re.compile(r"""[\w \r\n.,:;/=~{}\[\]"'#()$+^<-]*""", re.ASCII)
DEEPEST = 1000
MOST = 20_000  # values, aliases counted out: ten lines of them can say a billion


@dataclass(frozen=True)
class Document:
    """A mapping as it was read, and the line of each of its keys."""

    source: str
    tree: dict[str, Any]
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)

    def where(self, path: tuple[str | int, ...] = ()) -> str:
        """`file:line` of what stands at `path`, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.source}:{self.lines.get(path, 1)}"


def load(file: Path, model: type[BaseModel], source: str = "") -> Document:
    """The file as a document of `model`'s keys, not validated yet; `source` is its name in messages."""
    source = source or str(file)
    try:
        guarded.check(file, source)
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error
    return parse(content, model, source)


def parse(content: bytes, model: type[BaseModel], source: str) -> Document:
    """The same from a file's content."""
    builder = _Builder(source)
    node = _compose(_decode(content, source), source)
    if node is None:
        raise ConfigError(f"{source}:1: is empty", remedy=f"it needs {' and '.join(_required(model))}")
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{source}:{_line(node)}: should be a mapping (key: value), not {_kind(node)}")
    builder.lines[()] = _line(node)
    return Document(source, builder.mapping(node, model, ()), builder.lines)


def value(text: str, annotation: Any, source: str) -> Any:
    """One value in YAML, as a command line has it; a ConfigError names `source`, which has no lines."""
    node = _compose(text, source)
    return None if node is None else _Builder(source).build(node, annotation, ())


def read(text: str, annotation: Any, source: str) -> Any:
    """What `text` of a command line or a variable is where `annotation` stands.

    Text stays as it is where text belongs; lists and mappings are YAML in its flow form; nothing is None where
    something may be missing.
    """
    if not text:
        return "" if str in schema.options(annotation) and not schema.optional(annotation) else None
    kind, form = schema.container(annotation), text.lstrip()[:1]
    shorthand = schema.shorthand(annotation)
    if shorthand and form != "{":
        return None if text in scalars.NULL and schema.optional(annotation) else {shorthand: text}
    texts = str in schema.options(annotation) or schema.holds_text(annotation)
    if schema.part(annotation) or (kind is not None and (not texts or (kind is list and form == "["))):
        return value(text, annotation, source)
    return text if schema.holds_text(annotation) else scalars.typed(text, annotation)


def written(content: Mapping[str, Any]) -> str:
    """What is set in a resolved profile, as YAML that its file could have."""
    told = {key: _told(value) for key, value in content.items() if key != "name"}
    kept = {key: value for key, value in told.items() if value not in (None, {}, [])}
    text: str = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
    return text


def _told(value: Any) -> Any:
    return {k: v for k, v in value.items() if v not in (None, [])} if isinstance(value, dict) else value


class _Builder:
    """Makes a tree of composed nodes, and notes their lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[tuple[str | int, ...], int] = {}
        self.built = 0
        self.around: list[yaml.Node] = []

    def build(self, node: yaml.Node, annotation: Any, path: tuple[str | int, ...]) -> Any:
        self.built += 1
        if self.built > MOST or node in self.around:
            raise ConfigError(f"{self.source}:{_line(node)}: its aliases make it too large", remedy="write it out")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, annotation)
        self._no_tag(node)
        self.around.append(node)
        built = (
            self.mapping(node, annotation, path)
            if isinstance(node, yaml.MappingNode)
            else [self._at(item, schema.element(annotation), (*path, index)) for index, item in enumerate(node.value)]
        )
        self.around.pop()
        return built

    def _at(self, node: yaml.Node, annotation: Any, path: tuple[str | int, ...]) -> Any:
        self.lines[path] = _line(node)
        return self.build(node, annotation, path)

    def scalar(self, node: yaml.ScalarNode, annotation: Any) -> Any:
        self._no_tag(node)
        text = str(node.value)
        found = scalars.typed(text, annotation) if not node.style else text
        shorthand = schema.shorthand(annotation)
        return {shorthand: text} if shorthand and found is not None else found

    def mapping(self, node: yaml.MappingNode, annotation: Any, path: tuple[str | int, ...]) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key_node, item in node.value:
            key = self._key(key_node)
            here = (*path, key)
            if key in tree:
                raise ConfigError(
                    f"{self.source}:{_line(key_node)}: {dotted(here)}: stands there twice",
                    remedy=f"the first one is in line {self.lines[here]}",
                )
            self.lines[here] = _line(key_node)
            tree[key] = self.build(item, schema.under(annotation, key), here)
        return tree

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError(f"{self.source}:{_line(node)}: a key should be text, not {_kind(node)}")
        return str(node.value)

    def _no_tag(self, node: yaml.Node) -> None:
        if node.tag.startswith("tag:yaml.org,2002:") and node.tag.rpartition(":")[2] in {"str", "map", "seq"}:
            return
        raise ConfigError(f"{self.source}:{_line(node)}: tags such as {node.tag} have no meaning here")


def dotted(path: tuple[str | int, ...]) -> str:
    """A path as it is written on the command line."""
    return ".".join(str(key) for key in path)


def _compose(text: str, source: str) -> yaml.Node | None:
    if _plain(text):
        with suppress(yaml.YAMLError):  # PyYAML takes some more, and says better what is wrong
            fast: yaml.Node | None = yaml.compose(text, Loader=FAST)
            return fast
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error, text, source) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: is not YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: is nested too deeply") from error
    return node


def _plain(text: str) -> bool:
    """Whether libyaml, which is ten times as fast, reads it as PyYAML does: without tabs, tags, anchors, blocks of text
    and marks between documents (found by comparing both on random texts), and no deeper than its stack is.
    """
    apart = "---" in text or "..." in text or "- - -" in text
    return not apart and text.count("[") + text.count("{") < DEEPEST and bool(PLAIN.fullmatch(text))


def _unreadable(error: yaml.MarkedYAMLError, text: str, source: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark else 1
    lines = text.splitlines()
    line = lines[number - 1] if number <= len(lines) else ""
    remedy = ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        remedy = "indent with spaces; YAML takes no tabs there"
    elif re.search(r":\s+[>|][=\s]*[\d]", line):
        remedy = "quote it: an unquoted > begins a block of text in YAML, as in accept_length: '>= 1.15'"
    elif "'?'" in str(error.problem):
        remedy = "quote it: within [ ] and { }, this YAML reader takes a bare ? for its own"
    elif re.search(r":\s+[@`%&*!\[{]", line) or ": " in line.partition(": ")[2]:
        remedy = "quote the value"
    problem = error.problem or error.context or "cannot be read"
    return ConfigError(f"{source}:{number}: is not YAML: {problem}", evidence=line.strip()[:200], remedy=remedy)


def _decode(content: bytes, source: str) -> str:
    if len(content) > LARGEST:
        raise ConfigError(f"{source}: has {len(content)} bytes; {LARGEST} are the most a configuration may have")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{source}:{line}: is not UTF-8", remedy="save it as UTF-8") from error


def _required(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.is_required()] or list(model.model_fields)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: yaml.Node) -> str:
    return {"ScalarNode": "one value", "SequenceNode": "a list"}.get(type(node).__name__, "a mapping")
