#!/usr/bin/env python3
"""The fake server as SGLang 0.5.23, whose draft can be exchanged while it serves; also as an interpreter."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_server  # type: ignore[import-not-found]

if __name__ == "__main__":
    # asked as an interpreter it does not get the profile's environment
    os.environ["FAKE"] = json.dumps({"version": "0.5.23", **json.loads(os.environ.get("FAKE") or "{}")})
    fake_server.main(sys.argv[1:])
