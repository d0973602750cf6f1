"""The flags that the fake server takes, and what it says of them to whoever asks its interpreter."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import argparse
import json
from pathlib import Path


class ServerArgs:
    """Which flags it takes, for whoever asks its interpreter: those that it knows, and some of SGLang's others."""

    @staticmethod
    def add_cli_args(parser):
        known(parser)
        for name in ("pp-size", "dp-size", "ep-size", "nnodes", "node-rank", "context-length", "max-running-requests"):
            parser.add_argument(f"--{name}", type=int)
        for name in ("dist-init-addr", "attention-backend", "log-level", "speculative-algorithm", "nccl-port"):
            parser.add_argument(f"--{name}")
        for name in ("num-steps", "eagle-topk"):
            parser.add_argument(f"--speculative-{name}", type=int)
        for name in ("disable-custom-all-reduce", "trust-remote-code"):
            parser.add_argument(f"--{name}", action="store_true")


def parse(words):
    """The flags it knows; all others are ignored, as are `-m sglang.launch_server` and positional words."""
    return known(argparse.ArgumentParser(allow_abbrev=False)).parse_known_args(words)[0]


def known(parser):
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name", "--alias")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--speculative-draft-model-path", "--speculative-draft-model")
    parser.add_argument("--speculative-num-draft-tokens", type=int, default=4)
    parser.add_argument("--tp-size", "--tensor-parallel-size", "--tp", type=int, default=1)
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--api-key")
    parser.add_argument("--admin-api-key")
    parser.add_argument("--config")
    parser.add_argument("--fake", action="append", default=[])
    return parser


def configured(options):
    """With the keys of its --config file, which is `name: "JSON string"` a line."""
    pairs = (line.partition(":") for line in Path(options.config).read_text().splitlines()) if options.config else ()
    for name, _, value in pairs:
        if name.strip() in ("api-key", "admin-api-key"):
            setattr(options, name.strip().replace("-", "_"), json.loads(value))
    return options
