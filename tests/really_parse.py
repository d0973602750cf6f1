"""What an engine's own parser says of command lines: `PYTHON really_parse.py ENGINE`, lines as JSON on stdin.

Runs in the engine's interpreter, with this repository on PYTHONPATH. On the last line of stdout stand the options as
`deploy.host.flags` tells them, and for each line what the parser says before it exits, or "".
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from deploy.host import flags
from deploy.host.installed import HIDE


def parsers(engine: str) -> Callable[[], Any]:
    """A new parser, as the engine makes it."""
    if engine == "sglang":
        return _sglang
    names = [("FlexibleArgumentParser", flags.VLLM_PARSERS), ("make_arg_parser", flags.VLLM_FLAGS)]
    kind, add = (flags.first(name, places) for name, places in names)
    return lambda: add(kind(prog="vllm serve"))


def _sglang() -> Any:
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


def refused(parser: Any, line: list[str]) -> str:
    """The parser's last words."""
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        try:
            parser.parse_args(line)
        except SystemExit:
            return said.getvalue().strip().rpartition("\n")[2] or "it exits"
        except Exception as error:  # noqa: BLE001 - a converter's own: the server dies of it
            return repr(error)
    return ""


if __name__ == "__main__":
    os.environ.update(HIDE)
    answer_to = os.dup(1)
    os.dup2(2, 1)
    told = flags.answer(sys.argv[1], {"engine": sys.argv[1], "version": ""})
    make = parsers(sys.argv[1])
    said = [refused(make(), line) for line in json.load(sys.stdin)]
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        out.write("\n" + json.dumps({"flags": told, "refused": said}))
    sys.stderr.flush()
    os._exit(0)
