"""The same server without speculation: which it is, what is gained over it, and whether it answers the same."""

from __future__ import annotations

from typing import Any

import pytest

from deploy import plan
from deploy.bench import baseline
from deploy.checkpoint.manifest import File, Manifest
from deploy.errors import ConfigError
from deploy.measuring import quality
from deploy.measuring.measurement import Quality
from deploy.plan import Draft, Node
from deploy.profile import Profile
from tests import hardware, measurements

DRAFT = Draft("ckpt", Manifest((File("model.safetensors", 5, "1" * 64),)))
OTHER = Draft("ckpt", Manifest((File("model.safetensors", 5, "2" * 64),)))


def node(*changes: str, draft: Draft = DRAFT, name: str = "kimi-eagle3") -> Node:
    return hardware.nodes(name, *changes, draft=draft)[0]


def key(of: Node, **on: Any) -> str:
    return baseline.key(of, measurements.on("run", **on))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("kimi-eagle3", ()),
        ("kimi-eagle3", ("args.speculative-accept-threshold-single=0.5", "args.cuda-graph-bs-draft=8")),
        ("local", ("args.spec-draft-p-min=0.1", "args.ctx-size-draft=512", "args.n-gpu-layers-draft=1")),
        ("local-vllm", ("args.speculative-config.draft_tensor_parallel_size=1",)),
    ],
)
def test_nothing_of_speculation_is_left_in_its_command(name: str, changes: tuple[str, ...]) -> None:
    speculating = node(*changes, name=name)
    plain = plan.node([speculating.host], 0, baseline.plain(speculating.profile), None, None)
    assert (baseline.speculates(speculating), baseline.speculates(plain)) == (True, False)
    words = [str(word) for word in plain.argv]
    assert [word for word in words if word.startswith("--spec") or "draft" in word] == []
    kept = {flag for flag in speculating.profile.args if not baseline.FLAG.match(flag)}
    assert kept == set(plain.profile.args)


def test_nobody_is_told_of_its_server_and_nothing_is_asked_of_its_speed() -> None:
    speculating = node("gates.tok_s=>= 5", "on_failure=rollback", 'hooks.ready=["/bin/true"]')
    plain = baseline.plain(speculating.profile)
    assert (plain.gates, plain.on_failure, list(plain.hooks.ready)) == ({}, "leave", [])
    Profile.model_validate(plain.model_dump())  # and it contradicts itself nowhere


def test_a_draft_in_a_command_line_of_the_users_own_is_refused() -> None:
    fields = {"name": "own", "engine": "command", "hosts": "all", "model": "m", "speculative": {}, "draft": "d"}
    own = Profile.model_validate({**fields, "args": {"argv": ["serve", "--draft", "{draft}"]}})
    with pytest.raises(ConfigError, match=r"args\.argv says how the draft is used"):
        baseline.plain(own)


@pytest.mark.parametrize(
    ("other", "on", "same"),
    [
        (node(draft=OTHER), {}, True),
        (node("speculative.num_steps=5"), {}, True),
        (node("gates.accept_length=>= 9"), {"prompts_digest": "other", "max_tokens": 7}, True),
        (node("parallel.tp=4", "gpus=4"), {}, False),
        (node("args.mem-fraction-static=0.5"), {}, False),
        (node(), {"engine_version": "0.5.22"}, False),
        (node(), {"model_id": "another"}, False),
        (node(), {"hosts": ("gpu2",)}, False),
    ],
)
def test_it_is_kept_by_the_server_its_engine_its_model_and_its_hosts(
    other: Node, on: dict[str, Any], *, same: bool
) -> None:
    assert (key(other, **on) == key(node())) is same


def test_what_is_gained_is_told_where_both_were_measured() -> None:
    slow, fast = measurements.baseline(), measurements.made(3.0, 54.0, "fast")
    found = baseline.speedup(fast, slow.model_copy(update={"rungs": slow.rungs[:1]}))
    assert list(found) == ["1"]
    gain = found["1"]
    assert (gain.value, gain.low is not None and gain.low < 2 < (gain.high or 0)) == (2.0, True)


A, B = "The lamp is out.", "The lamp was lit."


@pytest.mark.parametrize(
    ("drafted", "plain", "told"),
    [
        ({"p/1": [A], "p/2": [B]}, {"p/1": [A], "p/2": [B]}, (2, 0, 0)),
        ({"p/1": [A], "p/2": [B]}, {"p/1": [A], "p/2": [A]}, (2, 1, 0)),
        ({"p/1": [A, B]}, {"p/1": [A]}, (1, 1, 0)),
        ({"p/1": [A]}, {"p/1": [A, B]}, (1, 0, 1)),
        ({"p/1": ["else"]}, {"p/1": [A, B]}, (1, 0, 1)),
        ({"p/1": [A], "p/3": [A]}, {"p/1": [A], "p/2": [A]}, (1, 0, 0)),
        ({"p/1": [A]}, {"p/2": [A]}, None),
        ({}, {}, None),
        ({"p/1": []}, {"p/1": [A]}, None),
    ],
)
def test_answers_are_compared_prompt_by_prompt(
    drafted: dict[str, list[str]], plain: dict[str, list[str]], told: tuple[int, int, int] | None
) -> None:
    found = quality.compared(drafted, plain)
    assert (found and (found.compared, found.differ, found.unstable)) == told
    assert [finding.verdict for finding in quality.findings(found)] == ["WARN"] * bool(told and told[1])


@pytest.mark.parametrize(("drafted", "at"), [(A, 9), ("The lamp was", 12), ("", 0), (f"{B} It shines.", len(B))])
def test_the_first_difference_is_shown(drafted: str, at: int) -> None:
    found = quality.compared({"p/1": [drafted]}, {"p/1": [B]})
    assert found == Quality(compared=1, differ=1, first={"prompt": "p/1", "with": drafted, "without": B, "at": str(at)})
    (finding,) = quality.findings(found)
    assert f"p/1, from character {at}" in finding.evidence


def test_of_a_long_answer_the_place_of_the_difference_is_shown() -> None:
    found = quality.compared({"p/1": ["x" * 5000 + "a"]}, {"p/1": ["x" * 5000 + "b" * 5000]})
    assert found is not None
    assert found.first is not None
    assert (found.first["at"], found.first["with"][-1], len(found.first["without"])) == ("5000", "a", 800)
