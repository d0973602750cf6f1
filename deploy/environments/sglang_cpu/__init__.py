"""The real SGLang on a CPU, for tests and demonstrations; README.md says what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VERSION = "0.5.23"
PYTHON = ((3, 11), (3, 13))  # SGLang's wheels
GLIBC = (2, 34)

PROOF = f"""
import sgl_kernel, torch, torchvision, transformers
from sglang.version import __version__
assert __version__ == {VERSION!r}, __version__
"""


def variables(folder: Path) -> Mapping[str, str]:
    """What the server's environment needs; `folder` is where the environment lies."""
    return {
        "PYTHONPATH": str(folder / "shim"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",  # else it asks the model hub about local folders
        "OMP_NUM_THREADS": "1",  # on shared cores two threads are ten times slower than one
    }
