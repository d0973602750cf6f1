"""The commands that start the healthy tiny pair on an engine, before anything is changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


def _sglang(model: Path, draft: Path) -> Command:
    draft_flags = {"algorithm": "EAGLE3", "draft-model-path": draft, "num-steps": 3, "eagle-topk": 1}
    speculative = {f"speculative-{name}": value for name, value in draft_flags.items()}
    return ["sglang.launch_server"], {"model-path": model, **speculative, "speculative-num-draft-tokens": 4}


def _vllm(model: Path, draft: Path) -> Command:
    speculative = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3}
    return ["vllm.entrypoints.cli.main", "serve", str(model)], {"speculative-config": json.dumps(speculative)}


Command = tuple[list[str], dict[str, Any]]  # the words behind `python -m`, and the flags
COMMANDS: dict[str, Callable[[Path, Path], Command]] = {"sglang": _sglang, "vllm": _vllm}


def written(flags: Mapping[str, Any], port: int) -> Iterator[str]:
    """As words; `{after}` in a value is the port after the server's own."""
    for flag, value in flags.items():
        if value is not None:
            yield f"--{flag}"
            yield from () if value is True else (str(value).replace("{after}", str(port + 1)),)
