"""The same of vLLM, whose other logs were recorded by hand."""

from __future__ import annotations

import signal

from tests.launches import READY, Launch, signalled

LAUNCHES = {
    "killed-core": Launch(
        "vllm", told="killed", acts=((READY["vllm"], signalled("VLLM::EngineCore", signal.SIGKILL)),)
    ),
    "killed-worker": Launch(
        "vllm", told="killed", acts=(("Starting to load model", signalled("VLLM::Worker", signal.SIGKILL)),)
    ),
}
