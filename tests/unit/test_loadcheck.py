"""The program that asks an engine's own loader, where there is no engine, or none that it knows.

What it says of real engines is tested in `tests/engine/test_loaders.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import host

QUESTION: dict[str, Any] = {"architecture": "LlamaForCausalLMEagle3", "config": {}, "tensors": {}, "d2t": None}


def run(
    *words: str, asked: Any = QUESTION, path: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(path or "")}
    argv = [sys.executable, "-c", host.source("loadcheck"), *words]
    return subprocess.run(argv, input=json.dumps(asked), capture_output=True, text=True, check=True, env=env, cwd=cwd)


def answer(*words: str, **how: Any) -> Any:
    return json.loads(run(*words, **how).stdout.strip().rpartition("\n")[2])


def package(folder: Path, text: str = "", *, version: str = "0.5.8") -> Path:
    """A package that calls itself SGLang, and what is there of its sources."""
    models = folder / "sglang" / "srt" / "models"
    models.mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text(text)
    (models / "llama_eagle3.py").write_text("class LlamaForCausalLMEagle3: ...\n")
    (models / "gemma.py").write_text("\n")
    (folder / f"sglang-{version}.dist-info").mkdir()
    (folder / f"sglang-{version}.dist-info" / "METADATA").write_text(f"Name: sglang\nVersion: {version}\n")
    return folder


UNKNOWN = {
    "not installed": ("sglang", "", "sglang is not installed for"),
    "no engine at all": ("json", "", "knows nothing of json"),
    "fails to import": (
        "sglang",
        "raise RuntimeError('libcuda.so.1')",
        "sglang 0.5.8 cannot be tried here: RuntimeErr",
    ),
    "exits": ("sglang", "raise SystemExit('no accelerator')", "cannot be tried here: SystemExit: no accelerator"),
    "chatters": ("sglang", "print('INFO: hello'); raise ImportError('x')", "cannot be tried here: ImportError: x"),
    "without its parts": ("sglang", "", "No module named 'sglang.srt.server_args'"),
}


@pytest.mark.parametrize(("engine", "text", "words"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_told_is_no_verdict_and_no_traceback(tmp_path: Path, engine: str, text: str, words: str) -> None:
    there = package(tmp_path, text) if words.find("not installed") < 0 else None
    told = answer(engine, "answer", path=there)
    assert told["unsupported"] is True
    assert words in told["error"]


def test_a_list_is_answered_with_a_list(tmp_path: Path) -> None:
    told = answer("sglang", "answer", asked=[QUESTION, QUESTION], path=package(tmp_path, "raise ImportError"))
    assert [row["unsupported"] for row in told] == [True, True]


def test_the_current_folder_does_not_count(tmp_path: Path) -> None:
    assert "not installed" in answer("sglang", "fingerprint", cwd=package(tmp_path))["error"]


EDITS = {
    "the loader": ("srt/models/llama_eagle3.py", True),
    "a new layer": ("srt/layers/linear.py", True),
    "another model": ("srt/models/gemma.py", False),
}


@pytest.mark.parametrize(("file", "changes"), EDITS.values(), ids=EDITS)
def test_the_fingerprint_is_of_the_loaders_sources(tmp_path: Path, file: str, *, changes: bool) -> None:
    """An editable installation changes without a new version. Nothing of it is imported."""
    package(tmp_path, "raise RuntimeError('imported')")
    before = answer("sglang", "fingerprint", path=tmp_path)
    (tmp_path / "sglang" / file).parent.mkdir(exist_ok=True)
    with (tmp_path / "sglang" / file).open("a") as source:
        source.write("# edited\n")
    after = answer("sglang", "fingerprint", path=tmp_path)
    assert (before["version"], "error" in before, before != after) == ("0.5.8", False, changes)
