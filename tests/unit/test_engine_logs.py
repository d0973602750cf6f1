"""What the engines' logs are read as. The files are real logs of SGLang 0.5.23, vLLM 0.32.0 and
llama.cpp, with paths replaced; vLLM's without its list of routes, and with its longest lines cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.engines import _llamacpp_log, _log, _sglang_log, _vllm_log
from deploy.engines._log import Progress

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
ENGINES = {"sglang": _sglang_log, "llamacpp": _llamacpp_log, "vllm": _vllm_log}


def read(name: str) -> str:
    with (LOGS / f"{name}.log").open(encoding="utf-8", newline="") as file:  # keeps the progress bars' returns
        return file.read()


def engine(name: str):
    return ENGINES[name.partition("-")[0]]


def sglang(message: str, ranks: str = "") -> str:
    return f"[2026-11-29 20:31:30{ranks}] {message}"


# ---- progress


LINES = [
    (sglang("server_args={'model_path': '/srv/m'}"), Progress("starting", text="arguments accepted")),
    (
        sglang("Init torch distributed begin.", " TP3"),
        Progress("rendezvous", "", "TP3", text="joining the other ranks"),
    ),
    (sglang("Init parallel begin."), Progress("rendezvous", text="joining the other ranks")),
    (sglang("sglang is using nccl==2.27.7", " TP0"), Progress("rendezvous", "", "TP0", text="NCCL 2.27.7")),
    (sglang("Init torch distributed ends. mem usage=0.84 GB"), Progress("rendezvous", text="all ranks joined")),
    (
        sglang("Init parallel ends. elapsed=12.03 s", " DP1 TP0"),
        Progress("rendezvous", "", "DP1 TP0", text="all ranks joined"),
    ),
    (sglang("Gated launch waiting for activation. rank=0"), Progress("gate", text="waiting for activation")),
    (
        sglang("Load weight begin. avail mem=93.46 GB", " TP7"),
        Progress("weights", "", "TP7", text="loading, 93.46 GB free"),
    ),
    (
        "Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:25,  2.44s/it]",
        Progress("weights", done=29, total=64, text="29 of 64 shards"),
    ),
    (
        "Multi-thread loading shards:   0% Completed | 0/64\rMulti-thread loading shards:  12% Completed | 8/64\n",
        Progress("weights", done=8, total=64, text="8 of 64 shards"),
    ),
    (
        sglang(
            "Load weight end. type=KimiK25ForConditionalGeneration, dtype=torch.bfloat16, "
            "avail mem=20.46 GB, mem usage=73.00 GB."
        ),
        Progress("weights", "target", text="KimiK25ForConditionalGeneration loaded, 73.00 GB"),
    ),
    (
        sglang("Load weight end. elapsed=1.31 s, type=LlamaForCausalLMEagle3, avail mem=18.1 GB, mem usage=2.36 GB."),
        Progress("weights", "draft", text="LlamaForCausalLMEagle3 loaded, 2.36 GB"),
    ),
    (
        sglang("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 281984, K size: 4.72 GB, V size: 4.72 GB"),
        Progress("kv cache", text="room for 281984 tokens"),
    ),
    (sglang("Memory pool end. avail mem=8.42 GB"), Progress("kv cache", text="8.42 GB free")),
    (
        sglang("Capture cuda graph begin. This can take up to several minutes. avail mem=8.32 GB"),
        Progress("graphs", "target", text="capturing graphs"),
    ),
    (
        sglang("Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=4"),
        Progress("graphs", "target", text="capturing target verify graphs"),
    ),
    (
        sglang("Capture draft extend cuda graph begin. This can take up to several minutes."),
        Progress("graphs", "draft", text="capturing draft extend graphs"),
    ),
    (
        "Capturing batches (bs=40 avail_mem=7.31 GB):  43%|####3     | 10/23 [00:12<00:15,  1.17s/it]",
        Progress("graphs", done=10, total=23, text="10 of 23 batch sizes"),
    ),
    (
        sglang("Capture draft decode CUDA graph end. elapsed=9.21 s, mem usage=0.25 GB."),
        Progress("graphs", "draft", text="draft decode graphs captured in 9.21 s"),
    ),
    (
        sglang(
            "max_total_num_tokens=281984, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=48, context_len=262144, available_gpu_mem=7.01 GB"
        ),
        Progress("scheduler", text="281984 tokens, at most 48 requests"),
    ),
    (
        sglang("INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)"),
        Progress("http", text="listening on http://127.0.0.1:8000"),
    ),
    (sglang("The server is fired up and ready to roll!"), Progress("ready", text="ready")),
    (sglang("Cannot detect CUDA architecture."), None),
    ("", None),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_of_sglang_tells_how_far_it_is(line, expected):
    assert _sglang_log.progress(line) == expected


LLAMA_LINES = [
    (
        "0.00.005.8 I srv    load_model: loading model '/srv/m.gguf'",
        Progress("weights", "target", text="loading /srv/m.gguf"),
    ),
    (
        "0.00.1 I common_speculative_init_result: loading draft model '/srv/d.gguf'",
        Progress("weights", "draft", text="loading /srv/d.gguf"),
    ),
    (
        "0.12.1 I load_tensors: offloaded 33/33 layers to GPU",
        Progress("weights", done=33, total=33, text="33 of 33 layers on the GPU"),
    ),
    ("0.00.2 I srv          init: model loaded", Progress("http", text="model loaded")),
    ("listening on http://127.0.0.1:8080", Progress("ready", text="listening on http://127.0.0.1:8080")),
    ("0.00.2 I slot      release: id  0 | task 13 | stop processing", None),
]


@pytest.mark.parametrize(("line", "expected"), LLAMA_LINES)
def test_a_line_of_llama_cpp_tells_how_far_it_is(line, expected):
    assert _llamacpp_log.progress(line) == expected


def vllm(message: str, process: str = "Worker") -> str:
    return f"({process} pid=15) INFO 11-30 08:37:29 [some_file.py:68] {message}"


# those that a CPU does not show are as 0.32.0's source writes them
VLLM_LINES = [
    (vllm("non-default args: {'model_tag': '/srv/m'}", "APIServer"), Progress("starting", text="arguments accepted")),
    (vllm("Resolved architecture: LlamaForCausalLMEagle3"), Progress("config", text="LlamaForCausalLMEagle3")),
    (
        vllm("Initializing a V1 LLM engine (v0.32.0) with config: model='/srv/m'"),
        Progress("engine", text="vLLM 0.32.0"),
    ),
    (
        vllm("world_size=8 rank=3 local_rank=3 distributed_init_method=tcp://192.0.2.1:1 backend=nccl", "Worker_TP3"),
        Progress("rendezvous", "", "TP3", text="rank 3 of 8"),
    ),
    (vllm("vLLM is using nccl==2.27.7", "Worker_PP1_TP0"), Progress("rendezvous", "", "PP1 TP0", text="NCCL 2.27.7")),
    (vllm("Starting to load model /srv/m..."), Progress("weights", "target", text="loading /srv/m")),
    (vllm("Loading drafter model..."), Progress("weights", "draft", text="loading the draft")),
    (
        "Loading pt checkpoint shards:  0% Completed | 0/64\rLoading pt checkpoint shards:  45% Completed | 29/64",
        Progress("weights", done=29, total=64, text="29 of 64 shards"),
    ),
    (vllm("Loading weights took 12.31 seconds"), Progress("weights", text="loaded in 12.31 s")),
    (vllm("Model loading took 72.61 GiB memory and 81.200000 seconds"), Progress("weights", text="loaded, 72.61 GiB")),
    (vllm("Available KV cache memory: 9.13 GiB"), Progress("kv cache", text="9.13 GiB free")),
    (vllm("GPU KV cache size: 299,520 tokens, Maximum"), Progress("kv cache", text="room for 299,520 tokens")),
    (vllm("Capturing model for speculator..."), Progress("graphs", "draft", text="capturing the draft's graphs")),
    (
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  43%|####3     | 10/23 [00:12<00:15,  1.17s/it]",
        Progress("graphs", done=10, total=23, text="10 of 23 batch sizes"),
    ),
    (vllm("Graph capturing finished in 20 secs, took 0.25 GiB"), Progress("graphs", text="graphs captured in 20 s")),
    (
        vllm("init engine (profile, create kv cache, warmup model) took 2.88 s", "EngineCore"),
        Progress("scheduler", text="engine set up in 2.88 s"),
    ),
    (
        vllm("Starting vLLM server on http://127.0.0.1:8000", "APIServer"),
        Progress("http", text="listening on http://127.0.0.1:8000"),
    ),
    ("INFO:     Application startup complete.", Progress("ready", text="ready")),
    (vllm("Route: /health, Methods: GET", "APIServer"), None),
    ("", None),
]


@pytest.mark.parametrize(("line", "expected"), VLLM_LINES)
def test_a_line_of_vllm_tells_how_far_it_is(line, expected):
    assert _vllm_log.progress(line) == expected


PHASES = [
    (
        "vllm-0.32.0-good",
        ["starting", "config", "engine", "rendezvous", "weights", "kv cache", "scheduler", "http", "ready"],
    ),
    ("sglang-0.5.23-good", ["starting", "rendezvous", "weights", "kv cache", "scheduler", "http", "warm-up", "ready"]),
    ("llamacpp-good", ["starting", "weights", "slots", "http", "ready"]),
    ("llamacpp-good-verbose", ["starting", "weights", "warm-up", "weights", "slots", "http", "ready"]),
]


@pytest.mark.parametrize(("name", "expected"), PHASES)
def test_a_healthy_start_goes_through_its_phases_in_order(name, expected):
    steps = [step for line in read(name).split("\n") if (step := engine(name).progress(line))]
    phases = [step.phase for step in steps]
    until_ready = phases[: phases.index("ready") + 1]
    assert [phase for at, phase in enumerate(until_ready) if until_ready[at - 1 : at] != [phase]] == expected
    assert [step.component for step in steps if step.component] == ["target", "draft"]


# ---- failures


HEALTHY = [
    "sglang-0.5.23-good",
    "sglang-0.5.23-no-d2t",
    "llamacpp-good",
    "llamacpp-good-verbose",
    "llamacpp-random-head",
    "vllm-0.32.0-good",
    "vllm-0.32.0-no-lm-head",
]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_log_of_a_server_that_came_up_explains_nothing(name):
    assert engine(name).explain(read(name)) is None


FAILURES = [
    ("sglang-0.5.23-wrong-fc", "S35", "the draft: a tensor has another shape", "[128, 256]"),
    ("sglang-0.5.23-truncated", "weights-file", "the draft: a weights file is cut short", "incomplete metadata"),
    ("sglang-0.5.23-port-taken", "S11", "the HTTP port is taken", "address already in use"),
    ("sglang-0.5.23-no-folder", "no-folder", "folder is not there", "/srv/drafts/nothing-here"),
    ("sglang-0.5.23-bad-flag", "S50", "does not take a flag", "--no-such-flag"),
    ("sglang-0.5.23-absolute-d2t", "token-ids", "outside the vocabulary", "index out of range"),
    ("vllm-0.32.0-wrong-fc", "shape", "the draft: a tensor has another shape", "[128, 256]"),
    ("vllm-0.32.0-unknown-prefix", "names", "the draft: the checkpoint has a tensor", "named 'decoder'"),
    ("vllm-0.32.0-truncated", "weights-file", "the draft: a weights file is cut short", "incomplete metadata"),
    ("vllm-0.32.0-absolute-d2t", "token-ids", "the draft: a token id lies outside", "index 512 is out of bounds"),
    ("vllm-0.32.0-port-taken", "port", "a port is taken", "Address already in use"),
    ("vllm-0.32.0-no-folder", "no-folder", "folder is not there", "/srv/drafts/nothing-here"),
    ("vllm-0.32.0-bad-flag", "flag", "does not take a flag", "--no-such-flag"),
    ("vllm-0.32.0-bad-method", "speculative", "refuses how it is to speculate", "method Input should be 'ngram'"),
    ("vllm-0.32.0-too-long", "length", "longer than the model's own context", "max_model_len (9000)"),
    ("vllm-0.32.0-kv-big", "cache", "does not fit into the memory", "900.0 GiB"),
    ("llamacpp-truncated-draft", "cut-short", "the draft: the GGUF file is cut short", "blk.0.ffn_gate.weight"),
    ("llamacpp-truncated-model", "cut-short", "the GGUF file is cut short", "not within the file bounds"),
    ("llamacpp-port-taken", "port", "the port is taken", "couldn't bind"),
    ("llamacpp-draft-as-model", "no-context", "cannot serve on its own", "draft.gguf"),
    ("llamacpp-model-as-draft", "no-layers", "no EAGLE-3 draft", "expected 3 extract layers"),
]


@pytest.mark.parametrize(("name", "signature", "cause", "evidence"), FAILURES)
def test_a_log_of_a_server_that_died_tells_why(name, signature, cause, evidence):
    told = engine(name).explain(read(name))
    assert told is not None
    assert told.signature == signature
    assert cause in told.cause
    assert evidence in told.evidence
    assert told.remedy


def test_a_truncated_model_is_not_said_of_the_draft():
    told = _llamacpp_log.explain(read("llamacpp-truncated-model"))
    assert told is not None
    assert not told.cause.startswith("the draft")


ONE_LINE = [
    (sglang("Rank 3 scheduler died during initialization (exit code: -9).", ""), "S01"),
    (sglang("Received sigquit from a child process. It usually means the child failed."), "S04"),
    ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.", "S07"),
    ("RuntimeError: The server socket has failed to listen on any local network address. port: 20000", "S08"),
    ("ValueError: Port is already in use. dist_init_port=20000 (from --dist-init-addr)", "S10"),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.7", "S12"),
    ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.", "S15"),
    ("RuntimeError: Cannot find any model weights with `/srv/models/kimi`", "S17"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "S26"),
    ("ValueError: trtllm_mla backend requires MLA model", "S29"),
    ("KeyError: 'kimi_k2'", "S32"),
    ("AttributeError: 'LlamaConfig' object has no attribute 'draft_vocab_size'", "S33"),
    ("ValueError: EAGLE3 currently only supports 1 layer", "S36"),
    ("launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode", "S49"),
    ("ValueError: Unknown speculative algorithm name: EAGEL3", "S51"),
    ("ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found", "S54"),
]


@pytest.mark.parametrize(("line", "signature"), ONE_LINE)
def test_a_known_line_is_known(line, signature):
    told = _sglang_log.explain(f"{sglang('Load weight begin. avail mem=93.46 GB')}\n{line}\n")
    assert told is not None
    assert told.signature == signature
    assert told.evidence == line


OUT_OF_MEMORY = [
    ("Load weight begin. avail mem=93.46 GB", "S14"),
    ("Capture cuda graph begin. This can take up to several minutes. avail mem=0.32 GB", "S13"),
    ("Memory pool end. avail mem=0.42 GB", "S13"),
]


@pytest.mark.parametrize(("phase", "signature"), OUT_OF_MEMORY)
def test_the_phase_tells_what_a_full_gpu_means(phase, signature):
    told = _sglang_log.explain(
        f"{sglang(phase)}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    assert told is not None
    assert told.signature == signature


TOO_LITTLE = "(2.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB)"
TAKEN = "Free memory on device cuda:0 (3.1/95.6 GiB) on startup is less than desired GPU memory utilization (0.9)"
VLLM_ONE_LINE = [
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "cache"),
    (f"ValueError: To serve at least one request {TOO_LITTLE}", "cache"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "memory"),
    (f"ValueError: {TAKEN}", "others"),
    ("RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested", "eagle3"),
    ("importlib.metadata.PackageNotFoundError: No package metadata was found for vllm", "no-package"),
    ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", "engine"),
]


@pytest.mark.parametrize(("line", "signature"), VLLM_ONE_LINE)
def test_a_known_line_of_vllm_is_known_with_its_process_in_front(line, signature):
    told = _vllm_log.explain(f"(Worker_TP1 pid=7) ERROR 11-30 08:37:29 [core.py:1] {line}\n")
    assert told is not None
    assert (told.signature, told.evidence) == (signature, line)


def test_a_cause_beats_a_consequence_that_came_before_it():
    log = "\n".join(
        [
            sglang("SIGQUIT received. signum=None, frame=None. It usually means one child failed.", " TP0"),
            sglang("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", " TP0"),
            sglang("Rank 3 scheduler died during initialization (exit code: 1)", " TP3"),
            "ValueError: trtllm_mla backend requires MLA model",
        ]
    )
    told = _sglang_log.explain(log)
    assert told is not None
    assert told.signature == "S29"


def test_the_earliest_of_two_causes_wins():
    log = "KeyError: 'kimi_k2'\nRuntimeError: CUDA error: an illegal memory access was encountered\n"
    told = _sglang_log.explain(log)
    assert told is not None
    assert told.signature == "S32"


UNKNOWN = f"""{sglang("Scheduler hit an exception: Traceback (most recent call last):")}
  File "/srv/engine/sglang/scheduler.py", line 6362, in run_scheduler_process
    scheduler = Scheduler(server_args)
  File "/srv/engine/sglang/odd.py", line 7, in odd
    raise OddError("the moon is full")
