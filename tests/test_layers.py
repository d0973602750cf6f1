"""The direction of imports, and a few habits that only a machine keeps: read from the source, nothing is run.

A module may import what stands in its own layer or in a lower one. A new module is put into LAYERS by hand, once.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parent.parent / "deploy"

# From the bottom to the top; a package stands for those of its modules that are not named.
LAYERS = [
    "__init__ errors registry stops",
    "words scrub legible when events findings host options config",
    "config.consistency profile project config.extends config.editor inventory config.signs config.sources settings",
    "checkpoint engines environments transport git",
    "plan hold failures logfile",
    "lease abreast",
    "measuring",
    "remote facts",
    "state visible foreign",
    "owned ending leftovers releases asking answer identity compare secret tunnel timings loading watch evidence flags",
    "looking theirs loads lastgood baseline witnessing simulating circumstances weights described",
    "standing",
    "hooks drafts checks rollback death",
    "probes diagnosis",
    "benching provenance counted prompts swapping",
    "steps",
    "mask",
    "recipe course runner record render tables",
    "readers session wish scaffold runs filing",
    "evicting",
    "walking",
    "deploying planning checking explaining drift report",
    "running telling completing shells holding starting",
    "restoring candidates",
    "tried baselining",
    "benchmarking trying",
    "auditing trusting surveying watching ckpt",
    "commands",
    "cli __main__",
]

# What may look upward for a type alone, and why.
UPWARD_TYPES = {
    ("remote", "checks"): "the hosts of a replica show each other what was found",
    ("remote", "state"): "a remote carries its place, which is made from what the state says of a host",
    ("options", "render"): "the names of the views",
}

# Third parties that stay behind one border.
BORDERS = {
    "fabric": ["transport"],
    "paramiko": ["transport"],
    "invoke": ["transport"],
    "rich": ["render", "cli"],
    "xllamacpp": ["host"],
    "yaml": ["config.documents", "scaffold.yaml"],
    "altair": ["report"],
    "vl_convert": ["report"],
    "tenacity": ["transport", "steps"],
    "click": "cli ckpt commands shells completing".split()
    + "deploying evicting walking checking explaining running tables auditing surveying watching".split()
    + "benchmarking trying".split(),
}

# What a module of a group may import of deploy, where its layer would allow more.
ONLY = {
    "render": "render events errors legible registry",
    "record": "record events errors host mask",
    "facts": "facts host errors scrub",
    "engines": "engines registry errors profile words host",
    "host": "host",
    "transport": "transport errors",
}

PURE = ["engines", "plan", "profile", "words", "measuring", "findings"]
PURE += ["flags.__init__", "flags.reading", "flags.judging"]
PURE += [
    f"config.{name}"
    for name in ("consistency", "gates", "questions", "nccl", "nccl_words", "scalars", "schema", "validation")
]
DOERS = {
    "asyncio", "glob", "http", "importlib", "io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile",
    "threading", "time", "urllib",
}  # fmt: skip

LARGEST = 260  # lines
MAKERS = {
    "list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "Lock", "RLock", "Event",
    "Queue", "SimpleQueue", "local", "ContextVar", "Console", "cache", "lru_cache",
}  # fmt: skip
CHANGERS = {
    "append", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update", "sort",
}  # fmt: skip


@dataclass(frozen=True)
class Module:
    """One file of the package: `name` is its path with dots, without `deploy`."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def place(self) -> str:
        return placed(self.name)

    def within(self, names: list[str]) -> bool:
        return any(self.name == name or self.name.startswith(f"{name}.") for name in names)


def modules() -> list[Module]:
    found = []
    for file in sorted(DEPLOY.rglob("*.py")):
        path = file.relative_to(DEPLOY)
        if "shim" in path.parts or "builtin" in path.parts:  # of other environments, and of the examples
            continue
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        found.append(Module(name, file.read_text(encoding="utf-8")))
    return found


def imports(module: Module) -> Iterator[tuple[str, bool]]:
    """(what is imported, with dots; whether for types alone)."""
    for_types = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}: imports are written out"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in for_types


def placed(name: str) -> str:
    """Under which name LAYERS has a module, or what is imported from it."""
    words = name.split(".")
    return next((key for key in (".".join(words[:2]), words[0]) if key in RANK), "__init__")


def own(module: Module) -> Iterator[tuple[str, bool]]:
    """The parts of deploy that a module imports, as LAYERS names them."""
    for name, for_types in imports(module):
        package, _, rest = name.partition(".")
        if package == "deploy":
            yield placed(rest), for_types


MODULES = modules()
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer.split()}


def upward(module: Module) -> Iterator[str]:
    for part, for_types in own(module):
        if RANK[part] > RANK[module.place] and not (for_types and (module.top, part) in UPWARD_TYPES):
            yield f"{module.name} imports {part}, which stands above it"


def too_far(module: Module) -> Iterator[str]:
    if module.top in ONLY:
        allowed = {*ONLY[module.top].split(), "__init__"} - ({"__init__"} if module.top == "host" else set())
        yield from (f"{module.name} imports {part}" for part, _ in own(module) if part not in allowed)


def beyond_a_border(module: Module) -> Iterator[str]:
    for name, _ in imports(module):
        package = name.partition(".")[0]
        if package in BORDERS and not module.within(BORDERS[package]):
            yield f"{module.name} imports {package}, which belongs to {', '.join(BORDERS[package])}"


def acting(module: Module) -> Iterator[str]:
    if not module.within(PURE):
        return
    for name, _ in imports(module):
        if name.partition(".")[0] in DOERS:
            yield f"{module.name} is pure, and imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"open", "print", "input", "exec", "eval"}:
            yield f"{module.name}:{node.lineno} is pure, and calls {ast.unparse(node.func)}"


