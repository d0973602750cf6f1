"""What the fake server says before it dies."""

from __future__ import annotations

SITE = "/opt/venv/lib/python3.11/site-packages/sglang/srt"
# Last words: who says them, the exception's frames (file, line, function) and its text. Composed after the sources.
ERRORS = {
    "flag": (None, "", "launch_server.py: error: unrecognized arguments: --no-such-flag"),
    "unrecognized": (
        "main",
        f'  File "{SITE}/utils/hf_transformers/config.py", line 236, in get_config\n',
        "ValueError: Unrecognized model in /models/draft. Should have a `model_type` key in its config.json.",
    ),
    "timeout": (
        "Scheduler",
        f'  File "{SITE}/distributed/bootstrap.py", line 160, in init_distributed\n',
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    ),
    "oom": (
        "Scheduler",
        f'  File "{SITE}/model_executor/model_runner.py", line 1290, in load_model\n',
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of "
            "94.97 GiB of which 311.50 MiB is free. Process 12345 has 94.63 GiB memory in use."
        ),
    ),
    "shape": (
        "Scheduler",
        f'  File "{SITE}/model_loader/weight_utils.py", line 1405, in default_weight_loader\n',
        "AssertionError: Attempted to load weight (torch.Size([128, 256])) into parameter (torch.Size([128, 384]))",
    ),
    "memory": (
        "Scheduler",
        f'  File "{SITE}/model_executor/pool_configurator.py", line 96, in profile_max_num_token\n',
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: self.server_args.mem_fraction_static=0.8"
        ),
    ),
    "capture": (
        "Scheduler",
        f'  File "{SITE}/model_executor/runner/decode_cuda_graph_runner.py", line 602, in __init__\n',
        (
            "Exception: Capture cuda graph failed: CUDA error: no kernel image is available for execution\n"
            "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"
        ),
    ),
    "killed": (
        "main",
        f'  File "{SITE}/entrypoints/engine.py", line 2042, in _wait_for_scheduler_ready\n',
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), "
            "a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
        ),
    ),
    "warmup": (
        "Initialization failed. warmup error",
        f'  File "{SITE}/entrypoints/http_server.py", line 2501, in _execute_server_warmup\n',
        "AssertionError: Internal Server Error",
    ),
    "illegal": (
        "Scheduler",
        f'  File "{SITE}/managers/scheduler.py", line 6369, in run_scheduler_process\n',
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ),
}
FITTING = {
    "args": "unrecognized", "rendezvous": "timeout", "weights": "oom", "draft": "shape", "kv": "memory",
    "graphs": "capture", "draft_graphs": "capture", "summary": "killed", "http": "killed", "warmup": "warmup",
}  # fmt: skip
