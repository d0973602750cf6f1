"""The same of vLLM, whose other logs were recorded by hand."""

from __future__ import annotations

import signal

from tests.launches import READY, Launch, signalled

LAUNCHES = {
    # its launcher then ends with 0
    "killed-core": Launch(
        "vllm", told="engine", acts=((READY["vllm"], signalled("VLLM::EngineCore", signal.SIGKILL)),)
    ),
    # nobody says how it ended, and the stack trace that is spoken of is none
    "killed-worker": Launch(
        "vllm", told="engine", acts=(("Starting to load model", signalled("VLLM::Worker", signal.SIGKILL)),)
    ),
}
