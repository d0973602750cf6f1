"""The CUDA that the engine's torch is built for, against the driver and the GPUs: both fail only after the start.

Rules of NVIDIA's "CUDA compatibility" (docs.nvidia.com/deploy/cuda-compatibility): a driver runs every minor version of
its own major one and all older ones; a newer major one only with the package cuda-compat, on data centre boards. Which
toolkit first builds for a compute capability: the CUDA release notes (11.8: 8.9 and 9.0; 12.8: 10.0 and 12.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.facts import gpu_health, gpus, interpreter
from deploy.findings import Finding, Verdict
from deploy.ownership import visible

# {compute capability's first number: the first CUDA that builds for it}
FIRST = {9: (11, 8), 10: (12, 8), 12: (12, 8)}
COMPAT = "compat"  # in the path of cuda-compat's libraries


def check(case: Case) -> Iterator[Finding]:
    """Nothing to say where torch is not seen: the engine's check tells of that."""
    node, found = case.node, case.facts[gpus.FACT].all
    built = next((one.cuda for one in case.facts[interpreter.FACT] if one.cuda is not None), None)
    if node is None or not node.gpus or not found or built is None or node.said().word("device") == "cpu":
        return
    if not built:
        # how many GPUs may be the inventory's word alone, and the engine be meant for processors
        verdict: Verdict = "WARN" if node.profile.gpus is None else "FAIL"
        remedy = "install the build of torch for CUDA in the engine's environment; or set gpus: 0"
        yield Finding("cuda", verdict, "torch there is built for processors alone, GPUs are wanted", remedy=remedy)
        return
    driver = case.facts[gpu_health.FACT].cuda
    told = [*_driver(built, driver, dict(node.env)), *_boards(built, visible.of(node, found).gpus)]
    yield from told
    if not told and driver:
        yield Finding("cuda", "PASS", f"torch is built for CUDA {built}, the driver runs up to {driver}")


def _driver(built: str, driver: str | None, env: dict[str, str]) -> Iterator[Finding]:
    if not driver or _version(built)[0] <= _version(driver)[0]:
        return
    carried = COMPAT in env.get("LD_LIBRARY_PATH", "")
    yield Finding(
        "cuda",
        "WARN" if carried else "FAIL",
        f"torch is built for CUDA {built}, the driver runs up to {driver}",
        "LD_LIBRARY_PATH names cuda-compat, which may make it run" if carried else "",
        f"update the driver, or install a torch built for CUDA {_version(driver)[0]}",
    )


def _boards(built: str, taken: tuple[gpus.Gpu, ...]) -> Iterator[Finding]:
    for name, capability in sorted({(gpu.name, gpu.compute_cap) for gpu in taken if gpu.compute_cap}):
        first = FIRST.get(_version(capability or "")[0], (0, 0))
        if _version(built) < first:
            yield Finding(
                "cuda",
                "FAIL",
                f"torch is built for CUDA {built}, which knows no {name} (compute capability {capability})",
                "CUDA then says: no kernel image is available for execution on the device",
                f"install a torch built for CUDA {first[0]}.{first[1]} or newer",
            )


def _version(text: str) -> tuple[int, int]:
    """As numbers; what is none is 0."""
    major, _, minor = text.partition(".")
    return (int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0)
