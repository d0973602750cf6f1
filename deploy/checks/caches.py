"""The caches of a server's compilers: what cannot be kept there is built anew at each start, for minutes."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.checks._words import GIB, gib
from deploy.facts import caches
from deploy.facts.caches import Cache
from deploy.findings import Finding, Verdict

ROOM = 2 * GIB  # what a first start builds: FlashInfer and DeepGEMM have some hundred MiB each, Inductor and CUDA too
# Who writes where, by the variables of host/cache_folders.py; llama.cpp has but the driver's own.
BUILDERS = {
    "sglang": {
        "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "DG_JIT_CACHE_DIR", "SGLANG_DG_CACHE_DIR", "SGLANG_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR", "TVM_FFI_CACHE_DIR", "CUDA_CACHE_PATH",
    },
    "vllm": {
        "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "DG_JIT_CACHE_DIR", "VLLM_CACHE_ROOT",
        "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH",
    },
    "llamacpp": {"CUDA_CACHE_PATH"},
}  # fmt: skip
SPARED = "CUDA_CACHE_PATH"  # the driver's own: it goes on without (CUDA programming guide, environment variables)


def check(case: Case) -> Iterator[Finding]:
    """Of the engine that shall run, one line for each kind of trouble."""
    if case.node is None or not case.node.gpus:
        return
    written = BUILDERS.get(case.node.profile.engine.name, set())
    found = [cache for cache in case.facts[caches.FACT] if cache.variable in written]
    told = [
        *_told("FAIL", "cannot be written to", [c for c in found if not c.disk.writable and c.variable != SPARED]),
        *_told("WARN", "cannot be written to", [c for c in found if not c.disk.writable and c.variable == SPARED]),
        *_told("WARN", "have little room", [cache for cache in found if cache.disk.writable and _tight(cache)]),
        *_told(
            "WARN",
            "are shared by hosts, whose builds may get in each other's way",
            [c for c in found if c.disk.network],
        ),
    ]
    yield from told
    if found and not told:
        there = [cache for cache in found if cache.files]
        size = gib(sum(cache.size for cache in there))
        warm = f"{size} of earlier builds" if there else "nothing is built yet: the first start takes minutes longer"
        yield Finding("caches", "PASS", f"compilers can keep what they build; {warm}")


def _tight(cache: Cache) -> bool:
    return cache.disk.free < ROOM or cache.disk.free_inodes == 0


def _told(verdict: Verdict, what: str, found: list[Cache]) -> Iterator[Finding]:
    if found:
        lines = [f"{cache.disk.path} ({cache.disk.kind}, {gib(cache.disk.free)} free)" for cache in found]
        moved = f"env.{found[0].variable}=/a/folder/on/a/local/disk"
        yield Finding(
            "caches", verdict, f"caches of compilers {what}", "\n".join(lines), f"make room, or move it: {moved}"
        )
