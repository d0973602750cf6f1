"""profile -> plan -> its command as a script -> init -> plan: the same words and variables, for any profile."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from deploy import settings
from deploy.config import documents, schema
from deploy.engines import _flags
from deploy.inventory import Inventory
from deploy.plan import Node
from deploy.profile import Profile
from deploy.project import Project
from deploy.scaffold import commands, fields, making, proof, shell, yaml
from deploy.scaffold.making import Made, Target
from deploy.text.words import HomePath, RunPath, Word

ROOT = Path(__file__).parents[2]
NAMES = sorted(file.stem for file in (ROOT / "profiles").glob("*.yaml"))


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as made:
        yield Path(made)


def script(node: Node) -> str:
    """The node's command as somebody would have written it: the draft by its own path, the run's files in /run."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in node.env]
    return "\n".join([*lines, f"nohup {' '.join(spelled(node, word) for word in node.argv)} >log 2>&1 &", ""])


def spelled(node: Node, word: Word) -> str:
    if isinstance(word, HomePath):
        return f"~/{shlex.quote(word.name)}"
    if isinstance(word, RunPath):
        served = node.draft is not None and word.name == node.draft.served
        return shlex.quote(node.draft.path if served and node.draft else f"/run/{word.name}")
    return shlex.quote(word)


def again(node: Node, at: Path) -> tuple[Node, Made]:
    launches = commands.servers(shell.read(script(node), "launch.sh", None))
    made = fields.of(launches[0], local=True)
    done = making.from_launch(Target(at, None), "again", made, [], None)
    found = settings.load("again", [], Project(at), {})
    host = found.hosts()[0]
    return proof.node(found.profile(host), host), done


def same(node: Node, after: Node) -> None:
    assert flags(after) == flags(node)
    assert after.env == node.env


def flags(node: Node) -> list[str]:
    """The command, its flags each with its values, in any order."""
    words = [str(word) for word in node.argv]
    starts = [place for place, word in enumerate(words) if word.startswith("--")]
    groups = [words[start:end] for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]
    return [" ".join(words[: starts[0]]), *sorted(map(repr, groups))]


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_profile_comes_back(name, tmp_path):
    found = settings.load(name, [], Project(ROOT), {}, ROOT)
    host = found.hosts()[0]
    node = proof.node(found.profile(host), host)
    after, made = again(node, tmp_path)
    same(node, after)
    assert not [one for one in made.differences if "draft" not in str(one) and "llama_server.py" not in str(one)]


# Not surrogates and NUL, which no argument can hold; not a dash in front, which only the server can tell from a flag.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda text: not text.startswith("--")
)
PATHS = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters="/"), min_size=1, max_size=9
).map(lambda text: f"/m/{text}")
FLAGS = st.from_regex(r"[a-z][a-z0-9]{2,8}-[a-z0-9]{2,8}", fullmatch=True).filter(
    lambda flag: not flag.startswith("no-") and not flag.endswith(("key", "token", "password"))
)
SCALARS = st.one_of(st.just(True), st.integers(-9, 10**9), st.floats(0, 1e6).map(str), TEXT)
VALUES = st.one_of(SCALARS, st.lists(st.one_of(st.integers(-9, 99), TEXT), min_size=2, max_size=3))
NCCL = st.fixed_dictionaries(
    {}, optional={"DEBUG": st.sampled_from(["INFO", "WARN"]), "IB_HCA": TEXT, "P2P_DISABLE": st.sampled_from("01")}
)
PARALLEL = st.fixed_dictionaries({}, optional={name: st.sampled_from([1, 2, 8]) for name in ("tp", "pp", "dp")})
SPECULATIVE = st.fixed_dictionaries(
    {"algorithm": st.sampled_from(["EAGLE3", "STANDALONE"]), "num_steps": st.integers(1, 7)},
)
COMMON = {
    "name": st.just("made"),
    "hosts": st.just("localhost"),
    "model": st.fixed_dictionaries({"path": PATHS}, optional={"name": TEXT}),
    "port": st.integers(1, 65535),
    "args": st.dictionaries(FLAGS, VALUES, max_size=5),
    "env": st.dictionaries(st.from_regex(r"[A-Z]{3,8}_[A-Z]{1,5}S", fullmatch=True), TEXT, max_size=3),
    "nccl": NCCL,
}
DRAFTED: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.just({}), st.fixed_dictionaries({"draft": PATHS.map(lambda path: f"{path}d"), "speculative": SPECULATIVE})
)
SGLANG = st.fixed_dictionaries(
    {
        **COMMON,
        "engine": st.fixed_dictionaries(
            {"name": st.just("sglang"), "python": st.sampled_from(["python3", "/v/bin/python", "~/v/py"])}
        ),
        "parallel": PARALLEL,
    }
)
LLAMACPP = st.fixed_dictionaries(
    {
        **COMMON,
        "engine": st.fixed_dictionaries(
            {"name": st.just("llamacpp"), "binary": st.sampled_from(["llama-server", "/l/llama-server"])}
        ),
    }
)


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(profile=st.one_of(SGLANG, LLAMACPP), drafted=DRAFTED)
def test_any_profile_comes_back(profile, drafted):
    try:
        wished = Profile.model_validate({**profile, **drafted})
    except ValidationError:
        assume(False)
    host = Inventory(hosts={}).select("localhost")[0]
    node = proof.node(wished, host)
    with folder() as at:
        after, _ = again(node, at)
    same(node, after)


ODD = [
    "true",
    "null",
    "~",
    "0x1",
    "1e5",
    "0.80",
    "on",
    "007",
    "-",
    "---",
    "a: b",
    "a #b",
    "- a",
    "{a",
    "=",
    "<<",
    "1:2",
]


@hypothesis_settings(max_examples=300, deadline=None)
@given(
    text=TEXT | st.floats(0, 1e9).map(str) | st.sampled_from(ODD), key=st.sampled_from([("args", "x"), ("env", "X")])
)
def test_any_text_is_written_so_that_it_is_read_again(text, key):
    annotation = schema.at(Profile, key)
    block = f"engine: sglang\n{key[0]}:\n  {key[1]}: {yaml.value(text, annotation)} # line 1\n"
    flow = f"engine: sglang\n{key[0]}: {{A: 1, {key[1]}: {yaml.value(text, annotation)}}}\n"
    for written in (block, flow):
        read = documents.parse(written.encode(), Profile, "x").tree[key[0]][key[1]]
        assert (_flags.text(read), isinstance(read, bool)) == (text, False)
