"""Words of a shell script as the shell would expand them, as far as that can be known without running it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from deploy.scaffold import HOME, Word, patterns
from deploy.scaffold.budget import Budget, fitting
from deploy.scaffold.syntax import STRANGE, Tree

Value = Word | tuple[Word, ...]  # an array is several

OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
SPECIAL = {"#": "the number of arguments", "?": "an exit status", "$": "a process id", "!": "a process id"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "e": "\x1b"}


@dataclass
class Scope:
    """The variables at one moment; `$1`, `$2`, ... are `arguments`."""

    where: str  # of the statement that is looked at: file:line
    variables: dict[str, Value] = field(default_factory=dict)
    arguments: tuple[Word, ...] = ()
    budget: Budget = field(default_factory=Budget)

    def spend(self, steps: int) -> None:
        """Count what is about to be done."""
        self.budget.spend(steps, self.where)

    def value(self, name: str) -> Value | None:
        """What a parameter is; None where it is not set."""
        if name.isdigit() and name != "0":
            place = int(name) if len(name) < 9 else 0
            return self.arguments[place - 1] if 0 < place <= len(self.arguments) else None
        if name in ("@", "*"):
            return self.arguments
        if name in self.variables:
            return self.variables[name]
        if name == "HOME":
            return Word(HOME)
        return Word("", unknown=f"$0 is {SPECIAL.get(name, 'the script itself')}") if name in ("0", *SPECIAL) else None


@dataclass(frozen=True)
class _Piece:
    """A part of a word; unquoted text of a variable falls apart at blanks. `ends`: what follows is another word."""

    text: str
    quoted: bool = True
    unknown: str = ""
    names: tuple[str, ...] = ()
    ends: bool = False
    where: str = ""  # where it is written, if that is elsewhere
    carriers: tuple[str, ...] = ()
    several: bool | None = False  # as of a Word


def words(node: Tree, scope: Scope) -> list[Word]:
    """The words that one word of a script becomes: none, one, or several."""
    pieces = [part for piece in _pieces(node.get("Parts", []), scope) for part in _split(piece)]
    found: list[Word] = []
    current: list[_Piece] = []
    for piece in pieces:
        if piece.ends:
            found += [_joined(current, scope.where)] if current else []
            current = []
        else:
            current.append(piece)
    return [*found, _joined(current, scope.where)] if current else found


def text(node: Tree | None, scope: Scope) -> Word:
    """One word, as in an assignment: nothing falls apart."""
    return _joined(_pieces((node or {}).get("Parts", []), scope), scope.where)


def document(node: Tree, scope: Scope) -> Word:
    """A here-document: as between double quotes."""
    return _joined(_pieces(node.get("Parts", []), scope, quoted=True), scope.where)


def _joined(parts: Iterable[_Piece], where: str) -> Word:
    pieces = list(parts)
    names = tuple(dict.fromkeys(name for piece in pieces for name in piece.names))
    carriers = tuple(dict.fromkeys(name for piece in pieces for name in piece.carriers))
    unknown = next((piece.unknown for piece in pieces if piece.unknown), "")
    said = "".join(" " if piece.ends else piece.text for piece in pieces)
    place = next((piece.where for piece in pieces if piece.where), where)
    several = next((piece.several for piece in pieces if piece.several is not False), False)
    return fitting(Word(said, place, unknown, names, carriers, False if said else several))


def _split(piece: _Piece) -> Iterator[_Piece]:
    if piece.quoted or piece.ends:
        yield piece
        return
    for part in re.split(r"([ \t\n]+)", piece.text) if piece.text else []:
        if part:
            yield _Piece("", ends=True) if part.isspace() else replace(piece, text=part)
    if piece.unknown and not piece.text:
        yield piece


def _pieces(parts: list[Tree], scope: Scope, quoted: bool = False) -> Iterator[_Piece]:
    for piece in _expanded(parts, scope, quoted):
        scope.spend(1 + len(piece.text) // 4 + len(piece.names))
        strange = STRANGE in piece.text and not piece.unknown
        yield replace(piece, unknown="bytes that are not UTF-8") if strange else piece


def _expanded(parts: list[Tree], scope: Scope, quoted: bool) -> Iterator[_Piece]:
    for place, part in enumerate(parts):
        kind = part["Type"]
        if kind == "Lit":
            yield from _literal(part.get("Value", ""), quoted, first=place == 0)
        elif kind == "SglQuoted":
            said = part.get("Value", "")
            yield _Piece(_ansi(said) if part.get("Dollar") is True else said)
        elif kind == "DblQuoted":
            inner = list(_pieces(part.get("Parts", []), scope, quoted=True))
            if not _nothing(part, scope):
                yield _Piece("")  # "" is a word of its own
            yield from inner
        elif kind == "ParamExp":
            yield from _parameter(part, scope, quoted)
        elif kind == "ArithmExp":
            number = _number(part["X"], scope)
            yield _Piece("" if number is None else str(number), unknown="" if number is not None else "$(( ))")
        elif kind != "CmdSubst" or part.get("Stmts"):  # `# a remark` between the lines of a command is nothing
            unknown = {"CmdSubst": "$( ) is known only where it runs"}.get(kind, f"{kind} is not known")
            yield _Piece("", quoted, unknown, several=None if kind == "CmdSubst" and not quoted else False)


def _literal(raw: str, quoted: bool, *, first: bool) -> Iterator[_Piece]:
    """Text as it stands in a script: backslashes, and outside of quotes the tilde, patterns and braces."""
    raw = raw.replace("\\\n", "")
    if quoted:
        yield _Piece(re.sub(r'\\([$`"\\])', r"\1", raw))
        return
    if first and re.match(r"~(/|$)", raw):
        yield _Piece(HOME)
        raw = raw[1:]
    bare = re.sub(r"\\.", "", raw, flags=re.DOTALL)
    unknown = ""
    if patterns.expands(bare):
        unknown = "an unquoted pattern, which the shell may expand: quote it if it is meant as it stands"
    elif first and bare.startswith("~"):
        unknown = "the home of another user"
    if raw:
        yield _Piece(re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL), unknown=unknown)


def _ansi(raw: str) -> str:
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), raw)


def _parameter(part: Tree, scope: Scope, quoted: bool) -> Iterator[_Piece]:
    name = part["Param"]["Value"]
    value = scope.value(name)
    index = "".join(lit.get("Value", "") for lit in (part.get("Index") or {}).get("Parts", []))
    if isinstance(value, tuple) and (name in "@*" or index in ("@", "*")) and not part.get("Exp"):
        yield from _several(name, value, quoted)
        return
    if isinstance(value, tuple):
        place = int(index or 0) if patterns.NUMBER.fullmatch(index or "0") else len(value)
        value = value[place] if place < len(value) else None
    if value is None or (value.text == "" and part.get("Exp", {}).get("Op", "").startswith(":") and not value.unknown):
        yield from _unset(name, value, part, scope, quoted)
        return
    told, several = (name, *value.names), _is_several(part, quoted)
    if value.unknown:
        yield _Piece("", quoted, value.unknown, told, several=several)
        return
    changed = _changed(value.text, part, scope)
    if changed is None:
        yield _Piece("", quoted, f"${{{name}...}} with this operator is not read", told, several=several)
    else:
        carries = (name,) if changed.lstrip().startswith("-") else ()
        yield _Piece(changed, quoted, names=told, carriers=(*carries, *value.carriers))


def _nothing(quotes: Tree, scope: Scope) -> bool:
    """Whether it is "$@" or "${A[@]}" of nothing: then it is no word."""
    parts = quotes.get("Parts", [])
    return bool(parts) and all(
        part["Type"] == "ParamExp" and scope.value(part["Param"]["Value"]) == () for part in parts
    )


def _several(name: str, values: tuple[Word, ...], quoted: bool) -> Iterator[_Piece]:
    for place, word in enumerate(values):
        if place:
            yield _Piece("", ends=True)
        names, carriers = (name, *word.names), (name, *word.carriers)
        yield _Piece(word.text, quoted, word.unknown, names, False, word.where, carriers, word.several)


def _is_several(part: Tree, quoted: bool) -> bool | None:
    """Whether a parameter whose value is not known is any number of words; None: it may be."""
    index = "".join(lit.get("Value", "") for lit in (part.get("Index") or {}).get("Parts", []))
    return True if "@" in (part["Param"]["Value"], index) else False if quoted else None


def _unset(name: str, value: Word | None, part: Tree, scope: Scope, quoted: bool) -> Iterator[_Piece]:
    """A parameter that is not set, or is empty: its default, if it has one."""
    operation = part.get("Exp", {}).get("Op", "")
    if operation in (":-", "-", ":=", "="):
        default = part["Exp"].get("Word") or {}
        if operation in (":=", "="):
            scope.variables[name] = text(default, scope)
        for piece in _pieces(default.get("Parts", []), scope, quoted):
            yield replace(piece, quoted=quoted or piece.quoted, names=(name, *piece.names))
    elif operation in (":+", "+") or value is not None:
        return
    else:
        yield _Piece("", quoted, f"${name} is not set", (name,), several=_is_several(part, quoted))


def _changed(value: str, part: Tree, scope: Scope) -> str | None:
    """The value after ${value%pattern} and its like; None for what is not read here."""
    if part.get("Length"):
        return str(len(value))
    if set(part) & {"Excl", "Slice", "Repl", "Names", "Width"}:
        return None
    operation = part.get("Exp", {}).get("Op", "")
    if operation in ("", ":-", "-", ":=", "=", ":?", "?"):
        return value
    word = text(part["Exp"].get("Word"), scope)
    if operation in (":+", "+"):
        return None if word.unknown else word.text
    pattern = "".join(piece.get("Value", "\0") for piece in (part["Exp"].get("Word") or {}).get("Parts", []))
    if "\0" in pattern or operation not in ("#", "##", "%", "%%"):
        return None
    scope.spend(len(value) ** 2 // 1000)
    return patterns.trimmed(value, operation, pattern)


def _number(node: Tree, scope: Scope) -> int | None:
    """An arithmetic expression of whole numbers, + - and *; None for anything else."""
    if node["Type"] == "ParenArithm":
        return _number(node["X"], scope)
    if node["Type"] == "BinaryArithm" and node["Op"] in OPERATIONS:
        left, right = _number(node["X"], scope), _number(node["Y"], scope)
        found = None if left is None or right is None else OPERATIONS[node["Op"]](left, right)
        return found if found is None or patterns.NUMBER.fullmatch(str(abs(found))) else None
    if node["Type"] != "Word":
        return None
    word = text(node, scope)
    named = scope.value(word.text) if re.fullmatch(r"[A-Za-z_]\w*", word.text) else word
    known = isinstance(named, Word) and not named.unknown and patterns.NUMBER.fullmatch(named.text)
    return int(known[0]) if known else None


def known(variables: Mapping[str, Value]) -> dict[str, Word]:
    """The variables that are one word."""
    return {name: value for name, value in variables.items() if isinstance(value, Word)}
