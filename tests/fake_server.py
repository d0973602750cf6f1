#!/usr/bin/env python3
"""A server that looks like SGLang from outside, and misbehaves on demand: a stand-in for tests.

    fake_server.py --model-path M --port P [--fake NAME=VALUE]... [any other flag: ignored]

Misbehaviour is named by the fields of `Fake` (fake_sglang/misbehaviour.py): by `--fake NAME=VALUE` (the value as JSON,
else a plain word), or in the environment as one JSON object, FAKE='{"silent_at": "graphs"}'. A name that is no field
ends it with status 2. It prints SGLang's own log lines in its order of phases (fake_sglang/server.py), opens its port
only after "loading" as SGLang does, and speaks as much of its HTTP as the tool needs (answers.py). As an engine's
`python` it also plays the interpreter: it takes `-m sglang.launch_server ...`, and with `-c CODE` runs the code with a
distribution `sglang` installed, which has flags (interpreter.py). It reads the draft that it is given, and with a
`version` from 0.5.21 on takes another one while it serves: what is loaded, and how that shows, is told by draft.py and
weights.py. It plays 0.5.20 where nothing is said. Whatever happens, it and all its children end after `lifetime`
seconds. Standard library only.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import sys


def main(words):
    """As an interpreter it is asked often and answers at once: it imports nothing of a server's."""
    if "-c" in words and set(words[: words.index("-c")]) <= {"-I", "-E", "-s", "-S", "-P", "-B", "-u"}:
        from fake_sglang import interpreter  # type: ignore[import-not-found]

        interpreter.interpret(words)
    else:
        from fake_sglang import server

        server.main(words)


if __name__ == "__main__":
    main(sys.argv[1:])
