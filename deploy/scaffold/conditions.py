"""Conditions of a script that are decided by what is known: `[ -z "$PORT" ]`, `case $MODE in`."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable

from deploy.scaffold import Word
from deploy.scaffold import expansion as expand
from deploy.scaffold.expansion import Scope
from deploy.scaffold.syntax import Tree

# Commands after which a script goes on with && as a matter of course; any other may be a question.
WORK = frozenset(
    "cd pushd source . set export ulimit mkdir rm cp mv ln touch chmod sleep echo printf true : conda module".split()
)
ONE: dict[str, Callable[[str], bool]] = {"-z": lambda text: not text, "-n": bool}
TWO: dict[str, Callable[[str, str], bool]] = {
    "=": str.__eq__,
    "==": str.__eq__,
    "!=": str.__ne__,
}


def holds(condition: list[Tree], scope: Scope) -> bool | None:
    """Whether a test of texts is true; None where that is not known."""
    command = condition[0].get("Cmd", {}) if len(condition) == 1 else {}
    if condition and condition[0].get("Negated"):
        other = holds([{**condition[0], "Negated": False}], scope)
        return None if other is None else not other
    if command.get("Type") == "TestClause":
        return _tested(command["X"], scope)
    words = [_certain(arg, scope) for arg in command.get("Args", [])]
    if None in words or len(words) < 3 or words[0] not in ("[", "test"):
        return None
    return _judged([str(word) for word in (words[1:-1] if words[0] == "[" else words[1:])])


def went_well(statement: Tree, scope: Scope) -> bool | None:
    """How a command ends: of a test what it says; of work, that it is done; None of whatever asks a question."""
    command = statement.get("Cmd", {})
    kind = command.get("Type")
    scope.spend(1)
    if statement.get("Negated") or kind == "TestClause":
        return holds([statement], scope)
    if kind == "BinaryCmd" and command["Op"] in ("&&", "||"):
        first, second = went_well(command["X"], scope), went_well(command["Y"], scope)
        decided = command["Op"] == "||"  # by which end of the first one the second is spared
        return first if first is decided else None if first is None else second
    if kind in ("DeclClause", "Block", "Subshell") or (kind == "CallExpr" and "Args" not in command):
        return True
    words = [_certain(arg, scope) for arg in command.get("Args", [])[:1]]
    if words in (["["], ["test"]):
        return holds([statement], scope)
    return True if words and str(words[0]).rpartition("/")[2] in WORK else None


def arm(command: Tree, scope: Scope) -> list[Tree] | None:
    """The statements of the arm of a `case` that fits; None where that is not known."""
    word = _certain(command["Word"], scope)
    for item in command.get("Items", []):
        patterns = [_certain(pattern, scope, pattern=True) for pattern in item.get("Patterns", [])]
        if word is None or None in patterns:
            return None
        if any(fnmatch.fnmatchcase(word, str(pattern)) for pattern in patterns):
            statements: list[Tree] = item.get("Stmts", [])
            return statements
    return None if word is None else []


def _tested(node: Tree, scope: Scope) -> bool | None:
    if node["Type"] == "UnaryTest":
        word = _certain(node["X"], scope)
        return None if word is None else _judged([node["Op"], word])
    if node["Type"] == "BinaryTest":
        left, right = _certain(node["X"], scope), _certain(node["Y"], scope)
        return None if left is None or right is None else _judged([left, node["Op"], right])
    return None


def _judged(words: list[str]) -> bool | None:
    if len(words) == 2 and words[0] in ONE:
        return ONE[words[0]](words[1])
    return TWO[words[1]](words[0], words[2]) if len(words) == 3 and words[1] in TWO else None


def _certain(node: Tree, scope: Scope, *, pattern: bool = False) -> str | None:
    """The text of a word; a parameter that is not set is empty here, as the shell has it."""
    parts = node.get("Parts")
    if parts is None:
        return None
    if pattern and all(part["Type"] == "Lit" for part in parts):
        return "".join(part["Value"] for part in parts)
    word: Word = expand.text(node, scope)
    if word.unknown and not word.unknown.endswith("is not set"):
        return None
    return word.text
