"""Where compilers and engines keep what they have built: a part of programs, no program.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os

# (variable, what comes below it, where it is without it): Triton, FlashInfer, DeepGEMM, SGLang, vLLM, Inductor,
# tvm-ffi, torch's extensions, the driver's own JIT, and what the Hugging Face hub is downloading.
CACHES = (
    ("TRITON_CACHE_DIR", "", "~/.triton/cache"),
    ("FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer", "~/.cache/flashinfer"),
    ("DG_JIT_CACHE_DIR", "", "~/.deep_gemm"),
    ("SGLANG_DG_CACHE_DIR", "", "~/.cache/deep_gemm"),
    ("SGLANG_CACHE_DIR", "", "~/.cache/sglang"),
    ("VLLM_CACHE_ROOT", "", "~/.cache/vllm"),
    ("TORCHINDUCTOR_CACHE_DIR", "", "/tmp/torchinductor_{user}"),
    ("TVM_FFI_CACHE_DIR", "", "~/.cache/tvm-ffi"),
    ("TORCH_EXTENSIONS_DIR", "", "~/.cache/torch_extensions"),
    ("CUDA_CACHE_PATH", "", "~/.nv/ComputeCache"),
    ("HF_HOME", "hub", "~/.cache/huggingface/hub"),
)


def usual(place: str, said: dict[str, str]) -> str:
    """A default of CACHES, for a process with this environment."""
    return place.replace("~", said.get("HOME", "~"), 1).format(user=said.get("USER", "root"))


def said_by(variable: str, below: str, said: dict[str, str]) -> str:
    """The folder that this environment names, or ""."""
    named = said.get(variable, "")
    return os.path.join(named, below) if named and below else named
