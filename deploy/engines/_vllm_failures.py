"""vLLM's known failures, as a table for `_table.rows`; from logs of 0.32.0 that were made, and from its source.

NAME  regular expression of the line        NAME~: a consequence of a failure elsewhere; any cause beats it
    what it means
    -> what to do

Lines that stand in healthy logs as well are not here: no row may match a server that came up.
"""

FAILURES = r"""
killed  [Ww]orker\S* (?:proc )?\S* ?died unexpectedly \(exit code: -9\)
    a worker was killed; without a word of its own, mostly by the kernel for want of host memory
    -> see `dmesg` for the OOM killer; the host's memory must hold what all workers load at once
engine~  Engine core initialization failed|EngineCore (?:failed to start|encountered an issue|encountered a fatal error)
    the engine's process died; the API server follows it
    -> look at the log of its processes; killed without a word is the kernel's: see `dmesg`
worker~  WorkerProc (?:initialization failed|failed to start)|WorkerProc \S* ?died unexpectedly|Worker failed with error
    a worker's process failed
    -> look at the log of the other ranks; exit code -9 is the kernel's OOM killer
port  \[Errno 98\]|[Aa]ddress already in use|EADDRINUSE
    a port is taken
    -> end what holds it, or another one: port=30001
shape  Tried to load weights of size|Attempted to load weight \(|[Ss]ize mismatch .*(?:param|weight)
    a tensor has another shape than the model expects: checkpoint and model do not belong together
    -> compare hidden_size, draft_vocab_size and the number of auxiliary layers with the target's
names  There is no module or parameter named '\S*'
    the checkpoint has a tensor that the model has no place for
    -> rename it (a draft's layer is midlayer.* or layers.0.*), or take a checkpoint of this architecture
weights-file  SafetensorError\b
    a weights file is cut short or is no safetensors file
    -> copy the checkpoint again and compare its digest
random  Following weights were not initialized from checkpoint
    the checkpoint lacks tensors that the model needs
    -> copy it again, and compare it with its model.safetensors.index.json
no-weights  Cannot find any model weights with
    the model's folder has no weights that vLLM can read
    -> compare the folder with its model.safetensors.index.json
no-folder  Repo id must be in the form
    the model's or the draft's folder is not there: vLLM then takes the path for the name of a model hub's repository
    -> see `model.path` and `draft.path`
length  greater than the derived max_model_len
    max-model-len is longer than the model's own context
    -> args.max-model-len=8192, or env.VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 where the model can do it
speculative  validation errors? for SpeculativeConfig
    vLLM refuses how it is to speculate
    -> see `speculative`, and speculative-config.* in `args`
config  validation errors? for \w+Config
    vLLM refuses a setting
    -> compare `args` with `vllm serve --help=all` of this version
flag  error: (?:unrecognized arguments|ambiguous option|argument )
    this version does not take a flag of the profile
    -> compare `args` with `vllm serve --help=all` of this version; `nodes` above 1 needs one that knows --nnodes
cache  No available memory for the cache blocks|larger than the available KV cache
    weights and draft leave too little room for the KV cache
    -> see that the GPUs were empty; then args.max-model-len=65536, parallel.tp=8, or args.gpu-memory-utilization=0.95
cache  is less than requested memory for kv
    the KV cache that is asked for does not fit into the memory
    -> args.kv-cache-memory-bytes=8G (on a CPU: env.VLLM_CPU_KVCACHE_SPACE=4)
others  Free memory on device \S* ?\(.*is less than desired GPU memory utilization
    something else holds memory of the GPU
    -> see nvidia-smi for other processes; or args.gpu-memory-utilization=0.8
memory  CUDA out of memory|torch\.OutOfMemoryError|not enough GPU memory|CUBLAS_STATUS_ALLOC_FAILED
    the GPU is full
    -> see nvidia-smi for other processes; args.gpu-memory-utilization=0.85, args.max-num-seqs=64, or parallel.tp=8
eagle3  does not support EAGLE3
    this version cannot run EAGLE-3 with this target
    -> upgrade vLLM
kernel  no kernel image is available
    the installed build has no code for this GPU
    -> install the wheels for this CUDA version and GPU
no-package  No package metadata was found for vllm
    this interpreter has no vLLM
    -> install vllm there, or set engine.python or engine.environment
no-module  No module named 'vllm'
    this interpreter has no vLLM
    -> install vllm there, or set engine.python or engine.environment
token-ids  IndexError: index \d+ is out of bounds for dimension
    a token id lies outside the vocabulary: the draft's d2t may hold token ids, not distances
    -> deploy ckpt fix DRAFT subtracts 0, 1, 2, ... from d2t
"""
