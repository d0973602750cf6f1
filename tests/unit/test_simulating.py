"""A server that makes its acceptance up: told by the profile's words, and by what the server really has."""

from __future__ import annotations

import pytest

from deploy.checks import simulated
from deploy.server import simulating
from tests import hardware

VARIABLE = "env.SGLANG_SIMULATE_ACC_LEN"
METHOD = "args.speculative-config.rejection_sample_method"
WISHED = {
    "nothing of it": ("kimi-eagle3", (), ""),
    "a length": ("kimi-eagle3", (f"{VARIABLE}=2.5",), "SGLANG_SIMULATE_ACC_LEN=2.5"),
    "off, as the engine has it": ("kimi-eagle3", (f"{VARIABLE}=-1",), ""),
    "zero is off, too": ("kimi-eagle3", (f"{VARIABLE}=0",), ""),
    "no number": ("kimi-eagle3", (f"{VARIABLE}=yes",), "SGLANG_SIMULATE_ACC_LEN=yes"),
    "vLLM's method": ("local-vllm", (f"{METHOD}=synthetic",), f"--{METHOD.removeprefix('args.')} synthetic"),
    "vLLM's usual method": ("local-vllm", (f"{METHOD}=strict",), ""),
}


@pytest.mark.parametrize("case", WISHED)
def test_what_the_profile_says_of_it_is_refused_before_the_load(case):
    profile, changes, told = WISHED[case]
    (node,) = hardware.nodes(profile, *changes)
    assert simulating.wished(node) == told
    findings = list(simulated.check(hardware.case(node)))
    assert [(one.verdict, one.evidence) for one in findings] == ([("FAIL", told)] if told else [])


def test_without_speculation_there_is_nothing_to_make_up():
    (node,) = hardware.nodes("kimi-eagle3", "~speculative", "~draft", "gates={}", f"{VARIABLE}=2.5")
    assert list(simulated.check(hardware.case(node))) == []
    assert list(simulated.check(hardware.case(None))) == []
