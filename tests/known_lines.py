"""What each row of the engines' tables was written for: a line as the engine, or a library of it, prints it.

`log`: its logger writes it, the rank in front. `error`: the last line of a rank's exception. `plain`: a process without
a rank writes it. `last`: then nothing more is heard; `compiling`: the same while compilers work. `@phase`: while
the weights load; elsewhere, after the KV cache.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    signature: str
    form: str
    line: str


def _table(text: str) -> list[Known]:
    return [Known(*(part.strip() for part in line.split(" :: ", 2))) for line in text.strip().splitlines()]


SGLANG = _table(r"""
S01 :: plain :: RuntimeError: Rank 2 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.
S01 :: plain :: RuntimeError: Rank 2 scheduler died during initialization (exit code: -11). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.
S01~ :: plain :: RuntimeError: Rank 2 scheduler died during initialization (exit code: 1). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.
S02~ :: log :: Rank 0 scheduler is dead. Please check if there are relevant logs.
S03~ :: log :: DetokenizerManager hit an exception:
S04~ :: log :: Received sigquit from a child process. It usually means the child failed.
S04~ :: log :: SIGQUIT received. signum=None, frame=None. It usually means one child failed.
S05 :: last :: sglang is using nccl==2.27.7
S06 :: last :: Init torch distributed begin.
S06 :: last :: Init parallel begin.
S07~ :: error :: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.
S08 :: error :: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 20000, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use
S09~ :: log :: [rank2]:[E1129 20:31:30.1 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
S10 :: error :: ValueError: nccl_port at 29519 is not available in 30 seconds. nccl_port is used by a process already. process.name()='python' process.cmdline()=['python', '-m', 'http.server'] process.status()='sleeping' pid=77
S10 :: log :: Port is already in use. dist_init_port=20000 port_base=20001 detokenizer_port=20002 nccl_port=29519 scheduler_input_port=20004
S10 :: error :: RuntimeError: engine_info_bootstrap_port 6789 is already in use. Choose another one.
S10! :: log :: port 29519 is in use. Waiting for 15 seconds for nccl_port to be available. nccl_port is used by a process already. process.name()='python'
S11 :: log :: ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use
S12 :: error :: RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.7
S12 :: error :: ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise --mem-fraction-static above 0.802 (minimum viable = 0.8).
S13 :: error :: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 94.97 GiB of which 1.20 GiB is free.
S14 :: error@weights :: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 2 has a total capacity of 94.97 GiB of which 12.00 MiB is free.
S15 :: error :: RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=40.0, local_gpu_memory=93.4, local_gpu_memory * 0.9=84.1
S16~ :: error@weights :: ValueError: TP rank 2 could finish the model loading, but there are other ranks that didn't finish loading. It is likely due to unexpected failures (e.g., OOM) or a slow node.
S17 :: error@weights :: RuntimeError: Cannot find any model weights with `/srv/models/kimi`
S18 :: error :: Exception: Capture cuda graph failed: Triton error
S18 :: error :: Exception: Capture prefill CUDA graph failed: an odd kernel
S18 :: error :: Exception: Capture frozen-KV MTP cuda graph failed: an odd kernel
S19 :: compiling :: Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=4
S19 :: compiling :: Capturing batches (bs=48 avail_mem=7.31 GB):   0%|          | 0/23 [00:00<?, ?it/s]
S20 :: last :: Capturing batches (bs=48 avail_mem=7.31 GB):   0%|          | 0/23 [00:00<?, ?it/s]
S20 :: last :: Capture cuda graph begin. This can take up to several minutes. avail mem=8.32 GB
S21 :: last :: Registering 1610 cuda graph addresses
S22 :: error :: AttributeError: 'CustomAllReduceV2' object has no attribute 'obj'
S23 :: error :: RuntimeError: /sgl-kernel/csrc/allreduce/custom_all_reduce.cuh:455 'invalid argument'
S23! :: log :: Setup Custom allreduce failed with invalid literal for int() with base 10: 'GPU-335dc396'. To silence this warning, specify --disable-custom-all-reduce explicitly.
S24! :: log :: Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.
S24! :: log :: Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.
S25 :: last :: Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) if you have not run `sglang.compile_deep_gemm`.
S25 :: compiling :: Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) if you have not run `sglang.compile_deep_gemm`.
S26 :: error :: torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device
S27 :: error :: RuntimeError: Error in function 'TllmGenFmhaRunner' at /flashinfer/trtllm/fmha/fmhaRunner.cuh:31: Unsupported architecture
S27 :: error :: RuntimeError: cannot find trtllm_batched_gemm_bf16_e2m1_sm100f
S28 :: error@weights :: ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 80.
S29 :: error :: ValueError: trtllm_mla backend requires MLA model
S30 :: error :: ValueError: User-specified context_length (262144) is greater than the derived context_length (4096). This may lead to incorrect model outputs or CUDA errors.
S30 :: error :: ValueError: Warning: Target model's context_length (2048) is greater than the derived context_length (1024). This may lead to incorrect model outputs or CUDA errors.
S31 :: plain :: ValueError: Unrecognized model in /srv/drafts/raw. Should have a `model_type` key in its config.json.
S32 :: plain :: KeyError: 'kimi_k2'
S33 :: error@weights :: AttributeError: 'LlamaConfig' object has no attribute 'draft_vocab_size'
S34 :: error@weights :: TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'
S35 :: error@weights :: AssertionError: Attempted to load weight (torch.Size([128, 256])) into parameter (torch.Size([128, 384]))
S36 :: error@weights :: ValueError: EAGLE3 currently only supports 1 layer
S37 :: error :: ValueError: Model KimiK25ForConditionalGeneration does not implement set_eagle3_layers_to_capture
S37 :: error :: AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute 'set_eagle3_layers_to_capture'
S37 :: error :: AttributeError: language_model does not support EAGLE3
S38! :: log :: Decode batch, #running-req: 1, #token: 300, token usage: 0.01, accept len: 1.00, accept rate: 0.00, cpu graph: False, gen throughput (token/s): 41.07, #queue-req: 0
S39! :: log :: Eagle3 MLA: skipping unexpected weight model.layers.0.self_attn.o_proj.weight
S40! :: log :: Parameter model.layers.0.self_attn.qkv_proj.bias not found in params_dict
S41 :: error@weights :: RuntimeError: Some weights are not initialized from checkpoints: {'model.layers.3.mlp.gate.weight'}
S41! :: log :: Some weights are not initialized from checkpoints: {'model.layers.3.mlp.gate.weight'}
S42 :: log :: Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
S42! :: log :: Scheduler watchdog timeout (self.watchdog_timeout=600, self.soft=True)
S43~ :: log :: Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 20:30:01. last_heartbeat time: 20:29:58
S44 :: log :: Initialization failed. warmup error: Traceback (most recent call last):
S45 :: log :: Subprocess scheduler_2 (pid=4711) crashed with exit code -9. Triggering SIGQUIT for cleanup...
S45~ :: log :: Subprocess scheduler_2 (pid=4711) crashed with exit code 1. Triggering SIGQUIT for cleanup...
S47 :: error :: torch.AcceleratorError: CUDA error: an illegal memory access was encountered
S48 :: log :: NCCL WARN Error: failed to extend /dev/shm/nccl-hNCfjA to 9637892 bytes, error: No space left on device (28)
S48 :: error :: RuntimeError: unable to open shared memory object </torch_77_12_0> in read-write mode: unable to mmap 8 bytes from file </torch_shm>
S49 :: plain :: sglang serve: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill
S50 :: plain :: sglang serve: error: unrecognized arguments: --no-such-flag 1
S51 :: plain :: ValueError: Unknown speculative algorithm name: EAGEL3
S52 :: plain :: ValueError: Pipeline parallelism currently only supports EAGLE speculative decoding
S52 :: plain :: AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding, mixed chunked prefill.
S53 :: plain :: Exception: sgl-kernel is installed with version 0.3.21, which is less than the minimum required version 0.4.9.
S53 :: plain :: Exception: flashinfer_python with minimum required version 0.7.2 is not installed.
S54 :: plain :: ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by sglang_rs.so)
S55! :: log :: KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 8123
S56! :: log :: Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting --max-running-requests.
S57! :: log :: Schedulers still alive 30s after ShutdownReq; killing them
S58! :: log :: SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast
weights-file :: error@weights :: safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered
no-folder :: plain :: huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/srv/drafts/nothing-here'. Use `repo_type` argument if needed.
no-draft :: error :: AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'
token-ids :: error :: IndexError: index out of range in self
aux-layers :: error :: RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x256 and 384x128)
backend :: error :: ValueError: EAGLE is not supported in decode attention backend torch_native
divisible :: error@weights :: AssertionError: 12 is not divisible by 8
address :: last :: Can not get local ip by remote
graphs :: last :: Capturing batches (bs=24 avail_mem=7.31 GB):  43%|####3     | 10/23 [00:12<00:15,  1.17s/it]
gate :: last :: Gated launch still waiting for activation. rank=0
weights :: last :: Load weight begin. avail mem=93.46 GB
weights :: last :: Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:25,  2.44s/it]
warm-up :: last :: INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
start :: last :: server_args={'model_path': '/srv/m', 'tp_size': 4}
""")  # noqa: E501

LIBRARIES = _table(r"""
native :: log :: Fatal Python error: Segmentation fault
native :: log :: !!!!!!! Segfault encountered !!!!!!!
aborted~ :: log :: Fatal Python error: Aborted
aborted~ :: log :: terminate called after throwing an instance of 'c10::DistBackendError'
compile :: error :: RuntimeError: Error building extension 'sgl_kernel_jit'
compile :: error :: RuntimeError: Ninja build failed. Ninja output: FAILED: cuda.cuda.o
compile :: error :: FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'
missing-file :: error :: FileNotFoundError: [Errno 2] No such file or directory: '/srv/models/kimi/model-00012-of-00064.safetensors'
architecture :: plain :: ValueError: Model architectures ['Eagle3Speculator'] are not supported for now. Supported architectures: dict_keys([])
architecture :: plain :: ValueError: The checkpoint you are trying to load has model type `kimi9` but Transformers does not recognize this architecture. This could be because of an issue with the checkpoint.
no-hub :: plain :: huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk
remote-code :: plain :: ValueError: The repository /srv/models/kimi contains custom code which must be executed to correctly load the model. Please pass the argument `trust_remote_code=True` to allow custom code to be run.
device-assert :: error :: torch.AcceleratorError: CUDA error: device-side assert triggered
ranks~ :: error :: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:39533
ranks~ :: error :: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27.7
ranks~ :: log :: [W1129 20:31:30.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=59, addr=[localhost]:39542): failed to recv, got 0 bytes
fabric :: error :: RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized
driver :: error :: RuntimeError: No CUDA GPUs are available
broken-gpu :: error :: torch.AcceleratorError: CUDA error: unspecified launch failure
nccl :: error :: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled system error, NCCL version 2.27.7
disk-full :: error :: OSError: [Errno 28] No space left on device: '/home/serve/.cache/flashinfer/0.7.2/120f/cached_ops'
host-memory :: error@weights :: RuntimeError: [enforce fail at alloc_cpu.cpp:128] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 469762048 bytes. Error code 12 (Cannot allocate memory)
host-memory :: error@weights :: MemoryError: std::bad_alloc
files :: error@weights :: OSError: [Errno 24] Too many open files: '/srv/models/kimi/model-00012-of-00064.safetensors'
permission :: error@weights :: PermissionError: [Errno 13] Permission denied: '/srv/models/kimi/config.json'
no-module :: plain :: ModuleNotFoundError: No module named 'sglang'
no-module :: plain :: /usr/bin/python3.11: No module named sglang
no-module :: plain :: /usr/bin/python: Error while finding module specification for 'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')
oom :: plain :: Nov 30 12:00:00 gpu1 kernel: Out of memory: Killed process 4711 (sglang::schedul) total-vm:9kB
oom :: plain :: sglang.service: A process of this unit has been killed by the OOM killer.
""")  # noqa: E501

VLLM = _table(r"""
killed :: log :: Worker proc VllmWorker-2 died unexpectedly (exit code: -9), shutting down executor.
engine~ :: plain :: RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
worker~ :: log :: WorkerProc failed to start.
port :: plain :: OSError: [Errno 98] Address already in use
shape :: error :: AssertionError: Tried to load weights of size torch.Size([128, 256])to a parameter of size torch.Size([128, 384])
names :: error :: ValueError: There is no module or parameter named 'decoder' in LlamaModel.
weights-file :: error :: safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered
random :: error :: ValueError: Following weights were not initialized from checkpoint: {'model.layers.0.mlp.down_proj.weight'}
no-weights :: error :: RuntimeError: Cannot find any model weights with `/srv/models/kimi`
no-folder :: plain :: OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/srv/drafts/nothing-here'.
length :: plain :: pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig Value error, User-specified max_model_len (9000) is greater than the derived max_model_len (2048).
speculative :: plain :: pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig method Input should be 'ngram'
config :: plain :: pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig block_size Input should be 1
flag :: plain :: main.py: error: unrecognized arguments: --no-such-flag
cache :: error :: ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`
cache :: error :: ValueError: To serve at least one request (2.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB)
cache :: error :: ValueError: Available memory on node 0 (9.45/12.84 GiB) on kv cache allocation is less than requested memory for kv (900.0 GiB).
others :: error :: ValueError: Free memory on device cuda:0 (3.1/95.6 GiB) on startup is less than desired GPU memory utilization (0.9)
memory :: error :: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.
eagle3 :: error :: RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested
kernel :: error :: RuntimeError: CUDA error: no kernel image is available for execution on the device
no-package :: plain :: importlib.metadata.PackageNotFoundError: No package metadata was found for vllm
no-module :: plain :: ModuleNotFoundError: No module named 'vllm'
token-ids :: error :: IndexError: index 512 is out of bounds for dimension 0 with size 512
compiling :: compiling :: Model loading took 72.61 GiB memory and 81.200000 seconds
stuck :: last :: No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).
nccl :: last :: vLLM is using nccl==2.27.7
rendezvous :: last :: world_size=4 rank=2 local_rank=2 distributed_init_method=tcp://192.0.2.1:1 backend=nccl
weights :: last :: Starting to load model /srv/m...
graphs :: last :: Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  43%|####3     | 10/23 [00:12<00:15,  1.17s/it]
profiling :: last :: Model loading took 72.61 GiB memory and 81.200000 seconds
start :: last :: Resolved architecture: LlamaForCausalLMEagle3
""")  # noqa: E501

LLAMACPP = _table(r"""
cut-short :: plain :: 0.00.007.913 E llama_model_load: error loading model: tensor 'blk.0.ffn_gate.weight' data is not within the file bounds, model is corrupted or incomplete
no-gguf :: plain :: 0.00.01 E gguf_init_from_file_impl: invalid magic characters: 'PK', expected 'GGUF'
no-file :: plain :: 0.00.01 E gguf_init_from_file: failed to open GGUF file '/srv/nothing.gguf' (No such file or directory)
architecture :: plain :: 0.00.01 E llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'kimi9'
no-layers :: plain :: 0.00.389.050 E srv    load_model: failed to initialize speculative decoding context: draft model is not eagle3 (expected 3 extract layers, got 0)
port :: plain :: 0.00.002.346 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 53831
no-memory :: plain :: 0.00.01 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory
flag :: plain :: llama_server: there is no flag --no-such-flag
folder :: plain :: llama_server: /srv/m: a folder must hold exactly one .gguf file
no-package :: plain :: llama_server: /usr/bin/python3 cannot import xllamacpp
no-context~ :: plain :: 0.00.010.045 E cmn  common_init_: failed to create context with model '/srv/models/tiny/draft.gguf'
no-draft~ :: plain :: 0.00.802.063 E common_speculative_init_result: failed to load draft model, '/srv/drafts/truncated.gguf'
no-model~ :: plain :: 0.00.802.659 E srv          init: exiting due to model loading error
weights :: last :: 0.00.1 I load_tensors: loading model tensors, this can take a while... (mmap = true)
warm-up :: last :: 0.00.2 W common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)
""")  # noqa: E501
