"""Where a checkpoint's tensors land, as the installed engine itself says: its class, its `load_weights`, no weights.

Runs in the ENGINE's interpreter (`PYTHON -c SOURCE ENGINE`), without a GPU, a network or a server. On stdin it is given
a question, or a list of them (the import takes seconds, the rest milliseconds):

    {"architecture": "LlamaForCausalLMEagle3", "config": {...}, "tensors": {name: [dtype, shape]}, "d2t": [...] or null}

and on the last line of stdout stands an answer, or a list of them:

    {"engine": "sglang", "version": "0.5.8", "class": "sglang.srt.models....", "sources": sha256,
     "parameters": {name: shape}, "placed": [[tensor, parameter, shard, what is wrong or ""]],
     "refused": [[tensor, parameter, shard, the loader's words]], "unfilled": [parameter], "error": "",
     "unsupported": false, "seconds": 5.8}

`error` is what the constructor or `load_weights` raised: the server will not start. With `unsupported` the error is
about this attempt and nothing is said of the checkpoint. `PYTHON -c SOURCE ENGINE fingerprint` only tells
`{"engine", "version", "sources"}`, in a tenth of a second: an editable installation changes without a new version.
"""

# Runs in the engine's own interpreter, which may be any: standard library, Python 3.8 or newer, and the engine.

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any

from deploy.host.installed import HIDE, fingerprint
from deploy.host.loader_healthy import HEALTHY, healthy
from deploy.host.loader_record import NoSuchClass, Recorder, Unsupported
from deploy.host.loader_sglang import boot_sglang, borrowed_sglang, build_sglang, default_loader_sglang
from deploy.host.loader_vllm import boot_vllm, borrowed_vllm, build_vllm, default_loader_vllm, load_vllm

# What decides where a tensor goes, below the package's folder; and the libraries that read config.json, hold tensors.
SOURCES = {
    "sglang": (
        "version.py", "srt/models/*llama*.py", "srt/models/*deepseek*.py", "srt/models/deepseek_common/**/*.py",
        "srt/models/*eagle*.py", "srt/layers/*.py", "srt/layers/quantization/**/*.py", "srt/model_loader/*.py",
        "srt/configs/*.py", "srt/utils/hf_transformers*.py", "srt/utils/hf_transformers/*.py",
    ),
    "vllm": (
        "_version.py", "model_executor/models/*llama*.py", "model_executor/models/*eagle*.py",
        "model_executor/models/registry.py", "model_executor/models/utils.py", "model_executor/models/interfaces.py",
        "model_executor/layers/*.py", "model_executor/layers/quantization/**/*.py", "model_executor/parameter.py",
        "model_executor/model_loader/*.py", "config/*.py", "transformers_utils/*.py",
        "transformers_utils/configs/eagle.py", "transformers_utils/configs/speculators/*.py",
    ),
}  # fmt: skip
# What each engine is asked through: once a process, the class, its loading, its loader where a parameter has none of
# its own, and which parameters are the target's in the end.
ENGINES: dict[str, tuple[Any, ...]] = {
    "sglang": (boot_sglang, build_sglang, Recorder.load, default_loader_sglang, borrowed_sglang),
    "vllm": (boot_vllm, build_vllm, load_vllm, default_loader_vllm, borrowed_vllm),
}
PYDANTIC = r"(?s)^\d+ validation errors? for \w+\s+Value error, | \[type=value_error, .*"  # around the words
LIBRARIES = ("torch", "transformers")


def main() -> None:
    engine = sys.argv[1]
    sys.path[:] = [entry for entry in sys.path if entry]  # the current folder must not count
    answer_to = os.dup(1)
    os.dup2(2, 1)  # engines print while they are imported
    told: Any = fingerprint(engine, SOURCES.get(engine, ("*.py",)), LIBRARIES)
    if "fingerprint" not in sys.argv[2:]:
        asked = json.load(sys.stdin)
        answers = answer(engine, told, asked if isinstance(asked, list) else [asked])
        told = answers if isinstance(asked, list) else answers[0]
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        out.write("\n" + json.dumps(told) + "\n")
    sys.stderr.flush()
    os._exit(0)  # an engine's threads and finalizers take seconds


