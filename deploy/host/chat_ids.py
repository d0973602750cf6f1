"""The tokens of chats under a model's own chat template, as the engine's own tokenizer makes them.

Runs in the ENGINE's interpreter (`PYTHON -c SOURCE ENGINE fingerprint|answer`, by `ask_engine`), without a GPU, a
network or a server. On stdin: {"model": its folder, "trust": whether its own code may run, "chats": [[{"role",
"content"}, ...], ...]}; on the last line of stdout: {"engine", "version": of transformers, "ids": [[...], ...] or null
where the model has no chat template, "error": "", "unsupported": false}.
"""

# Runs in the engine's own interpreter, which may be any: standard library, Python 3.8 or newer, and the engine.

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import metadata
from typing import Any

from deploy.host.installed import HIDE


def ids_of(asked: dict[str, Any]) -> list[list[int]] | None:
    found = importlib.import_module("transformers").AutoTokenizer
    tokenizer = found.from_pretrained(os.path.expanduser(asked["model"]), trust_remote_code=asked["trust"])
    if not getattr(tokenizer, "chat_template", None):
        return None
    return [
        list(tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False))
        for chat in asked["chats"]
    ]


def main(engine: str, what: str) -> None:
    os.environ.update(HIDE)
    told: dict[str, Any] = {"engine": engine, "version": "", "error": "", "unsupported": False}
    try:
        told["version"] = metadata.version("transformers")
        if what == "answer":
            told["ids"] = ids_of(json.load(sys.stdin))
    except Exception as error:  # noqa: BLE001 - whatever an installation or a model may raise is the answer
        told.update(error=f"{type(error).__name__}: {error}"[:500], unsupported=True)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