sglang.OddError: the moon is full

{sglang("Received sigquit from a child process. It usually means the child failed.")}
Traceback (most recent call last):
  File "/srv/engine/sglang/launch_server.py", line 1, in <module>
    raise SystemExit(1)
RuntimeError: a later one
"""


def test_an_unknown_failure_is_told_by_its_first_traceback():
    told = _sglang_log.explain(UNKNOWN)
    assert told is not None
    assert told.signature == "traceback"
    assert told.cause == "sglang.OddError: the moon is full"
    assert told.evidence == 'File "/srv/engine/sglang/odd.py", line 7, in odd\nsglang.OddError: the moon is full'


def test_a_traceback_that_ends_in_a_consequence_is_that_consequence():
    last = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
    told = _sglang_log.explain(f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n{last}\n')
    assert told is not None
    assert told.signature == "S07"


def test_a_traceback_that_breaks_off_explains_nothing():
    assert _sglang_log.explain('Traceback (most recent call last):\n  File "a.py", line 1, in f\n') is None


def test_an_empty_log_explains_nothing():
    assert _sglang_log.explain("") is None
    assert _llamacpp_log.explain("") is None
    assert _vllm_log.explain("") is None


def test_a_text_that_is_no_table_is_refused():
    with pytest.raises(ValueError, match="not a row"):
        _log.table("S01  a\n    b\n")


@pytest.mark.parametrize("module", [_sglang_log, _llamacpp_log, _vllm_log])
def test_every_row_of_the_table_says_what_to_do(module):
    assert len(module.SIGNATURES) >= 10
    assert all(row.cause and row.remedy for row in module.SIGNATURES)
