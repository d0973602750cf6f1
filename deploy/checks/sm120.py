"""Kernels that GPUs of compute capability 12 do not have: RTX PRO 6000 Blackwell, RTX 50, GB10. A table by engine.

They are Blackwell by name, and lack what most kernels for Blackwell are made of (tcgen05 and tensor memory of SM100).
SGLang takes several backends all the same, and falls over at the first request, or where it captures graphs.

From the sources of SGLang (READ), FlashInfer 0.7.2 and vLLM 0.33.0. A range of versions ends at the first one in which
the kernel was seen; for a version between that one and the one before it, what would be a FAIL is only a WARN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from deploy.checks import Case
from deploy.engines._ports import Said
from deploy.facts import gpus, interpreter
from deploy.findings import Finding, Verdict
from deploy.ownership import visible

MAJOR = "12."
READ = tuple(map(Version, ("0.5.8", "0.5.12.post1", "0.5.18", "0.5.23")))
# What a backend does, and the flags that say it, the first that is said.
ROLES: Mapping[str, tuple[str, ...]] = {
    "prefill": ("prefill-attention-backend", "attention-backend"),
    "decode": ("decode-attention-backend", "attention-backend"),
    "draft": ("speculative-draft-attention-backend",),
    "experts": ("moe-runner-backend",),
    "the draft's experts": ("speculative-moe-runner-backend",),
    "FP4": ("fp4-gemm-backend",),
    "FP8": ("fp8-gemm-backend",),
    "the cache": ("kv-cache-dtype",),
}
ATTENTION, EXPERTS = ("prefill", "decode", "draft"), ("experts", "the draft's experts")
MLA_OR_MHA = "triton for MLA models (DeepSeek, Kimi), flashinfer for others"


@dataclass(frozen=True)
class Rule:
    """Values of some roles that do not work, in a range of versions (empty: in all that were read)."""

    roles: tuple[str, ...]
    values: tuple[str, ...]  # "": nothing is said, and the engine chooses
    versions: str
    verdict: Verdict
    why: str
    instead: str  # "": nothing
    beside: tuple[str, str] | None = None  # only where another role has that value


SGLANG = (
    Rule(ATTENTION, ("fa3",), "", "FAIL", "FlashAttention 3 asserts SM80 to SM90", MLA_OR_MHA),
    Rule(ATTENTION, ("fa4",), "<0.5.18", "FAIL", "FlashAttention 4 has SM120 kernels from 0.5.18 on", MLA_OR_MHA),
    # FlashInfer's ragged prefill is trtllm-gen's, which is there for SM100 and SM103: sglang#24633, #17880
    Rule(
        ("prefill",), ("trtllm_mla",), "", "FAIL",
        "SGLang takes it on all Blackwell, FlashInfer has its prefill for SM100 only: Unsupported architecture",
        "triton",
    ),
    Rule(("decode",), ("trtllm_mla",), "", "WARN", "here it goes by XQA, which wants an FP8 cache", "triton"),
    Rule(("prefill",), ("trtllm_mha",), "<0.5.23", "FAIL", "SGLang refuses it here before 0.5.23", "flashinfer"),
    Rule(
        ("prefill",), ("trtllm_mha",), ">=0.5.23", "FAIL", "SGLang refuses it here with an FP8 cache", "flashinfer",
        beside=("the cache", "fp8_e4m3"),
    ),
    Rule(("draft",), ("trtllm_mha",), "<0.5.23", "WARN", "its prefill had no kernels here", "flashinfer"),
    Rule(("decode",), ("trtllm_mha",), "<0.5.12", "FAIL", "SGLang refuses it here before 0.5.12", "flashinfer"),
    Rule(ATTENTION, ("cutlass_mla", "cutedsl_mla", "tokenspeed_mla"), "", "FAIL", "it is made for SM100", "triton"),
    Rule(ATTENTION, ("flashmla",), "", "FAIL", "FlashMLA's dense kernels are made for SM90", "triton"),
    Rule((*ATTENTION, *EXPERTS), ("hpc_ops",), "", "FAIL", "it is made for SM90", ""),
    # sglang#24633: the one range in which the default for MLA was wrong here
    Rule(
        ("prefill",), ("",), ">=0.5.9,<0.5.12", "WARN",
        "for MLA models (DeepSeek, Kimi) this version chooses trtllm_mla, which has no kernels here", "triton",
    ),
    Rule(
        EXPERTS, ("flashinfer_trtllm", "flashinfer_trtllm_routed", "experimental_sgl_trtllm"), "", "FAIL",
        "trtllm-gen's kernels for experts are made for SM100 (#25563)", "flashinfer_cutlass for NVFP4; else auto",
    ),
    Rule(EXPERTS, ("flashinfer_megamoe", "megamoe"), "", "FAIL", "SGLang refuses it but on SM100", "auto"),
    Rule(EXPERTS, ("flashinfer_mxfp4",), "<0.5.18", "FAIL", "it has SM120 kernels from 0.5.18 on", "auto"),
    Rule(EXPERTS, ("flashinfer_cutedsl",), "", "WARN", "it was made for SM100", "flashinfer_cutlass"),
    Rule((*EXPERTS, "FP8"), ("deep_gemm",), "<0.5.23", "FAIL", "DeepGEMM is off on SM120 before 0.5.23", "auto"),
    Rule((*EXPERTS, "FP8"), ("deep_gemm",), ">=0.5.23", "WARN", "only new builds of DeepGEMM know SM120", "auto"),
    Rule(("FP4",), ("flashinfer_trtllm",), "", "FAIL", "FlashInfer has it for SM100 only", "flashinfer_cutlass"),
    Rule(("FP4",), ("flashinfer_cutedsl",), "<0.5.23", "FAIL", "FlashInfer had it for SM100 only", "auto"),
    Rule(
        ("FP4",), ("flashinfer_cutlass", "cutlass"), "<0.5.18", "WARN",
        "it gave NaN in dense layers here (#20043)", "flashinfer_cudnn, or auto",
    ),
    Rule(("FP8",), ("flashinfer_trtllm", "flashinfer_cutedsl"), "", "FAIL", "it is made for SM100", "cutlass, or auto"),
    Rule(("FP8",), ("flashinfer_deepgemm",), "", "FAIL", "it is made for SM90", "cutlass, or auto"),
)  # fmt: skip
VLLM = (
    Rule(
        ("prefill", "decode"),
        ("flashmla", "flash_attn_mla", "cutlass_mla", "flashinfer_mla", "tokenspeed_mla", "hpc_attn"), "", "FAIL",
        "vLLM has it for SM90 or SM100 only", "TRITON_MLA for MLA models (DeepSeek, Kimi), FLASH_ATTN for others",
    ),
)  # fmt: skip
RULES: Mapping[str, tuple[Rule, ...]] = {"sglang": SGLANG, "vllm": VLLM}


def check(case: Case) -> Iterator[Finding]:
    """Nothing where no GPU of that kind is taken, or the engine's rules are not known."""
    node = case.node
    rules = RULES.get(node.profile.engine.name) if node else None
    found = case.facts[gpus.FACT].all
    if node is None or rules is None or not found:
        return
    taken = visible.of(node, found).gpus
    kind = [gpu for gpu in taken if (gpu.compute_cap or "").startswith(MAJOR)]
    if not kind:
        if any(gpu.compute_cap is None for gpu in taken):
            yield Finding("sm120", "UNKNOWN", "the GPUs' compute capability is not told: rules of SM120 are not judged")
        return
    installed = next((one.installed for one in case.facts[interpreter.FACT]), None)
    wrong = list(judge(rules, node.said(), installed))
    yield from wrong
    if not wrong:
        yield Finding("sm120", "PASS", f"no backend is said that {kind[0].name} has no kernels for")


