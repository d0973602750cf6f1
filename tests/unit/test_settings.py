"""Where a profile's values come from, which of them wins, and that each arrives as it was written."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from deploy import project as projects
from deploy import settings
from deploy.errors import ConfigError
from deploy.project import Project
from deploy.settings import Settings, sources

BASE = """
engine: sglang
hosts: gpu*
model: {path: models/base, name: base}
draft: ckpt/base
speculative: {num_steps: 2}
parallel: {tp: 2, pp: 2}
port: 1000
env: {FROM: base, GONE: x}
args: {mem-fraction-static: 0.5, trust_remote_code: true}
"""
CHILD = """
extends: base
parallel: {tp: 4}
port: 2000
env: {FROM: child, GONE: null}
waive: [ckpt]
"""
INVENTORY = """
hosts:
  gpu1:
    env: {OMP_NUM_THREADS: 4, FROM: host}
    set:
      port: 3000
      parallel: {pp: 1}
      nccl.SOCKET_IFNAME: eth1
      model.path: /raid/model
  gpu2:
"""

Load = Callable[..., Settings]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write(tmp_path, {"inventory.yaml": INVENTORY, "profiles/base.yaml": BASE, "profiles/child.yaml": CHILD})
    return Project(tmp_path)


@pytest.fixture
def load(project: Project, tmp_path: Path) -> Load:
    def loaded(*words: str, name: str | None = "child", environ: Mapping[str, str] | None = None) -> Settings:
        return settings.load(name, words, project, environ or {}, tmp_path / "cwd")

    return loaded


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)


def value(found: Settings, key: str, host: str = "") -> Any:
    on = found.inventory.host(host) if host else None
    return {key: value for key, value, _ in found.explain(on)}.get(key)


@pytest.mark.parametrize(
    ("host", "environ", "words", "port", "kind", "where"),
    [
        ("", {}, [], 2000, "profile", "profiles/child.yaml:4"),
        ("gpu2", {}, [], 2000, "profile", "profiles/child.yaml:4"),
        ("gpu1", {}, [], 3000, "host", "inventory.yaml:6"),
        ("gpu1", {"DEPLOY_SET_PORT": "4000"}, [], 4000, "environment", "DEPLOY_SET_PORT"),
        ("gpu1", {"deploy_set_port": "4000"}, [], 4000, "environment", "deploy_set_port"),
        ("gpu1", {"DEPLOY_SET_PORT": "4000"}, ["port=5000"], 5000, "command line", "port=5000"),
        ("", {}, ["port=5000", "port=6000"], 6000, "command line", "port=6000"),
    ],
)
def test_the_later_place_wins_and_is_told(load, host, environ, words, port, kind, where):
    found = load(*words, environ=environ)
    on = found.inventory.host(host) if host else None
    assert found.profile(on).port == port
    assert (found.origin("port", on).kind, found.origin("port", on).where) == (kind, where)


@pytest.mark.parametrize(
    ("key", "expected", "kind"),
    [
        ("parallel.tp", 4, "profile"),
        ("parallel.pp", 2, "extends"),
        ("parallel.dp", 1, "default"),
        ("env.FROM", "child", "profile"),
        ("env.GONE", None, "profile"),
        ("waive", ["ckpt"], "profile"),
        ("speculative.num_steps", 2, "extends"),
        ("speculative.algorithm", "EAGLE3", "default"),
        ("gates.accept_length", ">= 1.15", "default"),
    ],
)
def test_a_profile_that_extends_another_says_only_what_is_different(load, key, expected, kind):
    found = load()
    assert value(found, key) == expected
    assert found.origin(key).kind == kind


def test_a_host_adds_what_is_its_own(load):
    found = load()
    on, off = (found.profile(found.inventory.host(name)) for name in ("gpu1", "gpu2"))
    assert on.env == {"FROM": "host", "OMP_NUM_THREADS": "4"}
    assert off.env == {"FROM": "child"}
    assert (on.parallel.pp, on.nccl.SOCKET_IFNAME, on.model.path) == (1, "eth1", "/raid/model")
    assert (off.parallel.pp, off.nccl.SOCKET_IFNAME) == (2, None)


def test_the_hosts_are_those_that_the_profile_names(load):
    assert [host.name for host in load().hosts()] == ["gpu1", "gpu2"]
    assert [host.name for host in load("hosts=gpu2").hosts()] == ["gpu2"]
    assert [host.name for host in load('hosts=["!gpu2", all]').hosts()] == ["gpu1"]


@pytest.mark.parametrize(
    ("word", "key", "expected"),
    [
        ("parallel.tp=8", "parallel.tp", 8),
        ("ready.deadline=60", "ready.deadline", 60.0),
        ("evict=yes", "evict", True),
        ("waive=[ckpt, gpus]", "waive", ["ckpt", "gpus"]),
        ('bench.prompts=["a, b","c=d"]', "bench.prompts", ["a, b", "c=d"]),
        ("parallel={tp: 8}", "parallel.pp", 1),
        ("draft=x", "draft.path", "{cwd}/x"),
        ("draft.to=/srv/d", "draft.path", "{root}/ckpt/base"),
        ("gates.accept_length=>= 2", "gates.accept_length", ">= 2"),
        ("gates.accept_length=", "gates.accept_length", None),
        ("gates={tok_s: '> 5'}", "gates.accept_length", None),
        ("model.name=", "model.name", None),
        ("model.name=null", "model.name", "null"),
        ("smoke.ask=", "smoke.ask", ""),
        ("bench.prompts=[]", "bench.prompts", []),
        ("smoke.ask=true", "smoke.ask", "true"),
        ("env.X=007", "env.X", "007"),
        ("env.X=", "env.X", ""),
        ("env.X=a=b", "env.X", "a=b"),
        ("nccl.debug=INFO", "nccl.DEBUG", "INFO"),
        ("nccl.IB_DISABLE=1", "nccl.IB_DISABLE", "1"),
        ("args.mem-fraction-static=0.8", "args.mem-fraction-static", 0.8),
        ("args.flag=true", "args.flag", True),
        ("args.flag=no", "args.flag", "no"),
        ("args.list=[1, a, 0.50]", "args.list", [1, "a", "0.50"]),
        ('args.json={"a": [1]}', "args.json", '{"a": [1]}'),
        ("args.mem-fraction-static=null", "args.mem-fraction-static", None),
        ("args.a.b=1", "args.a.b", 1),
        ("secrets=[A, B]", "secrets.B", "env"),
        ("secrets.KEY=api-key", "secrets.KEY", "api-key"),
        ("hooks.ready=[hooks/ping]", "hooks.ready", "{cwd}/hooks/ping"),
        ("bench.prompts=mine.jsonl", "bench.prompts", "{cwd}/mine.jsonl"),
        ("bench.prompts=code", "bench.prompts", "code"),
    ],
)
def test_a_word_is_read_as_its_key_wants_it(load, tmp_path, word, key, expected):
    found = value(load(word), key)
    found = found[0]["run"] if key == "hooks.ready" else found
    if isinstance(expected, str):
        expected = expected.replace("{cwd}", str(tmp_path / "cwd")).replace("{root}", str(tmp_path))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("variable", "text", "key", "expected"),
    [
        ("DEPLOY_SET_PARALLEL__TP", "8", "parallel.tp", 8),
        ("DEPLOY_SET_SPECULATIVE__NUM_STEPS", "5", "speculative.num_steps", 5),
        ("DEPLOY_SET_NCCL__SOCKET_IFNAME", "eth0", "nccl.SOCKET_IFNAME", "eth0"),
        ("DEPLOY_SET_ENV__HF_HOME", "/x", "env.HF_HOME", "/x"),
        ("DEPLOY_SET_ENV__lower", "/x", "env.lower", "/x"),
        ("DEPLOY_SET_ENV__A__B", "/x", "env.A__B", "/x"),
        ("DEPLOY_SET_ARGS__MEM_FRACTION_STATIC", "0.8", "args.mem-fraction-static", 0.8),
        ("DEPLOY_SET_ARGS__mem-fraction-static", "0.8", "args.mem-fraction-static", 0.8),
        ("DEPLOY_SET_ARGS__TRUST_REMOTE_CODE", "false", "args.trust_remote_code", False),
        ("DEPLOY_SET_ARGS__NEW_FLAG", "1", "args.new-flag", 1),
        ("DEPLOY_SET_GATES__ACCEPT_LENGTH", ">= 3", "gates.accept_length", ">= 3"),
        ("DEPLOY_SET_WAIVE", "[a]", "waive", ["a"]),
    ],
)
def test_a_variable_sets_a_key(load, variable, text, key, expected):
    assert value(load(environ={variable: text, "OTHER": "x"}), key) == expected


@pytest.mark.parametrize(
    ("said", "taken_as"),
    [
        ("ckpt/x", "{cwd}/ckpt/x"), ("./a:b", "{cwd}/a:b"), ("../x", "{up}/x"), ("/abs/x", "/abs/x"), ("~/x", "~/x"),
        ("gpu1:/raid/x", "gpu1:/raid/x"), ("x y'$;ü", "{cwd}/x y'$;ü"),
    ],
)  # fmt: skip
def test_a_relative_path_is_taken_from_where_it_is_said(load, tmp_path, said, taken_as):
    expected = taken_as.replace("{cwd}", str(tmp_path / "cwd")).replace("{up}", str(tmp_path))
    assert value(load(f"draft.path={said}"), "draft.path") == expected
    assert value(load(environ={"DEPLOY_SET_DRAFT__PATH": said}), "draft.path") == expected
    assert value(load(), "draft.path") == str(tmp_path / "ckpt/base")
    assert value(load(), "model.path") == str(tmp_path / "models/base")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_is_written_for_a_text_arrives_unchanged(load, text):
    profile = load(f"env.A={text}", f"smoke.ask={text}", environ={"DEPLOY_SET_ENV__B": text}).profile()
    assert (profile.env["A"], profile.env["B"], profile.smoke.ask) == (text, text, text)


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        (["parallel.tpp=1"], {}, "there is no key 'parallel.tpp' in a profile\ndid you mean parallel.tp?"),
        (["tp=1"], {}, "did you mean parallel.tp?"),
        (["port.x=1"], {}, "there is no key 'port.x'"),
        (["name=y"], {}, "there is no key 'name'"),
        (["nccl.NCCL_DEBUG=INFO"], {}, "did you mean nccl.DEBUG?"),
        (["zzzzzz=1"], {}, "known: engine, hosts"),
        (["port"], {}, "'port' is not key=value"),
        (["=1"], {}, "'=1' is not key=value"),
        (["port=x"], {}, "port=x: port: should be a whole number, not 'x'"),
        (["port="], {}, "port=: port: should be a whole number, not nothing"),
        (["waive=ckpt"], {}, "waive=ckpt: waive: should be a list, not 'ckpt'"),
        (["waive=[ckpt"], {}, "waive=[ckpt:1: is not YAML"),
        (["hosts=[]"], {}, "hosts=[]: hosts: should not be empty"),
        (["smoke.expect=("], {}, "smoke.expect=(: smoke.expect: is not a regular expression"),
        (["gates.accept_length=2"], {}, "should be an operator and a number"),
        (["draft="], {}, "EAGLE3 needs a draft"),
        ([], {"DEPLOY_SET_PARALLEL__TPP": "1"}, "DEPLOY_SET_PARALLEL__TPP: there is no key"),
        ([], {"DEPLOY_SET_PARALLEL__TPP": "1"}, "did you mean parallel.tp?"),
        ([], {"DEPLOY_SET_PORT": "x"}, "DEPLOY_SET_PORT: port: should be a whole number"),
    ],
)
def test_what_is_not_understood_is_told_with_the_word_that_said_it(load, words, environ, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(*words, environ=environ).profile()


def test_one_complaint_names_every_place(load, project):
    write(project.root, {"profiles/child.yaml": CHILD + "prot: 1\nhooks: {ready: [{run: x, on: y}]}\n"})
    with pytest.raises(ConfigError) as caught:
        load("ready.stall=-1", environ={"DEPLOY_SET_NODES": "0"}).profile()
    assert [line.split(": ")[:2] for line in caught.value.what.splitlines()] == [
        ["DEPLOY_SET_NODES", "nodes"],
        ["ready.stall=-1", "ready.stall"],
        ["profiles/child.yaml:8", "hooks.ready.0.on"],
        ["profiles/child.yaml:7", "prot"],
    ]


@pytest.mark.parametrize(
    "key", ["hosts", "nodes", "engine", "engine.name", "gates.accept_length", "hooks.ready", "draft", "draft.path",
            "on_failure", "evict", "secrets.A", "waive", "smoke.ask"],
)  # fmt: skip
def test_a_host_cannot_set_what_is_the_same_on_all(load, project, key):
    write(project.root, {"inventory.yaml": f"hosts:\n  gpu1:\n    set:\n      {key}: x\n"})
    with pytest.raises(ConfigError, match=re.escape(f"inventory.yaml:4: {key} is the same on all hosts")):
        load()


def test_a_typo_in_a_hosts_set_is_told_with_its_line(load, project):
    write(project.root, {"inventory.yaml": "hosts:\n  gpu1:\n    set:\n      nccl.SOCKET_IFNAM: x\n"})
    with pytest.raises(ConfigError, match=r"inventory\.yaml:4: there is no key") as caught:
        load()
    assert caught.value.remedy == "did you mean nccl.SOCKET_IFNAME?"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a": "extends: b", "b": "extends: a"}, "profiles/b.yaml:1: extends goes in a circle: a -> b -> a"),
        ({"a": "extends: a"}, "extends: there is no profile 'a'"),
        ({"a": "port: 1\nextends: bsae"}, "profiles/a.yaml:2: extends: there is no profile 'bsae'"),
        ({"a": "extends: bsae"}, "did you mean base?"),
        ({"a": "extends: [base]"}, "extends: should be the name of one profile"),
        ({"a": "extends: base\nname: b"}, "profiles/a.yaml:2: name: is the file's, a"),
    ],
)
def test_extends_that_leads_nowhere_is_told(load, project, files, said):
    write(project.root, {f"profiles/{name}.yaml": text for name, text in files.items()})
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(name="a")


def test_a_projects_own_profile_may_extend_the_one_that_it_hides(load, project):
    write(project.root, {"profiles/local.yaml": "extends: local\nport: 5\n"})
    profile = load(name="local").profile()
    assert profile.port == 5
    assert profile.draft
    assert profile.draft.path == str(projects.builtin() / "examples/tiny-eagle3/draft.gguf")


def test_the_profile_is_named_by_a_word_or_by_the_caller(load):
    assert load("profile=base", name=None).name == "base"
    assert load("profile=base").name == "base"
    with pytest.raises(ConfigError, match="no profile is named"):
        load(name=None)
    with pytest.raises(ConfigError, match=r"there is no profile 'chidl'[^?]*did you mean child\?"):
        load("profile=chidl")


def test_words_of_a_command_are_taken_out_of_those_of_the_profile():
    assert sources.take("profile", ["a=1", "profile=y", "b=2", "profile=y"]) == ("y", ["a=1", "b=2"])
    with pytest.raises(ConfigError, match="one is meant"):
        sources.take("profile", ["profile=x", "profile=y"])
    assert sources.take("profile", ["a=profile"]) == (None, ["a=profile"])


def test_a_file_takes_whole_lists_and_adds_to_mappings(load, project):
    write(project.root, {"profiles/c.yaml": "extends: child\nwaive: [b]\nspeculative: {}\ndraft: other\nenv: {X: 1}\n"})
    profile = load(name="c").profile()
    assert profile.waive == ["b"]
    assert profile.speculative
    assert profile.speculative.num_steps == 2
    assert profile.env == {"FROM": "child", "X": "1"}


def test_what_is_inherited_can_be_taken_away(load, project):
    write(project.root, {"profiles/c.yaml": "extends: child\ndraft: null\nspeculative: null\n"})
    profile = load(name="c").profile()
    assert (profile.draft, profile.speculative, profile.gates) == (None, None, {})


@pytest.mark.parametrize("nothing", ["", "null", "~"])
def test_the_draft_can_be_left_out_on_the_command_line(load, nothing):
    profile = load(f"draft={nothing}", f"speculative={nothing}").profile()
    assert (profile.draft, profile.speculative, profile.gates) == (None, None, {})


def test_what_was_taken_away_can_be_said_again(load, project):
    write(project.root, {"profiles/c.yaml": "extends: child\ndraft: null\nspeculative: null\n"})
    profile = load("draft=/d", "speculative.num_steps=5", name="c").profile()
    assert profile.draft
    assert (profile.draft.path, list(profile.gates)) == ("/d", ["accept_length"])


def test_a_draft_that_nothing_uses_is_one_complaint_not_two(load):
    with pytest.raises(ConfigError) as caught:
        load("speculative=").profile()
    assert re.fullmatch(r"profiles/base\.yaml:5: draft: needs `speculative`.*", caught.value.what)


def test_the_project_is_the_nearest_folder_upward_that_has_an_inventory(project, tmp_path):
    deep = tmp_path / "a/b"
    deep.mkdir(parents=True)
    assert projects.find(deep) == Project(tmp_path)
    assert projects.find(chosen=tmp_path) == Project(tmp_path)
    with pytest.raises(ConfigError, match=r"is not a project: it has no inventory\.yaml"):
        projects.find(chosen=deep)


def test_without_any_project_the_one_that_comes_with_the_tool_is_taken():
    assert projects.find(Path(os.sep)) is None
    found = projects.find_or_builtin(Path(os.sep))
    assert found.root == projects.builtin()
    assert {"local", "local-sglang", "kimi-eagle3"} <= set(found.profiles())


def test_profiles_of_the_project_come_before_those_of_the_tool(project):
    assert {"base", "child", "local"} <= set(project.profiles())
    assert project.shown(project.profile("child")) == "profiles/child.yaml"
    with pytest.raises(ConfigError, match="is not a profile's name"):
        project.profile("../profiles/child")


# ---- +key and ~key -----------------------------------------------------------------------------------------------

SIGNS: list[tuple[str, list[str], str, Any]] = [
    ("a new key of a mapping", ["+env.NEW=1"], "env.NEW", "1"),
    (
        "several at once, beside those that are there",
        ["+env={A: 1, B: 2}"],
        "env",
        {"FROM": "child", "A": "1", "B": "2"},
    ),
    ("a field that is empty", ["+nccl.DEBUG=INFO"], "nccl.DEBUG", "INFO"),
    ("what an earlier file took away", ["+env.GONE=back"], "env.GONE", "back"),
    ("what an earlier word took away", ["~env.FROM", "+env.FROM=word"], "env.FROM", "word"),
    ("either way, as Hydra's ++", ["++env.FROM=word", "++env.NEW=1"], "env", {"FROM": "word", "NEW": "1"}),
    ("a key goes", ["~env.FROM"], "env", {}),
    ("a flag goes", ["~args.mem-fraction-static"], "args", {"trust_remote_code": True}),
    ("a whole mapping goes", ["~args"], "args", {}),
    ("what a word said goes", ["env.A=1", "~env.A"], "env", {"FROM": "child"}),
    ("a field goes back to its default", ["~port"], "port", 30000),
    ("a list goes back to its default", ["~waive"], "waive", []),
    ("a part goes back to its defaults", ["~parallel"], "parallel.tp", 1),
    ("a part that need not be there goes", ["~draft", "~speculative"], "draft", None),
    ("an optional field goes", ["~model.name"], "model.name", None),
    ("a gate that holds by default goes", ["~gates.accept_length"], "gates", {}),
    ("all gates go", ["~gates"], "gates", {}),
    ("and may be said again", ["~parallel", "parallel.tp=8"], "parallel.tp", 8),
]


@pytest.mark.parametrize(("words", "key", "expected"), [case[1:] for case in SIGNS], ids=[case[0] for case in SIGNS])
def test_a_key_is_added_or_taken_away(load, words, key, expected):
    found: Any = load(*words).profile().model_dump()
    for name in key.split("."):
        found = found[name]
    assert found == expected


UNSIGNED: list[tuple[str, list[str], str, str]] = [  # what is wrong, the words, what is said, the remedy
    ("said by a file", ["+env.FROM=1"], "env.FROM is there already, by profile profiles/child.yaml:5", "env.FROM=..."),
    ("said by what it extends", ["+args.mem-fraction-static=1"], "by extends profiles/base.yaml:10", "+ only adds"),
    ("said by a word", ["env.A=1", "+env.A=2"], "by command line env.A=1", "env.A=..."),
    ("added twice", ["+env.A=1", "+env.A=2"], "by command line +env.A=1", "env.A=..."),
    ("one of several", ["+env={A: 1, FROM: 2}"], "env.FROM is there already", "env.FROM=..."),
    ("a default", ["+nodes=2"], "nodes is 1 where nobody says it", "nodes=..."),
    (
        "a default within a part",
        ["+speculative.eagle_topk=2"],
        "is 1 where nobody says it",
        "speculative.eagle_topk=...",
    ),
    ("a default gate", ["+gates.accept_length=>2"], "is there already, by default", "gates.accept_length=..."),
    ("a list", ["+hooks.ready=[a]"], "hooks.ready is a list, which is set as a whole", "hooks.ready=..."),
    ("the draft that is there", ["+draft=x"], "draft.path is there already", "draft.path=..."),
    ("no such key", ["+prt=1"], "there is no key 'prt' in a profile", "did you mean port?"),
    ("nothing to add", ["+env.A"], "is not key=value", ""),
    ("not there", ["~env.FRM"], "~env.FRM: nobody says env.FRM", "did you mean ~env.FROM?"),
    ("gone already", ["~args", "~args"], "nobody says args", ""),
    ("back at its default already", ["~parallel.tp", "~parallel.tp"], "nobody says parallel.tp: 1 is its default", ""),
    ("only a default", ["~nodes"], "nobody says nodes: 1 is its default", ""),
    ("needed", ["~model"], "a profile needs model", "model=..."),
    ("needed in a part", ["~engine.name"], "a profile needs engine.name", ""),
    ("with a value", ["~env.FROM=1"], "~ takes a key away", "~env.FROM"),
    ("no such key to take", ["~prt"], "there is no key 'prt' in a profile", "did you mean port?"),
    ("of nothing", ["~"], "is not key=value", ""),
]


@pytest.mark.parametrize(("words", "said", "remedy"), [c[1:] for c in UNSIGNED], ids=[c[0] for c in UNSIGNED])
def test_what_is_there_is_not_added_and_what_is_not_there_does_not_go(load, words, said, remedy):
    with pytest.raises(ConfigError) as caught:
        load(*words).profile()
    assert (said in caught.value.what, remedy in caught.value.remedy) == (True, True), str(caught.value)


def test_what_one_host_has_of_its_own_counts_on_that_host(load):
    """gpu1 has OMP_NUM_THREADS, gpu2 has not."""
    adding, taking = load("+env.OMP_NUM_THREADS=1"), load("~env.OMP_NUM_THREADS")
    gpu1, gpu2 = adding.hosts()
    with pytest.raises(ConfigError, match=r"by host inventory.yaml:4"):
        adding.profile(gpu1)
    assert adding.profile(gpu2).env["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in {**taking.profile().env, **taking.profile(gpu1).env, **taking.profile(gpu2).env}


def test_where_a_key_was_added_or_taken_away_is_told(load):
    rows = {
        key: (value, str(origin.where)) for key, value, origin in load("+env.A=1", "~env.FROM", "~parallel").explain()
    }
    assert rows["env.A"] == ("1", "+env.A=1")
    assert rows["env.FROM"] == (None, "~env.FROM")
    assert rows["parallel.tp"] == (1, "~parallel")


def test_the_words_of_an_earlier_launch_are_not_judged_again(project, tmp_path):
    """They were, then; the profile's file may have changed since."""
    earlier = ["+env.FROM=x", "~env.NEVER", "profile=child"]
    found = settings.load(None, ["port=7"], project, {}, tmp_path, repeated=earlier)
    assert (found.profile().env, found.profile().port) == ({"FROM": "x"}, 7)
    with pytest.raises(ConfigError, match="is there already"):
        settings.load(None, ["+env.FROM=y"], project, {}, tmp_path, repeated=earlier).profile()
