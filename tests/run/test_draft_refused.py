"""A dead draft before the load: refused with nothing touched, waived by name, judged again after `prepare`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import EXAMPLES, Project

REFUSED, WAIVED = 5, 9  # nothing was touched; it serves, and the gate says no
ACCEPTS_NOTHING = {"accept_length": 1.0}


@pytest.fixture
def dead(tmp_path: Path) -> Callable[[str], str]:
    """A broken draft of the example by its name."""

    def make(name: str) -> str:
        argv = [sys.executable, str(EXAMPLES / "make_dead.py"), str(tmp_path), name]
        subprocess.run(argv, check=True, capture_output=True)
        return str(tmp_path / name)

    return make


def test_a_dead_draft_is_refused_and_leaves_what_serves_alone(project: Project, dead) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    for name, words in (
        ("no-d2t", "d2t is missing"),
        ("unknown-prefix", "drops tensors of the draft without a word"),
        ("no-lm-head", "lm_head.weight <- nothing: random"),
        ("truncated", "model.safetensors is truncated"),
    ):
        done = project.run("restart", "--ckpt", dead(name))
        assert (done.code, words in done.err, "nothing was touched" in done.err) == (REFUSED, True, True), done.err
        assert project.status()["pid"] == before["pid"]


def test_a_dead_draft_that_is_waived_is_served_and_the_gate_tells(project: Project, dead) -> None:
    project.fake(draft=dead("no-d2t"), fake=ACCEPTS_NOTHING)
    assert project.run("up", "profile=fake").code == REFUSED
    done = project.run("up", "profile=fake", "waive=[ckpt]", "--json")
    assert (done.code, done.json["verdict"]["waived"]) == (WAIVED, ["ckpt"]), done.err


def test_check_says_what_up_would_say(project: Project, dead) -> None:
    project.fake(draft=dead("no-d2t"))
    done = project.run("check", "profile=fake", "--json")
    (finding,) = [finding for finding in done.json if finding["check"] == "ckpt"]
    assert (done.code, finding["verdict"]) == (REFUSED, "FAIL")
    assert finding["outcome"] == "will serve at accept length 1.00"
    assert project.run("check", "profile=fake", "waive=[ckpt]").code == 0


def test_a_draft_that_lies_on_a_host_is_read_there(project: Project, dead) -> None:
    project.fake(draft=f"localhost:{dead('no-d2t')}")
    done = project.run("up", "profile=fake")
    assert (done.code, "d2t is missing" in done.err) == (REFUSED, True), done.err
    healthy = shutil.copytree(EXAMPLES / "draft", project.folder / "healthy")
    project.fake(draft=f"localhost:{healthy}")
    assert project.run("up", "profile=fake").code == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("args.speculative-algorithm=EAGLE", "algorithm EAGLE with an EAGLE-3 draft"),
        ("args.context-length=9000", "the target is served with 9000"),
        ("args.attention-backend=trtllm_mla", "attention backend trtllm_mla takes no draft"),
    ],
)
def test_what_args_say_is_judged_too(project: Project, change: str, words: str) -> None:
    project.fake()
    done = project.run("check", "profile=fake", change)
    assert (done.code, words in done.out) == (REFUSED, True), done.out


def test_a_longer_context_that_the_environment_allows_passes(project: Project) -> None:
    project.fake()
    allowed = "env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
    assert project.run("check", "profile=fake", "args.context-length=9000", allowed).code == 0


def test_what_the_hooks_make_of_a_draft_is_judged_before_the_old_server_is_stopped(project: Project, dead) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    hook = project.folder / "hook"
    hook.write_text("#!/bin/sh\n")  # it is to mend the draft, and does nothing
    hook.chmod(0o755)
    hooks = "hooks.prepare=" + json.dumps([{"run": str(hook)}])
    done = project.run("up", "profile=fake", f"draft.path={dead('no-d2t')}", hooks, "-y")
    assert (done.code, "nothing was stopped" in done.err) == (REFUSED, True), done.err
    assert "WARN ckpt: d2t is missing" in done.err, "preflight leaves it to the hook"
    assert project.status()["pid"] == before["pid"]
    waived = project.run("up", "profile=fake", f"draft.path={dead('no-d2t')}", hooks, "waive=[ckpt]", "-y")
    assert (waived.code, project.status()["pid"] != before["pid"]) == (0, True), waived.err


def test_a_draft_that_is_not_on_its_host_is_a_wrong_profile(project: Project) -> None:
    project.fake(draft="localhost:/nowhere/draft")
    for command in ("check", "up"):
        done = project.run(command, "profile=fake")
        assert (done.code, "localhost: the draft /nowhere/draft cannot be read" in done.err) == (2, True), done.err


SAID = [  # what the profile says, what is told of it
    ({"speculative": {"algorithm": "EAGLE"}}, "algorithm EAGLE with an EAGLE-3 draft"),
    ({"args": {"speculative-algorithm": "EAGLE"}}, "algorithm EAGLE with an EAGLE-3 draft"),
    ({"args": {"context-length": 999999}}, "the target is served with 999999"),
    ({"args": {"attention-backend": "trtllm_mla"}}, "attention backend trtllm_mla takes no draft"),
    ({"speculative": {"num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 99}}, "is more than the tree has"),
]


@pytest.mark.parametrize(("fields", "words"), SAID)
def test_what_a_profile_says_is_judged_with_the_draft(project: Project, fields, words) -> None:
    project.fake(**fields)
    done = project.run("check", "profile=fake")
    assert (done.code, words in done.out) == (REFUSED, True), done.out