def judge(rules: tuple[Rule, ...], said: Said, version: str | None) -> Iterator[Finding]:
    """What of a command line does not work; each flag once, by the first rule that it breaks."""
    told: set[str] = set()
    for rule in rules:
        verdict = _verdict(rule, version)
        if verdict is None or (rule.beside and _said(said, rule.beside[0])[1] != rule.beside[1]):
            continue
        for flag, value in (_said(said, role) for role in rule.roles):
            if value.lower().replace("-", "_") in rule.values and flag not in told:
                told.add(flag)
                what = f"--{flag} {value}" if value else f"--{flag} is not said"
                remedy = f"set args.{flag}={rule.instead}" if rule.instead else f"leave args.{flag} out"
                versions = f"in versions {rule.versions}" if rule.versions else ""
                yield Finding("sm120", verdict, f"{what} on SM120: {rule.why}", versions, remedy)


def _verdict(rule: Rule, version: str | None) -> Verdict | None:
    """Where the version is not known, what holds for a range of them is only possible."""
    if not rule.versions:
        return rule.verdict
    try:
        found = Version(version or "")
    except InvalidVersion:
        return "UNKNOWN"
    span = SpecifierSet(rule.versions, prereleases=True)
    if found not in span:
        return None
    above = next((read for read in READ if read >= found), READ[-1])
    return rule.verdict if above in span or rule.verdict != "FAIL" else "WARN"


def _said(said: Said, role: str) -> tuple[str, str]:
    """(flag, value) of a role; the last of its flags without a value where none is said."""
    flags = ROLES[role]
    return next(((flag, said.word(flag)) for flag in flags if flag in said), (flags[-1], ""))