def answer(engine: str, told: dict[str, Any], questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer each. Never raises: what cannot be told is told as that."""
    began = time.monotonic()
    error = str(told.get("error", ""))
    if not error and engine not in ENGINES:
        error = f"this program knows nothing of {engine}"
    if not error:
        try:
            os.environ.update(HIDE)
            ENGINES[engine][0]()
        except BaseException as raised:  # noqa: BLE001 - SystemExit too: whatever an unknown version may do
            error = "{} {} cannot be tried here: {}".format(engine, told["version"], _words(raised))
    if error:
        return [{**told, "error": error, "unsupported": True, "seconds": _since(began)} for _ in questions]
    answers = [{**told, **_try(engine, question)} for question in questions]
    return [{**told, "seconds": _since(began)} for told in answers]


def _try(engine: str, question: dict[str, Any]) -> dict[str, Any]:
    """Build and load; where that does not end well, see whether a healthy checkpoint of the class fares better."""
    said: dict[str, Any] = {"class": "", "parameters": {}, "placed": [], "refused": [], "unfilled": []}
    try:
        said = {**said, **_load(engine, question), "error": ""}
    except NoSuchClass as raised:
        return {**said, "error": str(raised), "unsupported": False}
    except Unsupported as raised:
        return {**said, "error": str(raised), "unsupported": True}
    except BaseException as raised:  # noqa: BLE001 - an engine may even exit
        said = {**said, "error": _words(raised)}
    why = _not_the_checkpoints_fault(engine, question, said) if said["error"] or said["refused"] else ""
    return {**said, "error": f"{said['error']} ({why})".strip() if why else said["error"], "unsupported": bool(why)}


def _not_the_checkpoints_fault(engine: str, question: dict[str, Any], said: dict[str, Any]) -> str:
    """Why what was raised or refused says nothing of the checkpoint; "" where it does."""
    if re.search(r"CUDA|\bGPU", said["error"]):
        return "without a GPU this cannot be tried"
    if question["config"].get("quantization_config") or question["config"].get("compression_config"):
        return "quantised: without a GPU this cannot be tried"
    if question["config"].get("auto_map"):
        return "its config brings code along, which is not run here"
    if question["architecture"] not in HEALTHY:
        return "no healthy checkpoint of that class is known here to compare with"
    control = healthy(question["architecture"])
    try:
        done = _load(engine, control)
    except BaseException as raised:  # noqa: BLE001
        return f"a healthy one ends in the same way: {_words(raised)}"
    placed = {entry[0] for entry in done["placed"]}
    lost = [name for name in control["tensors"] if name not in placed]
    return f"a healthy one does not load here either: {lost}" if lost or done["refused"] else ""


def _load(engine: str, question: dict[str, Any]) -> dict[str, Any]:
    _, build, load, default_loader, borrowed_by = ENGINES[engine]
    config = {**question["config"], "architectures": [question["architecture"]]}
    model = build({**question, "config": config})
    recorder = Recorder(model, default_loader())
    load(recorder, question)
    borrowed = borrowed_by(model, question["config"])
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": {name: list(parameter.shape) for name, parameter in recorder.parameters.items()},
        "placed": recorder.placed,
        "refused": recorder.refused,
        "unfilled": [name for name in recorder.unfilled() if name not in borrowed],
    }


def _words(raised: BaseException) -> str:
    """What it says, and where it says nothing, where it was raised."""
    told = re.sub(r"\S*deploy-loadcheck-\w+(/draft)?", "the draft", str(raised))[:2000]
    told = re.sub(PYDANTIC, "", told)
    trace = raised.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not told and trace is not None:
        told = f"at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(raised).__name__}: {told}"


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


if __name__ == "__main__":
    main()