def not_of_the_standard_library(module: Module) -> Iterator[str]:
    if module.top != "host":
        return
    for name, for_types in imports(module):
        package = name.partition(".")[0]
        part = name.startswith("deploy.host.") and name.count(".") > 2  # whose text comes along
        if package not in {*sys.stdlib_module_names, "xllamacpp"} and not for_types and not part:
            yield f"{module.name} runs on hosts, and imports {name}"


def commands_elsewhere(module: Module) -> Iterator[str]:
    if module.top not in ("cli", "commands"):
        yield from (f"{module.name} imports a command" for part, _ in own(module) if part == "commands")


def step_conducts(module: Module) -> Iterator[str]:
    if module.top == "steps":
        conductors = {"runner", "recipe", "readers", "session", "commands", "render", "record", "deploying"}
        yield from (f"{module.name} imports {part}" for part, _ in own(module) if part in conductors)


def swallowing(module: Module) -> Iterator[str]:
    lines = module.text.splitlines()
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
        raises = isinstance(node.body[-1], ast.Raise)
        if broad and not raises and "#" not in lines[node.lineno - 1]:
            yield f"{module.name}:{node.lineno}: says not why it catches everything"


def remembering(module: Module) -> Iterator[str]:
    """State that outlives a call: a global statement, a cache, a container at the top that somebody fills."""
    named = {
        target.id
        for node in module.tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"{module.name}:{node.lineno}: global {', '.join(node.names)}"
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del) and _is(node.value, named):
            yield f"{module.name}:{node.lineno}: changes {ast.unparse(node.value)}"
        method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if method and method.attr in CHANGERS and _is(method.value, named):
            yield f"{module.name}:{method.lineno}: changes {ast.unparse(method.value)}"
    for statement in module.tree.body:
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in MAKERS:
            yield f"{module.name}:{statement.lineno}: {ast.unparse(value)} at the top"
        for decorator in getattr(statement, "decorator_list", []):
            if ast.unparse(decorator).partition("(")[0].rpartition(".")[2] in MAKERS:
                yield f"{module.name}:{statement.lineno}: {ast.unparse(decorator)} remembers for the whole process"


def _is(node: ast.expr, named: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in named and node.id.isupper()


def too_long(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > LARGEST:
        yield f"{module.name} has {lines} lines"


# Each rule with a file that breaks it: (rule, the module's name, its text).
RULES = [
    (upward, "steps.bad", "from deploy.session import Session"),
    (upward, "checkpoint.bad", "from deploy import checks"),
    (upward, "config.schema", "from deploy.config.sources import host"),
    (upward, "profile", "if TYPE_CHECKING:\n    from deploy.plan import Plan"),
    (too_far, "render.bad", "from deploy.plan import Plan"),
    (too_far, "facts.bad", "from deploy.remote import Remote"),
    (too_far, "host.bad", "from deploy import errors"),
    (beyond_a_border, "steps.bad", "import paramiko"),
    (beyond_a_border, "session", "def f():\n    from rich.table import Table"),
    (beyond_a_border, "remote", "import invoke.exceptions"),
    (acting, "engines.bad", "import subprocess"),
    (acting, "plan", "from os import environ"),
    (acting, "profile", "def f():\n    return open('x')"),
    (not_of_the_standard_library, "host.bad", "import yaml"),
    (not_of_the_standard_library, "host.bad", "from deploy import host"),
    (not_of_the_standard_library, "host.bad", "from deploy.host import source"),
    (commands_elsewhere, "wish", "from deploy.commands._options import shared"),
    (step_conducts, "steps.bad", "from deploy.runner import run"),
    (swallowing, "state", "try:\n    f()\nexcept Exception:\n    pass"),
    (swallowing, "state", "try:\n    f()\nexcept:\n    pass"),
    (remembering, "state", "def f():\n    global x\n    x = 1"),
    (remembering, "state", "SEEN = {}\ndef f():\n    SEEN['x'] = 1"),
    (remembering, "state", "SEEN = []\ndef f():\n    SEEN.append(1)"),
    (remembering, "state", "LOCK = threading.Lock()"),
    (remembering, "state", "@functools.cache\ndef f(): ..."),
    (too_long, "state", "x = 1\n" * 261),
]


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, _, _ in RULES), ids=lambda rule: rule.__name__)
def test_the_rule_holds_everywhere(rule):
    assert [line for module in MODULES for line in rule(module)] == []


@pytest.mark.parametrize(("rule", "name", "text"), RULES)
def test_the_rule_sees_who_breaks_it(rule, name, text):
    assert list(rule(Module(name, text)))


def test_every_module_has_its_layer():
    assert sorted({module.top for module in MODULES} - RANK.keys()) == []
    assert sorted(RANK.keys() - {module.place for module in MODULES}) == []


def circle(found: list[Module]) -> set[str]:
    """Who imports each other; what a function imports when it runs is counted too: a dependency all the same."""
    parts: dict[str, set[str]] = {}
    for module in found:
        below = {part for part, for_types in own(module) if not for_types} - {module.place, "__init__"}
        parts.setdefault(module.place, set()).update(below)
    while leaves := [name for name, below in parts.items() if not below & parts.keys()]:
        for name in leaves:
            del parts[name]
    return set(parts)


def test_no_module_is_in_a_circle():
    assert circle(MODULES) == set()
    assert circle([Module("state", "from deploy.releases import x"), Module("releases", "import deploy.state")])


def test_the_exceptions_are_still_needed():
    used = {(module.top, part) for module in MODULES for part, for_types in own(module) if for_types}
    assert sorted(UPWARD_TYPES.keys() - used) == []
