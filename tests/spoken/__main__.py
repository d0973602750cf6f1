"""Says everything, and prints {"version": ..., "said": [{"row", "by", "case", "lines"}]}."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import re
import traceback
from importlib import metadata

from deploy.host.loadcheck import ENGINES
from tests.spoken import CASES, Say, module

for part in ("processes", "checkpoints", "gpus"):
    importlib.import_module(f"tests.spoken.{part}")


class Kept(logging.Handler):
    """What loggers were given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def said(say: Say) -> list[str]:
    """The lines of one case: its loggers', its progress bar's, and its exceptions' own, the first cause first."""
    kept = Kept()
    root = logging.getLogger()
    root.addHandler(kept)
    try:
        with contextlib.redirect_stderr(io.StringIO()) as bars:
            say()
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked
        text = "".join(traceback.format_exception(error))
        kept.lines += [line for line in text.splitlines() if re.match(r"[\w.]*(?:Error|Exception)\b", line)]
    finally:
        root.removeHandler(kept)
    return [*kept.lines, *filter(str.strip, re.split(r"[\r\n]+", bars.getvalue()))]


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    ENGINES["sglang"][0]()
    logging.getLogger("sglang").setLevel(logging.INFO)
    told = []
    for row, name, say in CASES:
        with contextlib.suppress(ModuleNotFoundError):  # this version has no such module
            told.append({"row": row, "by": module(name).__name__, "case": say.__name__, "lines": said(say)})
    print(json.dumps({"version": metadata.version("sglang"), "said": told}), file=out, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
