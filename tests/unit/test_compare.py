"""Whether what runs serves what is wished: what differs is said, and nothing else replaces a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import plan, settings
from deploy.checkpoint.manifest import File, Manifest
from deploy.deployment import compare
from deploy.deployment.state import Deployment, Machine, Place, Run
from deploy.inventory import Host
from deploy.plan import Draft, Node
from deploy.project import Project
from deploy.remote import Remote
from deploy.transport.local import LocalTransport

ROOT = Path(__file__).parents[2]
MODEL = {"identity": "a" * 64}
DRAFT = Draft("ckpt", Manifest((File("model.safetensors", 5, "1" * 64),)))
OTHER = Draft("ckpt", Manifest((File("model.safetensors", 5, "2" * 64),)))


def wished(*changes: str, draft: Draft = DRAFT, host: str = "gpu1") -> Node:
    profile = settings.load("kimi-eagle3", changes, Project(ROOT), {}, ROOT).profile()
    at = Host.model_validate({"name": host, "gpus": 8})
    return plan.make({at: profile}, draft, None).nodes[0]


def manifest(node: Node, **more: Any) -> dict[str, Any]:
    """As `launch` writes it, and as it comes back from the host."""
    said = {"tool": "0.1", "wished": node.digest, "model": MODEL, "secrets": {}, "node": node.to_json(), **more}
    read: dict[str, Any] = json.loads(json.dumps(said))
    return read


def running(said: Mapping[str, Any] | None, **more: Any) -> Run:
    run = Run("r1", "/w/r1", said, None, None, pid="7", ticks="9", alive=True, exit="", stopped="")
    return replace(run, **more)


def place(run: Run | None, model: Mapping[str, Any] = MODEL) -> Place:
    found = Deployment("kimi-eagle3", run, None, ("r1",))
    machine = Machine("id", "gpu1", "me", "/home/me", "/w", "/w/id", {"kimi-eagle3": found} if run else {})
    return Place(machine, "kimi-eagle3", "r2", model)


def decide(node: Node, run: Run | None, model: Mapping[str, Any] = MODEL) -> compare.Decision:
    return compare.decide([(node, place(run, model))])


def test_the_same_is_verified():
    decision = decide(wished(), running(manifest(wished())))
    assert decision.mode == "verify"
    assert "r1" in decision.why


@pytest.mark.parametrize("change", ["smoke.ask=Hi", "bench.max_tokens=3", "gates={}", "ready.stall=9", "evict=yes"])
def test_what_is_only_asked_of_the_server_does_not_replace_it(change):
    assert decide(wished(change), running(manifest(wished()))).mode == "verify"


GONE: list[dict[str, Any]] = [{"exit": "3"}, {"stopped": "by me"}, {}, {"pid": ""}]


@pytest.mark.parametrize("how", GONE)
def test_a_run_that_ended_is_replaced_and_how_it_ended_is_said(how):
    run = running(manifest(wished()), alive=False, **how)
    assert decide(wished(), run) == compare.Decision("replace", f"run r1 {run.ending}")


@pytest.mark.parametrize(("run", "why"), [(None, "nothing runs"), (running(None), "run r1 has no manifest")])
def test_what_is_not_there_is_replaced(run, why):
    assert decide(wished(), run) == compare.Decision("replace", why)


DIFFERENT = [
    (["env.A=b"], 'environment A differs: null -> "b"'),
    (["nccl.DEBUG=INFO"], 'environment NCCL_DEBUG differs: null -> "INFO"'),
    (["port=8001"], "the command differs: --port 8000 -> 8001"),
    (["port=8001", "parallel.tp=4", "gpus=4"], "the command differs: --port 8000 -> 8001, --tp-size 8 -> 4"),
    (["args.page-size=64"], "the command differs: (nothing) -> --page-size 64"),
    (["args.trust-remote-code=false"], "the command differs: --trust-remote-code -> (nothing)"),
    (["secrets=[TOKEN]"], "the names of the secrets differ"),
    (["hooks.prepare=[hooks/fix_eagle3_keys]"], "the prepare hooks differ"),
]


@pytest.mark.parametrize(("changes", "why"), DIFFERENT, ids=[" ".join(changes) for changes, _ in DIFFERENT])
def test_what_differs_is_said(changes, why):
    assert decide(wished(*changes), running(manifest(wished()))) == compare.Decision("replace", why)


def test_another_draft_is_said_by_its_digests():
    decision = decide(wished(draft=OTHER), running(manifest(wished())))
    assert decision.why == f"the draft differs: {DRAFT.digest} -> {OTHER.digest}"


def test_several_differences_are_all_said():
    why = decide(wished("env.A=b", "port=8001", draft=OTHER), running(manifest(wished()))).why
    assert [part.partition(" differs")[0] for part in why.split("; ")] == ["the draft", "environment A", "the command"]


def test_words_in_another_order_are_said():
    one, two = (wished(f"args={{a: {a}, b: {b}}}") for a, b in [(1, 2), (1, 2)])
    two = replace(two, argv=(*two.argv[:-4], *two.argv[-2:], *two.argv[-4:-2]))
    assert decide(two, running(manifest(one))).why == "the command's words stand in another order"


HIDDEN = [
    ("+env.SOME_TOKEN={}", "environment SOME_TOKEN differs"),
    (
        "+env.HTTPS_PROXY=http://me:{}@proxy.example:3128",
        'environment HTTPS_PROXY differs: "http://***@proxy.example:3128" -> "http://***@proxy.example:3128"',
    ),
    ("args.admin-api-key={}", "the command differs: --admin-api-key *** -> ***"),
    ("args.ssl-keyfile-password={}", "the command differs: --ssl-keyfile-password *** -> ***"),
]


@pytest.mark.parametrize(("word", "said"), HIDDEN, ids=[word for word, _ in HIDDEN])
def test_what_is_a_secret_by_its_name_differs_without_being_shown(word, said):
    one, other = (wished(word.format(told)) for told in ("plugh", "xyzzy"))
    assert decide(other, running(manifest(one))).why == said


@pytest.mark.parametrize("word", ["args.admin-api-key=plugh", "args.hf-token=plugh"])
def test_nor_is_it_where_one_of_them_has_it_alone(word):
    for one, other in ((wished(), wished(word)), (wished(word), wished())):
        assert "plugh" not in decide(other, running(manifest(one))).why


def test_a_file_of_the_engine_differs_without_being_shown():
    node = wished()
    other = replace(node, files=(("launcher.py", "print(2)"),))
    assert list(compare.differences(node.to_json(), other.to_json())) == ["file launcher.py differs"]


MODELS = [
    ({"identity": "b" * 64}, "replace"),
    ({"error": "missing"}, "replace"),
    (MODEL, "verify"),
    ({**MODEL, "size": 5}, "verify"),
]


@pytest.mark.parametrize(("model", "mode"), MODELS)
def test_a_model_that_changed_on_the_disk_is_loaded_anew(model, mode):
    decision = decide(wished(), running(manifest(wished())), model)
    assert decision.mode == mode
    assert mode == "verify" or "/shared/kimi-k2.5-int4 is not the one that was loaded" in decision.why


@pytest.mark.parametrize(("value", "mode"), [("old", "verify"), ("new", "replace"), (None, "verify")])
def test_a_secret_that_changed_replaces_the_server_and_one_that_is_not_here_does_not(value, mode, monkeypatch):
    monkeypatch.delenv("TOKEN", raising=False)
    if value:
        monkeypatch.setenv("TOKEN", value)
    node, salt = wished("secrets=[TOKEN]"), "s"
    kept = {"salt": salt, "TOKEN": compare.fingerprint(salt, "old")}
    decision = decide(node, running(manifest(node, secrets=kept)))
    assert decision.mode == mode
    assert mode == "verify" or decision.why == "the secret TOKEN differs"
    assert "old" not in json.dumps(kept)


STRANGE: list[dict[str, Any]] = [
    {},
    {"tool": "9.9"},
    {"tool": "9.9", "wished": "x", "node": {}},
    {"tool": "9.9", "wished": "x", "node": {**wished().to_json(), "profile": {"name": "x", "new": 1}}},
    {"tool": "9.9", "wished": "x", "node": []},
]


@pytest.mark.parametrize("said", STRANGE)
def test_a_manifest_of_another_version_replaces_the_server_and_says_so(said):
    decision = decide(wished(), running(said))
    assert decision.mode == "replace"
    assert f"launched by version {said.get('tool')} of deploy" in decision.why


def test_one_host_that_differs_replaces_the_whole_replica_and_is_named():
    good, bad = running(manifest(wished())), running(manifest(wished()), alive=False, exit="1")
    pairs = [(wished(host="gpu1"), place(good)), (wished(host="gpu2"), place(bad))]
    assert compare.decide(pairs) == compare.Decision("replace", f"gpu2: run r1 {bad.ending}")
    assert compare.decide([pairs[0], pairs[0]]).mode == "verify"


def test_the_identity_of_a_model_is_read_on_its_host(tmp_path):
    at = Host.model_validate({"name": "here", "transport": "local"})
    remote = Remote(at, LocalTransport("here"), lambda _: None, threading.Event())
    there = wished(f"model.path={ROOT}/examples/tiny-eagle3/target")
    assert len(compare.model_identity(there, remote)["identity"]) == 64
    assert compare.model_identity(wished(f"model.path={tmp_path}/no"), remote)["error"] == "missing"
