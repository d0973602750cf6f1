"""The profiles that come with the tool: whole, explained line by line, and without what breaks between versions."""

import re
from pathlib import Path

import pytest

from deploy import settings
from deploy.profile import Profile
from deploy.project import Project

ROOT = Path(__file__).parents[2]
NAMES = sorted(file.stem for file in (ROOT / "profiles").glob("*.yaml"))

# option strings that are gone, ambiguous or deprecated in some SGLang between 0.5.8 and 0.5.23
FRAGILE = {
    "cuda-graph-bs",
    "cuda-graph-max-bs",
    "disable-cuda-graph",
    "dp",
    "enable-dp-attention",
    "enable-nan-detection",
    "enable-piecewise-cuda-graph",
    "ep",
    "pp",
    "stream-output",
    "torchao-config",
    "tp",
}


def shipped(name: str) -> Profile:
    return settings.load(name, [], Project(ROOT), {}, ROOT).profile()


def test_they_are_there():
    assert {"kimi-eagle3", "local", "local-sglang", "local-vllm"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_is_whole_and_names_hosts_that_are_there(name):
    found = settings.load(name, [], Project(ROOT), {}, ROOT)
    assert found.profile().gates
    assert [host.name for host in found.hosts()] == ["localhost"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_begins_with_what_it_is(name):
    first = (ROOT / "profiles" / f"{name}.yaml").read_text().splitlines()[0]
    assert re.fullmatch(r"# .{20,}", first)


@pytest.mark.parametrize("name", NAMES)
def test_server_flags_are_spelled_for_every_version(name):
    profile = shipped(name)
    if profile.engine.name == "sglang":
        assert not FRAGILE & set(profile.args)
    assert not {flag for flag in profile.args if "_" in flag or flag.startswith("-")}


@pytest.mark.parametrize("name", ["kimi-eagle3", "local-sglang", "local-vllm"])
def test_every_flag_has_a_comment_that_says_why(name):
    lines = (ROOT / "profiles" / f"{name}.yaml").read_text().splitlines()
    explained = {
        found[1]
        for before, line in zip(["", *lines], lines, strict=False)
        if (found := re.match(r"  ([\w-]+):", line)) and ("#" in line or before.startswith("  #"))
    }
    plain = {"tool-call-parser", "device", "prefill-attention-backend", "decode-attention-backend"}
    blocks = plain | {"speculative-draft-attention-backend", "cuda-graph-backend-prefill"}  # the line above stands for
    assert set(shipped(name).args) - explained <= blocks


def test_kimi_is_what_its_hosts_can_serve():
    kimi = shipped("kimi-eagle3")
    assert (kimi.engine.name, kimi.port, kimi.parallel.tp, kimi.gpus) == ("sglang", 8000, 8, 8)
    assert kimi.model.path == "/shared/kimi-k2.5-int4"
    assert kimi.draft
    assert kimi.draft.path == str(ROOT / "ckpt/kimi-k2.5-eagle3")
    assert kimi.speculative
    assert kimi.speculative.algorithm == "EAGLE3"
    assert kimi.smoke.ask == "Hello, what is 2+2?"


def test_kimi_says_nothing_about_p2p():
    kimi = shipped("kimi-eagle3")
    assert kimi.nccl.variables() == {}
    assert not [name for name in {**kimi.env, **kimi.args} if "p2p" in name.lower() or "all-reduce" in name]


def test_the_local_ones_may_run_side_by_side():
    assert len({shipped(name).port for name in ("local", "local-sglang", "local-vllm")}) == 3


@pytest.mark.parametrize("name", ["local", "local-sglang", "local-vllm"])
def test_the_local_ones_ask_what_the_tiny_model_knows(name):
    profile = shipped(name)
    assert re.search(profile.smoke.expect, "The capital of France is Paris.")
    assert "capital of France?" in profile.smoke.ask


@pytest.mark.parametrize("name", ["local", "local-sglang", "local-vllm"])
def test_the_local_ones_serve_the_examples(name):
    profile = shipped(name)
    assert Path(profile.model.path).exists()
    assert profile.draft
    assert Path(profile.draft.path).exists()
