"""Answers of an engine's loader as traces: here, on a host, and what is no answer."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoint import exact
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.trace import Landing, Trace
from deploy.inventory import Host
from deploy.remote import Remote
from deploy.transport.local import LocalTransport

CONFIG = {"architectures": ["LlamaForCausalLMEagle3"]}


def draft(*names: str, **more: Any) -> Facts:
    tensors = {name: Tensor("BF16", (4, 4), 0, 32, "model.safetensors") for name in names}
    return Facts("draft", **{"tensors": tensors, "config": CONFIG, **more})


def told(**more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"placed": [], "refused": [], "unfilled": [], "parameters": {}}
    return {"engine": "sglang", "version": "0.5.23", "error": "", "unsupported": False, **empty, **more}


FC, QKV, FUSED = "model.fc.weight", "model.layers.0.self_attn.qkv_proj.weight", "model.fused_qkv_a_proj_with_mqa.weight"
LANDINGS: list[tuple[dict[str, Any], Landing]] = [
    ({"placed": [["lm_head.weight", "lm_head.weight", None, ""]]},
     Landing("lm_head.weight", "lm_head.weight", "as-is")),
    ({"placed": [["fc.weight", FC, None, ""]]}, Landing("fc.weight", FC, "model. prefix")),
    ({"placed": [["midlayer.norm", "model.layers.0.norm", None, ""]]},
     Landing("midlayer.norm", "model.layers.0.norm", "legacy name")),
    ({"placed": [["layers.0.self_attn.q_proj.weight", QKV, "q", "cut"]]},
     Landing("layers.0.self_attn.q_proj.weight", QKV, "stacked", "q", "cut")),
    ({"placed": [["q_a_proj.weight", FUSED, "q_a", ""]]}, Landing("q_a_proj.weight", FUSED, "fused", "q_a")),
    ({"placed": [["model.d2t", "hot_token_id", None, ""]]}, Landing("model.d2t", "hot_token_id", "vocabulary map")),
    ({}, Landing("t2d", None, "ignored")),
    ({}, Landing("decoder.norm.weight", None, "dropped")),
    ({"refused": [["fc.weight", FC, None, "Attempted\x1b[2J\nto"]]},
     Landing("fc.weight", FC, "refused", None, "Attempted to")),
    ({"placed": [["fc.weight", FC, None, ""], ["fc.weight", "model.fc2", None, ""]]},
     Landing("fc.weight", "model.fc2", "legacy name")),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "landing"), LANDINGS, ids=[landing.how for _, landing in LANDINGS])
def test_what_happened_to_a_tensor_has_a_name(answer: dict[str, Any], landing: Landing) -> None:
    assert exact.parse(draft(landing.tensor), told(**answer)).landings == (landing,)


def test_the_rest_of_an_answer() -> None:
    found = exact.parse(draft(), told(unfilled=[FC], parameters={FC: [64, 192]}))
    assert found == Trace((), (FC,), {FC: (64, 192)})
    assert exact.parse(draft("a"), told(error="TypeError: None")) == Trace((), (), {}, "TypeError: None")


def interpreter(folder: Path, answer: Any) -> str:
    """A program in the place of the engine's Python that answers so, whatever it is asked."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nprint('starting')\nprint({json.dumps(answer)!r})\n")
    path.chmod(0o755)
    return str(path)


def here() -> Remote:
    where = Host.model_validate({"name": "here", "transport": "local"})
    return Remote(where, LocalTransport(), print, threading.Event())


@pytest.mark.parametrize("remote", [None, here()], ids=["here", "on a host"])
def test_the_engine_is_asked_where_it_is_installed(tmp_path: Path, remote: Remote | None) -> None:
    answer = told(placed=[["fc.weight", FC, None, ""]], unfilled=["lm_head.weight"])
    python, cache = interpreter(tmp_path, {"version": "1", **answer}), tmp_path / "cache"
    engine = exact.Engine("sglang", python)
    found = exact.trace(draft("fc.weight"), engine, remote, str(cache))
    assert found == Trace((Landing("fc.weight", FC, "model. prefix"),), ("lm_head.weight",))
    assert exact.trace(draft("fc.weight"), engine, remote, str(cache)) == found
    assert len(list(cache.iterdir())) == 1


def test_here_answers_are_kept_with_the_users_other_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    exact.trace(draft("fc.weight"), exact.Engine("sglang", interpreter(tmp_path, told())))
    assert len(list((tmp_path / "cache/deploy/loaders").iterdir())) == 1


REASONS = {
    "no architecture": (draft(config={}), told(), "config.json names no architecture"),
    "architectures null": (draft(config={"architectures": None}), told(), "names no architecture"),
    "architectures of numbers": (draft(config={"architectures": [1]}), told(), "names no architecture"),
    "unsupported": (draft(), told(error="without a GPU", unsupported=True), "without a GPU"),
    "no landings": (draft(), {"version": "1"}, "answers what nobody understands"),
    "landings of another shape": (draft(), told(placed=[["a"]]), "answers what nobody understands"),
    "shapes of another kind": (draft(), told(parameters={"a": None}), "answers what nobody understands"),
    "not JSON": (draft(), "Killed", "ended with status 0"),
}


@pytest.mark.parametrize("remote", [None, here()], ids=["here", "on a host"])
@pytest.mark.parametrize(("asked", "answer", "words"), REASONS.values(), ids=REASONS)
def test_why_it_could_not_be_told(tmp_path: Path, remote: Remote | None, asked: Facts, answer: Any, words: str) -> None:
    found = exact.trace(asked, exact.Engine("sglang", interpreter(tmp_path, answer)), remote, "")
    assert isinstance(found, str)
    assert words in found


def test_what_the_host_itself_says_is_the_reason() -> None:
    remote = here()
    remote.interpreter = ("sh", "-c", "echo no python3 here >&2; exit 127", "sh")
    found = exact.trace(draft(), exact.Engine("sglang", "python3"), remote, "")
    assert isinstance(found, str)
    assert "no python3 here" in found
