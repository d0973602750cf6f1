"""A launch script read without running it: every server that it starts, with its words, environment and folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deploy import engines
from deploy.errors import ConfigError
from deploy.scaffold import Launch, Word, commands, conditions
from deploy.scaffold import expansion as expand
from deploy.scaffold.budget import PARSING, appended
from deploy.scaffold.expansion import Scope, Value
from deploy.scaffold.syntax import Tree, line, parse, statements

DEPTH = 20  # functions, sourced files and remote scripts within each other
LOOPS = {"ForClause": "loop", "WhileClause": "loop", "SelectClause": "loop", "CaseClause": "case", "IfClause": "if"}


@dataclass
class Shell:
    """One shell as it goes through a script. What is remembered here is what a shell remembers."""

    source: str
    folder: Path | None  # of the script, on this machine
    scope: Scope
    first: int = 1  # the line of `source` in which the script begins
    host: str = ""
    cwd: str | None = None
    environment: str = ""  # a virtual environment that is active
    condition: str = ""
    depth: int = 0
    exports_all: bool = False
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Tree] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    found: list[Launch] = field(default_factory=list)
    engines: engines.All = field(default_factory=engines.every)

    # ---- statements ----------------------------------------------------------------------------------------------

    def script(self, text: str) -> None:
        """Go through a script that begins in line `first` of `source`."""
        self.scope.spend(PARSING)
        self.run(parse(text, self.source, self.first))

    def run(self, script: list[Tree]) -> None:
        """Go through statements in order."""
        for statement in script:
            self.statement(statement)

    def statement(self, node: Tree) -> None:
        """One statement."""
        command = node.get("Cmd")
        if command is None:
            return
        self.scope.where = f"{self.source}:{line(node) + self.first - 1}"
        self.scope.spend(1)
        kind = command["Type"]
        if kind in LOOPS:
            self._branches(command, self.scope.where)
        elif kind in ("CallExpr", "DeclClause"):
            getattr(self, f"_{kind.lower()}")(command, node.get("Redirs", []))
        elif kind == "BinaryCmd":
            self._both(command)
        elif kind == "FuncDecl":
            self.functions[command["Name"]["Value"]] = command["Body"]
        elif kind in ("Block", "Subshell"):
            self._group(command, kind)
        elif kind == "TimeClause":
            self.statement(command.get("Stmt", {}))  # `time` alone has none

    def _group(self, command: Tree, kind: str) -> None:
        before = self._state()
        self.run(command.get("Stmts", []))
        if kind == "Subshell":
            self._restore(before)

    def _both(self, command: Tree) -> None:
        """Two commands, the second by how the first one ends, which is known of tests and taken for granted of work."""
        first, second, operation = command["X"], command["Y"], command["Op"]
        before, where = self._state(), self.scope.where
        self.statement(first)
        if operation not in ("&&", "||"):  # a pipe: each in a shell of its own
            self._restore(before)
            self.statement(second)
            self._restore(before)
            return
        well = conditions.went_well(first, self.scope)
        if well is None:
            self._perhaps(second, f"the {operation} in {where}")
        elif well == (operation == "&&"):
            self.statement(second)

    def _state(self) -> tuple[dict[str, Value], set[str], str | None, str]:
        self.scope.spend(len(self.scope.variables) // 10)
        return dict(self.scope.variables), set(self.exported), self.cwd, self.environment

    def _restore(self, state: tuple[dict[str, Value], set[str], str | None, str]) -> None:
        self.scope.variables, self.exported = dict(state[0]), set(state[1])
        self.cwd, self.environment = state[2:]

    def _branches(self, command: Tree, where: str) -> None:
        """A branch that is taken for sure is gone through; of the others it is only known what they may change."""
        kind = LOOPS[command["Type"]]
        if kind == "if":
            self.run(command.get("Cond", []))
            taken = conditions.holds(command.get("Cond", []), self.scope)
            if taken is not None:
                other = command.get("Else") or {}
                self.run(command.get("Then", [])) if taken else self._else(other, where)
                return
        if kind == "case":
            arm = conditions.arm(command, self.scope)
            if arm is not None:
                self.run(arm)
                return
        self._perhaps(command, f"the {kind} in {where}")

    def _else(self, branch: Tree, where: str) -> None:
        if branch.get("Cond"):  # elif
            self._branches({"Type": "IfClause", **branch}, where)
        else:
            self.run(branch.get("Then", []))

    def _perhaps(self, node: Tree, why: str) -> None:
        """What is under a condition: servers that it starts are marked, and what it changes is not known after it."""
        (before, _, cwd, environment), outer, arguments = self._state(), self.condition, self.scope.arguments
        self.condition = self.condition or why
        for statement in statements(node):
            self.statement(statement)
        self.condition = outer
        after = self.scope.variables
        for name in {*before, *after}:
            if before.get(name) is not after.get(name):
                after[name] = Word("", self.scope.where, f"${name} depends on {why}", (name,))
        if self.scope.arguments is not arguments:
            self.scope.arguments = (Word("", unknown=f"$@ depends on {why}", several=True),)
        self.cwd = cwd if self.cwd == cwd else None
        if self.environment != environment:
            self.environment = f"\nwhich interpreter is meant depends on {why}"

    # ---- commands ------------------------------------------------------------------------------------------------

    def _declclause(self, command: Tree, _: list[Tree]) -> None:
        exports = command["Variant"]["Value"] == "export"
        for assign in command.get("Args", []):
            if "Name" not in assign:  # an option, or a word that is expanded to a name
                exports = exports or any("x" in word.text for word in expand.words(assign["Value"], self.scope))
                continue
            if not assign.get("Naked"):
                self._assign(assign)
            if exports:
                self.exported.add(assign["Name"]["Value"])

    def _assign(self, assign: Tree) -> None:
        name = assign["Name"]["Value"]
        if "Index" in assign:
            self.scope.variables[name] = Word("", self.scope.where, f"${name}[...] is not read", (name,))
            return
        before = self.scope.variables.get(name)
        if "Array" in assign:
            items = [w for item in assign["Array"].get("Elems") or [] for w in expand.words(item["Value"], self.scope)]
            kept = before if isinstance(before, tuple) and assign.get("Append") else ()
            self.scope.variables[name] = (*kept, *items)
            return
        value = expand.text(assign.get("Value"), self.scope)
        if assign.get("Append") and isinstance(before, Word):
            value = appended(before, value)
        self.scope.variables[name] = value
        if self.exports_all:
            self.exported.add(name)

    def _callexpr(self, command: Tree, redirections: list[Tree]) -> None:
        if "Args" not in command:
            for assign in command.get("Assigns", []):
                self._assign(assign)
            return
        own = {
            assign["Name"]["Value"]: expand.text(assign.get("Value"), self.scope)
            for assign in command.get("Assigns", [])
        }
        words = [word for arg in self._placed(command["Args"]) for word in arg]
        if not words:
            return
        if words[0].text in self.functions and self.depth < DEPTH:
            self._function(words)
        elif not commands.builtin(self, words):
            self._program(words, own, redirections)

    def _placed(self, args: list[Tree]) -> Iterator[list[Word]]:
        """The words of each argument, with the line in which it stands."""
        for arg in args:
            self.scope.where = f"{self.source}:{line(arg) + self.first - 1}"
            yield expand.words(arg, self.scope)

    def _function(self, words: list[Word]) -> None:
        outer, self.scope.arguments, self.depth = self.scope.arguments, tuple(words[1:]), self.depth + 1
        self.statement(self.functions[words[0].text])
        self.scope.arguments, self.depth = outer, self.depth - 1

    def _program(self, words: list[Word], own: dict[str, Word], redirections: list[Tree]) -> None:
        """A program is started: a server, a shell with another script, or what is of no interest."""
        nested = commands.script_in(words)
        text = nested.script if nested else None
        if nested and text is None:
            documents = [expand.document(r["Hdoc"], self.scope) for r in redirections if "Hdoc" in r]
            text = documents[0] if documents else None
        if nested and text is not None:
            self._within(text, nested)
            return
        self.found.append(self._launch(words, own))

    def _within(self, script: Word, nested: commands.Nested) -> None:
        """A script in a word: of `bash -c`, of `eval`, or of ssh, which takes nothing of this shell along."""
        host = nested.host or self.host
        if script.unknown:
            self.found.append(Launch(self.source, script.where, (), {}, blocked=script.unknown, host=host))
            return
        if self.depth >= DEPTH:
            return
        first = int(script.where.rpartition(":")[2])
        all_here = {} if nested.host else self.scope.variables
        handed = {n: value for n, value in all_here.items() if n in self.exported or nested.same_shell}
        scope = Scope(script.where, handed, budget=self.scope.budget)
        inner = Shell(self.source, None if nested.host else self.folder, scope, first, host, condition=self.condition)
        inner.depth, inner.found, inner.notes, inner.engines = self.depth + 1, self.found, self.notes, self.engines
        if not nested.host:
            inner.cwd, inner.environment, inner.exported = self.cwd, self.environment, set(self.exported)
        inner.script(script.text)

    def _launch(self, words: list[Word], own: dict[str, Word]) -> Launch:
        """A program with the environment that it has; what stands before a server's own words is taken off."""
        self.scope.spend((len(self.scope.variables) + len(self.notes)) // 10 + len(words) ** 2 // 1000)
        env = {name: value for name, value in expand.known(self.scope.variables).items() if name in self.exported}
        program, given, notes, blocked = commands.unwrapped(words, self.engines)
        argv = commands.in_environment(program, self.environment, self.cwd)
        env, where, told = {**env, **own, **given}, program[0].where, (*self.notes, *notes)
        whole = commands.whole(self.cwd)
        return Launch(self.source, where, tuple(argv), env, self.host, self.condition, blocked, told, whole=whole)


def read(script: str, source: str, folder: Path | None) -> list[Launch]:
    """Everything that a script starts, in order; `source` is its name in messages, `folder` where it lies."""
    shell = Shell(source, folder, Scope(f"{source}:1"))
    try:
        shell.script(script)
    except RecursionError as error:
        raise ConfigError(f"{shell.scope.where}: is nested too deeply to be read") from error
    return shell.found
