"""Which variables of a process matter to a server, and where the values of secrets stand in other words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deploy.scaffold import Word
from deploy.text import scrub

# Beginnings of names, and why: of a process's environment everything else is of its user, its shell, its session.
KEPT = {
    "CUDA_": "which GPUs, and how kernels are launched",
    "NVIDIA_": "the same, for containers",
    "NCCL_": "how GPUs talk to each other",
    "GLOO_": "the interface of the rendezvous of several hosts",
    "UCX_": "transports of RDMA",
    "MASTER_": "the rendezvous of several hosts",
    "SGLANG_": "SGLang's own switches",
    "SGL_": "SGLang's older ones",
    "VLLM_": "vLLM's own switches",
    "LLAMA_": "llama.cpp's flags as variables",
    "GGML_": "its back ends",
    "FLASHINFER_": "where kernels are built, and for what",
    "TRITON_": "the same",
    "TORCH": "PyTorch's compiler and its caches",
    "PYTORCH_": "its allocator",
    "HF_": "where models are found, and whether the hub is asked",
    "HUGGINGFACE_": "the same, older",
    "TRANSFORMERS_": "the same, of transformers",
    "TOKENIZERS_": "threads of tokenizers",
    "OMP_": "threads",
    "MKL_": "threads",
    "KMP_": "threads",
    "GOMP_": "threads",
    "OPENBLAS_": "threads",
    "MALLOC_": "the allocator of the host",
    "RAY_": "a cluster of several hosts",
    "PYTHONPATH": "where modules are found",
    "PYTHONUNBUFFERED": "whether the log comes at once",
    "LD_LIBRARY_PATH": "where CUDA's libraries are found",
    "LD_PRELOAD": "an allocator, or a shim",
    "SPT_NOENV": "whether a process title may overwrite the environment",
    "NO_PROXY": "whether the warm-up asks a proxy for 127.0.0.1",
    "no_proxy": "the same",
}
SHORTEST = 6  # characters of a secret's value that are looked for elsewhere; shorter ones stand in any word


def matters(name: str) -> bool:
    """Whether a variable of a process belongs into a profile."""
    return name.startswith(tuple(KEPT))


def values(env: Mapping[str, Word], others: Iterable[Word]) -> frozenset[str]:
    """The values of secrets: where they stand in another word, that word is one too."""
    found = {word.text for name, word in env.items() if scrub.is_secret(name)} | {word.text for word in others}
    return frozenset(text for text in found if len(text) >= SHORTEST)


def tells(word: Word, hidden: Iterable[str]) -> bool:
    """Whether a word holds a secret: its value, a variable or a key that is one by its name, a login of a URL."""
    named = any(map(scrub.is_secret, word.names)) or scrub.words([word.text]) != [word.text]
    return named or any(text in word.text for text in hidden)
