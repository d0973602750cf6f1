"""Loads checkpoints for real, in the interpreter of an engine: `PYTHON really_load.py ENGINE`, questions in, JSON out.

The question is that of `deploy/host/loadcheck.py`. Each tensor is made, filled with a number of its own (1, 2, ...),
and loaded by the class's own `load_weights`, nothing wrapped, into parameters that are full of NaN. What then stands
in each parameter says which tensors came there: {parameter: [numbers]}, where 0 is padding and -1 what nothing filled.
A model that raises is {"": [words]}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from deploy.host.loadcheck import ENGINES

DTYPES = {"BF16": "bfloat16", "F32": "float32", "I64": "int64", "I8": "int8", "BOOL": "bool"}


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    boot, build, *_ = ENGINES[sys.argv[1]]
    boot()
    print(json.dumps([loaded(question, build) for question in json.load(sys.stdin)]), file=out, flush=True)
    os._exit(0)


def loaded(question: dict[str, Any], build: Callable[..., Any]) -> dict[str, list[Any]]:
    torch = importlib.import_module("torch")

    try:
        model = build(question, "cpu")
        for parameter in model.parameters():
            parameter.data.fill_(float("nan") if parameter.is_floating_point() else -1)
        model.load_weights(
            (name, torch.full(shape, number, dtype=getattr(torch, DTYPES[dtype])))
            for number, (name, (dtype, shape)) in enumerate(question["tensors"].items(), 1)
        )
    except Exception as error:  # noqa: BLE001 - whatever the engine raises is what is asked
        return {"": [f"{type(error).__name__}: {error}"]}
    told = {
        name: sorted({-1 if value != value else int(value) for value in parameter.data.flatten().tolist()})
        for name, parameter in model.named_parameters()
    }
    if not hasattr(model, "hot_token_id"):  # SGLang's map, which is no parameter
        return told
    hot = model.hot_token_id
    return {**told, "hot_token_id": [] if hot is None else [int(hot.flatten()[0])]}


if __name__ == "__main__":
    main()
