"""The real vLLM on a CPU, for tests and demonstrations; README.md says what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VERSION = "0.32.0"
PYTHON = ((3, 11), (3, 13))
GLIBC = (2, 28)  # torch's wheels

PROOF = f"""
import vllm
from vllm.entrypoints.cli import main
from vllm.platforms import current_platform
assert vllm.__version__ == {VERSION!r}, vllm.__version__
assert current_platform.is_cpu(), current_platform
"""


def variables(folder: Path) -> Mapping[str, str]:
    """What the server's environment needs; `folder` is where the environment lies."""
    return {
        "PYTHONPATH": str(folder / "shim"),
        "HF_HUB_OFFLINE": "1",  # else it asks the model hub about local folders
        "OMP_NUM_THREADS": "1",  # on shared cores two threads are ten times slower than one
        "VLLM_NO_USAGE_STATS": "1",
    }
