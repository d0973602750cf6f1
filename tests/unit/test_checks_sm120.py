"""Backends on GPUs of compute capability 12: each row a command line, a version, and what must be said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.checks import sm120
from deploy.facts.gpus import Gpus
from deploy.facts.interpreter import Interpreter
from deploy.findings import Finding
from tests import hardware

OLD, MIDDLE, NEWER, NEW = "0.5.8", "0.5.12.post1", "0.5.18", "0.5.23"
NONE = ("~args.attention-backend", "~args.speculative-draft-attention-backend")


def found(name: str, changes: tuple[str, ...], version: str | None, **machine: Any) -> list[Finding]:
    node = hardware.nodes(name, *changes)[0]
    return list(sm120.check(hardware.case(node, interpreter=(Interpreter(installed=version),), **machine)))


# (changes to the shipped profile, version, the verdict of each finding, words of the first one and of its remedy)
CASES: dict[str, tuple[tuple[str, ...], str | None, list[str], str, str]] = {
    "the shipped profile": ((), NEW, ["PASS"], "no backend is said that NVIDIA RTX PRO 6000", ""),
    "on an older one": ((), MIDDLE, ["PASS"], "", ""),
    "FlashAttention 3": (("args.attention-backend=fa3",), NEW, ["FAIL"], "fa3 on SM120", "=triton for MLA"),
    "FlashAttention 4": (("args.attention-backend=fa4",), MIDDLE, ["FAIL"], "from 0.5.18 on", "=triton"),
    "FlashAttention 4, newer": (("args.attention-backend=fa4",), NEWER, ["PASS"], "", ""),
    "FlashAttention 4, between": (("args.attention-backend=fa4",), "0.5.14", ["WARN"], "from 0.5.18 on", "=triton"),
    "a build of one's own": (("args.attention-backend=fa4",), "0.5.9.dev3+gabc", ["FAIL"], "from 0.5.18 on", ""),
    "TensorRT's MLA": (("args.attention-backend=trtllm_mla",), NEW, ["FAIL"], "Unsupported arch", "=triton"),
    "by its two flags": (
        ("args.prefill-attention-backend=trtllm_mla", "args.decode-attention-backend=trtllm_mla"),
        NEW,
        ["FAIL", "WARN"],
        "--prefill-attention-backend trtllm_mla",
        "args.prefill-attention-backend=triton",
    ),
    "for decoding alone": (("args.decode-attention-backend=trtllm_mla",), NEW, ["WARN"], "goes by XQA", "=triton"),
    "TensorRT's MHA for decoding, old": (
        ("args.decode-attention-backend=trtllm_mha",),
        OLD,
        ["FAIL"],
        "before 0.5.12",
        "=flashinfer",
    ),
    "TensorRT's MHA for decoding": (("args.decode-attention-backend=trtllm_mha",), MIDDLE, ["PASS"], "", ""),
    "the flag that says more counts": (
        ("args.attention-backend=trtllm_mha", "args.prefill-attention-backend=triton"),
        MIDDLE,
        ["PASS"],
        "",
        "",
    ),
    "TensorRT's MHA, old": (("args.attention-backend=trtllm_mha",), OLD, ["FAIL"], "before 0.5.23", ""),
    "TensorRT's MHA, newer": (("args.attention-backend=trtllm_mha",), NEWER, ["FAIL"], "before 0.5.23", "flashinfer"),
    "TensorRT's MHA, new": (("args.attention-backend=trtllm_mha",), NEW, ["PASS"], "", ""),
    "TensorRT's MHA, new, with an FP8 cache": (
        ("args.attention-backend=trtllm_mha", "args.kv-cache-dtype=fp8_e4m3"),
        NEW,
        ["FAIL"],
        "with an FP8 cache",
        "flashinfer",
    ),
    "an FP8 cache alone": (("args.kv-cache-dtype=fp8_e4m3",), NEW, ["PASS"], "", ""),
    "the draft's": (("args.speculative-draft-attention-backend=fa3",), NEW, ["FAIL"], "--speculative-draft-at", ""),
    "FlashMLA": (("args.attention-backend=flashmla",), NEW, ["FAIL"], "made for SM90", "triton"),
    "nothing said, where the default is wrong": (
        NONE,
        "0.5.10",
        ["WARN"],
        "--attention-backend is not said",
        "=triton",
    ),
    "nothing said, where it is right": (NONE, NEW, ["PASS"], "", ""),
    "experts": (("args.moe-runner-backend=flashinfer_trtllm",), NEW, ["FAIL"], "trtllm-gen", "flashinfer_cutlass"),
    "experts that fit": (("args.moe-runner-backend=flashinfer_cutlass",), NEW, ["PASS"], "", ""),
    "the draft's experts": (("args.speculative-moe-runner-backend=flashinfer_trtllm",), NEW, ["FAIL"], "", ""),
    "DeepGEMM": (("args.moe-runner-backend=deep_gemm",), NEWER, ["FAIL"], "before 0.5.23", "=auto"),
    "DeepGEMM, new": (("args.fp8-gemm-backend=deep_gemm",), NEW, ["WARN"], "only new builds", "=auto"),
    "FP4 by TensorRT": (("args.fp4-gemm-backend=flashinfer_trtllm",), NEW, ["FAIL"], "SM100 only", "_cutlass"),
    "FP4 by CUTLASS, when it gave NaN": (
        ("args.fp4-gemm-backend=flashinfer_cutlass",),
        MIDDLE,
        ["WARN"],
        "NaN",
        "=flashinfer_cudnn",
    ),
    "FP4 by CUTLASS": (("args.fp4-gemm-backend=flashinfer_cutlass",), NEW, ["PASS"], "", ""),
    "FP8 by CUTLASS": (("args.fp8-gemm-backend=cutlass",), NEW, ["PASS"], "", ""),
    "FP8 for Hopper": (("args.fp8-gemm-backend=flashinfer_deepgemm",), NEW, ["FAIL"], "made for SM90", "=cutlass"),
    "a version that is not known": (("args.attention-backend=fa4",), None, ["UNKNOWN"], "from 0.5.18 on", ""),
    "a version that is none": (("args.attention-backend=fa4",), "unknown", ["UNKNOWN"], "from 0.5.18 on", ""),
    "a version that is newer": (("args.fp4-gemm-backend=flashinfer_cutedsl",), "0.6.0", ["PASS"], "", ""),
    "a rule for all versions": (("args.attention-backend=fa3",), None, ["FAIL"], "fa3", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_backends_without_kernels_are_told(name: str) -> None:
    changes, version, verdicts, what, remedy = CASES[name]

    told = found("kimi-eagle3", changes, version)

    assert [one.verdict for one in told] == verdicts, told
    assert what in told[0].what
    assert remedy in told[0].remedy


def test_other_gpus_take_what_these_do_not() -> None:
    b200 = hardware.cards(hardware.B200)

    assert found("kimi-eagle3", ("args.attention-backend=trtllm_mla",), NEW, gpus=b200) == []


def test_only_the_gpus_that_are_taken_count() -> None:
    """Four of one kind beside four of the other."""
    old, new = hardware.cards(hardware.H200).all or (), hardware.cards().all or ()
    mixed = Gpus((*old[:4], *new[4:]), ())
    four = ("gpus=4", "parallel.tp=4", "args.attention-backend=fa3")

    def verdicts(devices: str) -> list[str]:
        changes = (*four, f"env.CUDA_VISIBLE_DEVICES={devices}")
        return [one.verdict for one in found("kimi-eagle3", changes, NEW, gpus=mixed)]

    assert (verdicts("0,1,2,3"), verdicts("4,5,6,7")) == ([], ["FAIL"])


def test_a_capability_that_is_not_told_is_unknown() -> None:
    silent = Gpus(tuple(replace(gpu, compute_cap=None) for gpu in hardware.cards().all or ()), ())

    assert [one.verdict for one in found("kimi-eagle3", (), NEW, gpus=silent)] == ["UNKNOWN"]


def test_vllm_has_rules_of_its_own() -> None:
    (told,) = found("local-vllm", ("gpus=1", "args.attention-backend=FLASHMLA"), "0.33.0")

    assert (told.verdict, "TRITON_MLA" in told.remedy) == ("FAIL", True)


def test_without_a_profile_or_its_rules_nothing_is_judged() -> None:
    assert list(sm120.check(hardware.case(None))) == []
    assert found("local", (), None) == []
