"""What a line of an engine's log tells of the server's start, as the sources of SGLang 0.5.8 to 0.5.23, vLLM 0.32.0
and llama.cpp write it."""

from __future__ import annotations

import pytest

from deploy.engines import _llamacpp_log, _sglang_log, _vllm_log
from deploy.engines._log import Progress

ENGINES = {"sglang": _sglang_log, "llamacpp": _llamacpp_log, "vllm": _vllm_log}


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
    (sglang("sglang is using nccl==2.27.7", " TP0"), Progress("rendezvous", text="NCCL 2.27.7")),
    (sglang("Init torch distributed ends. mem usage=0.84 GB"), Progress("rendezvous", text="all ranks joined")),
    (
        sglang("Init torch distributed ends. elapsed=3.20 s, mem usage=0.84 GB"),  # as in 0.5.12 and 0.5.18
        Progress("rendezvous", text="all ranks joined"),
    ),
    (
        sglang("NCCL/RCCL warmup completed in 0.412s (tp_size=8, pp_size=1, ep_size=1)"),
        Progress("rendezvous", text="NCCL warm after 0.412 s"),
    ),
    (sglang("Memory baseline taken. mem usage=0.84 GB"), Progress("rendezvous", text="all ranks joined")),
    (
        sglang("Init parallel ends. elapsed=12.03 s", " DP1 TP0"),
        Progress("rendezvous", "", "DP1 TP0", text="all ranks joined"),
    ),
    (sglang("Gated launch waiting for activation. rank=0"), Progress("gate", text="waiting for activation")),
    (sglang("Gated launch activated. elapsed=62.10 s"), Progress("gate", text="activated")),
    (
        sglang("Load weight begin. avail mem=93.46 GB", " TP7"),
        Progress("weights", "", "TP7", text="loading, 93.46 GB free"),
    ),
    (
        "Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:25,  2.44s/it]",
        Progress("weights", done=29, total=64, text="29 of 64 shards"),
    ),
    (
        "Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:1Loading pt: 46% Completed | 30/64 [01:12]",
        Progress("weights", done=30, total=64, text="30 of 64 shards"),
    ),
    (
        f"\x1b[32m{sglang('Load weight begin. avail mem=93.46 GB', ' TP7')}\x1b[0m",
        Progress("weights", "", "TP7", text="loading, 93.46 GB free"),
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
        Progress("weights", text="KimiK25ForConditionalGeneration loaded, 73.00 GB"),
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
        sglang("KV Cache is allocated. #tokens: 20000, KV size: 1.01 GB"),  # MLA, as in 0.5.8
        Progress("kv cache", text="room for 20000 tokens"),
    ),
    (
        sglang("Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 20000, KV size: 1.0 GB"),
        Progress("kv cache", text="room for 20000 tokens"),
    ),
    (
        sglang(
            "Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 20000, KV size: 1 GB"
        ),
        Progress("kv cache", "draft", text="room for 20000 tokens"),
    ),
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
        "\x1b[36mCapturing batches (bs=8 avail_mem=7.31 GB):  82%|####3     | 19/23 [00:12<00:15,  1.17s/it]\x1b[0m",
        Progress("graphs", done=19, total=23, text="19 of 23 batch sizes"),
    ),
    (
        "Capturing num tokens (num_tokens=4096 avail_mem=7.31 GB):   4%|4         | 2/50 [00:12<00:15,  1.17s/it]",
        Progress("graphs", done=2, total=50, text="2 of 50 lengths"),
    ),
    (
        "[BCG] Capturing (num_tokens=4096 avail_mem=7.31 GB):   4%|4         | 2/50 [00:12<00:15,  1.17s/it]",
        Progress("graphs", done=2, total=50, text="2 of 50 lengths"),
    ),
    (
        "Capturing prefill shape (num_tokens=4096 avail_mem=7.31 GB):   4%|4   | 2/50 [00:12<00:15,  1.17s/it]",
        Progress("graphs", done=2, total=50, text="2 of 50 lengths"),
    ),
    (
        sglang("Capture piecewise CUDA graph begin. avail mem=8.32 GB"),
        Progress("graphs", "target", text="capturing piecewise graphs"),
    ),
    (
        sglang("Capture cuda graph end. Time elapsed: 31.20 s. mem usage=1.20 GB. avail mem=7.12 GB."),
        Progress("graphs", "target", text="graphs captured in 31.20 s"),
    ),
    (
        sglang("Capture draft extend cuda graph begin (step 1). This can take up to several minutes."),
        Progress("graphs", "draft", text="capturing draft extend graphs"),
    ),
    (
        sglang("Capture single-CG draft extend begin. This can take several minutes. avail mem=8.32 GB"),
        Progress("graphs", "draft", text="capturing single-CG draft extend graphs"),
    ),
    (
        sglang("Capture Frozen-KV MTP draft cuda graph end."),
        Progress("graphs", "draft", text="Frozen-KV MTP draft graphs captured"),
    ),
    (
        sglang("Capture UNO tree draft CUDA graph begin. backend=full"),
        Progress("graphs", "draft", text="capturing UNO tree draft graphs"),
    ),
    (sglang("Registering 1320 cuda graph addresses"), Progress("", text="registering 1320 addresses for all-reduce")),
    (
        sglang("Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)"),
        Progress("", text="DeepGEMM compiles, for 10 to 20 minutes mostly"),
    ),
    (
        sglang("Running FlashInfer autotune with cache: /srv/cache/autotune.json"),
        Progress("", text="FlashInfer tunes itself"),
    ),
    (
        sglang(
            "Load weight end. Committed real weights after CUDA graph capture in 41.20 s "
            "(capture overlap window 60.00 s, startup overlap total 130.00 s)"
        ),
        Progress("commit", text="weights in after 41.20 s"),
    ),
    (
        sglang("Engine startup timings (s): load_weight=0.05, scheduler_e2e=2.20"),
        Progress("scheduler", text="engine set up"),
    ),
    (
        sglang("Prefill batch [1], #new-seq: 1, #new-token: 10, #cached-token: 0, token usage: 0.00"),
        Progress("warm-up", text="first requests"),
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
    (
        sglang("INFO:     Uvicorn running on \x1b[1mhttp://127.0.0.1:8000\x1b[0m (Press CTRL+C to quit)"),
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
    ("0.00.003.646 I srv          init: initializing ...", Progress("starting", text="starting")),
    (
        "0.00.015.017 I load_tensors: loading model tensors, this can take a while...",
        Progress("weights", text="loading tensors"),
    ),
    ("0.00.020.105 I cmn  common_init_: warming up the model with an empty run", Progress("warm-up", text="first run")),
    (
        "0.00.027.908 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 2048",
        Progress("slots", text="4 slots"),
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
    (vllm("Waiting for 1 local, 0 remote core engine proc(s)"), Progress("engine", text="waiting for its engine")),
    (
        vllm("Launching headless multiproc executor, with head node address 192.0.2.1:29501"),
        Progress("rendezvous", text="joining 192.0.2.1:29501"),
    ),
    (vllm("torch.compile took 31.20 s in total"), Progress("compile", text="compiled in 31.20 s")),
    (vllm("Warming up model for the compilation..."), Progress("compile", text="compiling")),
    (vllm("JIT kernel warmup starting."), Progress("", text="kernels are compiled")),
    (vllm("vLLM is using nccl==2.27.7", "Worker_PP1_TP0"), Progress("rendezvous", text="NCCL 2.27.7")),
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


@pytest.mark.parametrize("name", ENGINES)
def test_every_mark_has_a_word_by_which_its_line_is_found_in_a_long_log(name):
    lines = {"sglang": LINES, "llamacpp": LLAMA_LINES, "vllm": VLLM_LINES}[name]
    marks = [line for line, expected in lines if expected]
    assert [line for line in marks if not any(word in line for word in ENGINES[name].WORDS)] == []
    unused = [word for word in ENGINES[name].WORDS if not any(word in line for line in marks)]
    assert unused == []
