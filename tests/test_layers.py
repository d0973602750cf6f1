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

# From the bottom to the top; a package stands for all of its modules.
LAYERS = [
    "__init__ errors events findings host registry",
    "config text transport",
    "checkpoint environments facts flags inventory options profile",
    "abreast engines locking project",
    "measuring plan remote settings",
    "deployment looking ownership prompts",
    "hooks server",
    "checks loads",
    "bench probes swapping",
    "record render steps",
    "runs walk",
    "ckpt completion logs report scaffold",
    "wish",
    "operations",
    "status trial",
    "commands",
    "cli __main__",
]

# What may look upward for a type alone, and why.
UPWARD_TYPES = {
    ("remote", "checks"): "the hosts of a replica show each other what was found",
    ("remote", "deployment"): "a remote carries its place, which is made from what the state says of a host",
    ("options", "render"): "the names of the views",
    ("config", "profile"): "what must fit together is said of whole profiles",
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
    "click": "cli ckpt commands completion".split()
    + "text.tables walk.walking logs.explaining status.watching trial.trying".split()
    + [
        f"operations.{name}"
        for name in ("auditing", "benchmarking", "checking", "deploying", "evicting", "running", "surveying")
    ],
}

# What a module of a group may import of deploy, where its layer would allow more.
ONLY = {
    "render": "render events errors text.legible registry",
    "record": "record events errors host text.scrub",
    "facts": "facts host errors text.scrub",
    "engines": "engines registry errors profile text.words host",
    "host": "host",
    "transport": "transport errors",
}

PURE = ["engines", "plan", "profile", "text.words", "measuring", "findings"]
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


def own(module: Module) -> Iterator[tuple[str, bool]]:
    """The parts of deploy that a module imports: the packages and modules at its top."""
    for name, for_types in imports(module):
        package, _, rest = name.partition(".")
        if package == "deploy":
            part = rest.partition(".")[0]
            yield (part if part in RANK else "__init__"), for_types


MODULES = modules()
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer.split()}


def upward(module: Module) -> Iterator[str]:
    for part, for_types in own(module):
        if RANK[part] > RANK[module.top] and not (for_types and (module.top, part) in UPWARD_TYPES):
            yield f"{module.name} imports {part}, which stands above it"


def too_far(module: Module) -> Iterator[str]:
    if module.top in ONLY:
        allowed = tuple(f"deploy.{name}." for name in ONLY[module.top].split())
        named = (name for name, _ in imports(module) if name.partition(".")[0] == "deploy")
        yield from (f"{module.name} imports {name}" for name in named if not f"{name}.".startswith(allowed))


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
        conductors = {"commands", "record", "render"}  # `walk` and `operations` stand above
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
    (upward, "steps.bad", "from deploy.walk.session import Session"),
    (upward, "checkpoint.bad", "from deploy import checks"),
    (upward, "config.schema", "from deploy.settings.sources import Origin"),
    (upward, "profile", "if TYPE_CHECKING:\n    from deploy.plan import Plan"),
    (too_far, "render.bad", "from deploy.plan import Plan"),
    (too_far, "facts.bad", "from deploy.remote import Remote"),
    (too_far, "facts.bad", "from deploy.text import tables"),
    (beyond_a_border, "operations.planning", "import click"),
    (too_far, "host.bad", "from deploy import errors"),
    (beyond_a_border, "steps.bad", "import paramiko"),
    (beyond_a_border, "walk.session", "def f():\n    from rich.table import Table"),
    (beyond_a_border, "remote", "import invoke.exceptions"),
    (acting, "engines.bad", "import subprocess"),
    (acting, "plan", "from os import environ"),
    (acting, "profile", "def f():\n    return open('x')"),
    (not_of_the_standard_library, "host.bad", "import yaml"),
    (not_of_the_standard_library, "host.bad", "from deploy import host"),
    (not_of_the_standard_library, "host.bad", "from deploy.host import source"),
    (commands_elsewhere, "wish", "from deploy.commands._options import shared"),
    (step_conducts, "steps.bad", "from deploy.record import Recorder"),
    (swallowing, "deployment.state", "try:\n    f()\nexcept Exception:\n    pass"),
    (swallowing, "deployment.state", "try:\n    f()\nexcept:\n    pass"),
    (remembering, "deployment.state", "def f():\n    global x\n    x = 1"),
    (remembering, "deployment.state", "SEEN = {}\ndef f():\n    SEEN['x'] = 1"),
    (remembering, "deployment.state", "SEEN = []\ndef f():\n    SEEN.append(1)"),
    (remembering, "deployment.state", "LOCK = threading.Lock()"),
    (remembering, "deployment.state", "@functools.cache\ndef f(): ..."),
    (too_long, "deployment.state", "x = 1\n" * 261),
]


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, _, _ in RULES), ids=lambda rule: rule.__name__)
def test_the_rule_holds_everywhere(rule):
    assert [line for module in MODULES for line in rule(module)] == []


@pytest.mark.parametrize(("rule", "name", "text"), RULES)
def test_the_rule_sees_who_breaks_it(rule, name, text):
    assert list(rule(Module(name, text)))


def test_every_module_has_its_layer():
    assert sorted({module.top for module in MODULES} ^ RANK.keys()) == []


def circle(below: dict[str, set[str]]) -> set[str]:
    """Who imports each other."""
    left = dict(below)
    while leaves := [name for name, names in left.items() if not names & left.keys()]:
        for name in leaves:
            del left[name]
    return set(left)


def packages(found: list[Module]) -> dict[str, set[str]]:
    """What each package imports; what a function imports when it runs is counted too: a dependency all the same."""
    below: dict[str, set[str]] = {}
    for module in found:
        named = {part for part, for_types in own(module) if not for_types} - {module.top, "__init__"}
        below.setdefault(module.top, set()).update(named)
    return below


def siblings(found: list[Module]) -> dict[str, set[str]]:
    """What each module imports of its own package, apart from what the package itself offers."""
    names = {module.name for module in found if "." in module.name}
    below = {}
    for module in found:
        named = [name.removeprefix("deploy.") for name, for_types in imports(module) if not for_types]
        named += [name.rpartition(".")[0] for name in named]  # `from deploy.walk.runner import run`
        below[module.name] = {name for name in named if name in names and name.startswith(f"{module.top}.")}
        below[module.name].discard(module.name)
    return below


@pytest.mark.parametrize("below", [packages, siblings], ids=lambda below: below.__name__)
def test_nobody_is_in_a_circle(below):
    assert circle(below(MODULES)) == set()


@pytest.mark.parametrize(
    ("below", "texts"),
    [
        (packages, {"server.a": "from deploy.walk.b import x", "walk.b": "import deploy.server.a"}),
        (siblings, {"walk.a": "from deploy.walk.b import x", "walk.b": "from deploy.walk import a"}),
    ],
)
def test_a_circle_is_seen(below, texts):
    assert circle(below([Module(name, text) for name, text in texts.items()]))


def test_the_exceptions_are_still_needed():
    used = {(module.top, part) for module in MODULES for part, for_types in own(module) if for_types}
    assert sorted(UPWARD_TYPES.keys() - used) == []
