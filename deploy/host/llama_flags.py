"""Which of llama.cpp's parameters a flag sets, where its server is `xllamacpp`'s: a part of programs, no program."""

# Sent to hosts as part of a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

from typing import Any

FLAGS = {  # llama-server's spellings -> the attribute, as a path from CommonParams
    "--alias -a": "model_alias",
    "--api-key": "api_keys",
    "--batch-size -b": "n_batch",
    "--ctx-size -c": "n_ctx",
    "--draft-max --draft --draft-n --spec-draft-n-max": "speculative.draft.n_max",
    "--draft-min --draft-n-min --spec-draft-n-min": "speculative.draft.n_min",
    "--draft-p-min --spec-draft-p-min": "speculative.draft.p_min",
    "--embeddings --embedding": "embedding",
    "--gpu-layers --n-gpu-layers -ngl": "n_gpu_layers",
    "--gpu-layers-draft --n-gpu-layers-draft -ngld": "speculative.draft.n_gpu_layers",
    "--host": "hostnames",
    "--jinja": "use_jinja",
    "--log-verbosity --verbosity -lv": "verbosity",
    "--metrics": "endpoint_metrics",
    "--model -m": "model.path",
    "--model-draft --spec-draft-model -md": "speculative.draft.mparams.path",
    "--parallel -np": "n_parallel",
    "--port": "port",
    "--predict --n-predict -n": "n_predict",
    "--props": "endpoint_props",
    "--seed -s": "sampling.seed",
    "--slots": "endpoint_slots",
    "--spec-type": "speculative.types",
    "--temp --temperature": "sampling.temp",
    "--threads -t": "cpuparams.n_threads",
    "--threads-batch -tb": "cpuparams_batch.n_threads",
    "--threads-http": "n_threads_http",
    "--ubatch-size -ub": "n_ubatch",
}
KNOWN = {word: path for words, path in FLAGS.items() for word in words.split()}
KEY_FILE = "--api-key-file"
SETTABLE = (bool, int, float, str, list, set)


def attribute(params: Any, flag: str) -> tuple[Any, str] | None:
    """The object and the attribute that a flag sets, if it is one that a word can set."""
    path = KNOWN.get(flag) or (flag[2:].replace("-", "_") if flag.startswith("--") else "")
    *owners, name = path.split(".")
    for owner in owners:
        params = getattr(params, owner)
    settable = name and not name.startswith("_") and isinstance(getattr(params, name, None), SETTABLE)
    return (params, name) if settable else None
