"""SGLang's known failures, 0.5.8 to 0.5.23, as a table for `_log.table`; the names are those of troubleshooting.md.

NAME  regular expression of the line        NAME~: a consequence of a failure elsewhere; any cause beats it
    what it means                           NAME@phase: only while the server was in that phase
    -> what to do

Lines that stand in healthy logs as well are not here: no row may match a server that came up.
"""

FAILURES = r"""
S01~  Rank \d+ scheduler died during initialization \(exit code: -?\d+\)
    a scheduler process died while it loaded
    -> exit code -9 with no traceback is the kernel's: see `dmesg` for the OOM killer
S02~  Rank \d+ scheduler is dead
    a scheduler process died while it loaded
    -> see `dmesg` for the OOM killer
S04~  Received sigquit from a child process|SIGQUIT received\.
    a process of the server failed
    -> look at the log of the other ranks
S07~  Timed out after \d+ seconds waiting for clients\. \d+/\d+ clients joined
    not all ranks came to the rendezvous
    -> see whether every node's server runs, and whether nodes and ranks are what the plan says
S08  The server socket has failed to listen|EADDRINUSE
    the rendezvous port is taken, often by a server that was left behind
    -> end what holds the port, or choose another dist-init-addr
S09~  Watchdog caught collective operation timeout
    a collective operation waited in vain: one rank is stuck, slow or gone
    -> find the rank that lacks the next phase; raise dist-timeout where disks are slow
S10  Port is already in use\. dist_init_port=|\w+ is used by a process already
    a port that SGLang needs is taken
    -> end what holds it, or choose another nccl-port or dist-init-addr
S10  \w+ at \d+ is not available in \d+ seconds
    a port that SGLang needs is taken
    -> end what holds it, or choose another nccl-port or dist-init-addr
S11  \[Errno 98\].*address already in use
    the HTTP port is taken; SGLang finds out when all is loaded, and then hangs without an end (seen in 0.5.23)
    -> end what holds the port, or choose another `port`
S12  Not enough memory\. Please try to increase --mem-fraction-static
    weights and draft leave no room for the KV cache
    -> see that the GPUs were empty; then raise mem-fraction-static, use more GPUs, or a shorter context-length
S14@weights  CUDA out of memory|torch\.OutOfMemoryError
    the GPU is full while weights load: the model is too big, or something else holds memory
    -> see nvidia-smi for other processes; more tensor parallelism, or a quantised model
S13  CUDA out of memory|torch\.OutOfMemoryError
    the GPU is full after the weights were loaded: graph capture or the first requests found no memory
    -> lower mem-fraction-static, or cuda-graph-max-bs-decode (cuda-graph-max-bs before 0.5.14)
S15  The memory capacity is unbalanced
    another process holds memory on some of the GPUs
    -> free the GPUs
S16  TP rank \d+ could finish the model loading, but there are other ranks
    a rank did not finish loading within 480 s
    -> look at that rank: host memory, a slow disk or NFS
S17  Cannot find any model weights with
    the model's folder has no weights that SGLang can read
    -> compare the folder with its model.safetensors.index.json
S18  Capture cuda graph failed:
    CUDA graphs could not be captured
    -> the exception above is the cause; try a lower mem-fraction-static or smaller batch sizes
S22  'CustomAllReduceV2' object has no attribute 'obj'
    a known fault of SGLang 0.5.11 in the custom all-reduce
    -> upgrade, or set disable-custom-all-reduce
S23  custom_all_reduce.*invalid argument
    the custom all-reduce may not share memory between these GPUs
    -> set disable-custom-all-reduce; give CUDA_VISIBLE_DEVICES as numbers
S26  no kernel image is available
    the installed build has no code for this GPU
    -> install the wheels for this CUDA version and GPU
S27  Unsupported architecture|trtllm_batched_gemm.*sm100
    a kernel for another Blackwell GPU was chosen
    -> set attention-backend to triton or flashinfer, moe-runner-backend to flashinfer_cutlass
S28  is not supported for the current GPU\. Minimum capability
    this GPU cannot run the model's quantisation
    -> use a checkpoint with another quantisation
S29  trtllm_mla backend requires MLA model
    the draft took over the target's MLA attention backend and has no MLA
    -> set speculative-draft-attention-backend to flashinfer or triton
S30  is greater than the derived context_length
    the draft's max_position_embeddings is shorter than the target's context
    -> set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, or raise max_position_embeddings in the draft's config.json
S31  Unrecognized model in .*model_type
    the draft's config.json has no model_type: it is in the Speculators format
    -> convert the draft to SGLang's format
S32  KeyError: 'kimi_k2'
    this version does not know the model type kimi_k2 (it came with 0.5.12)
    -> upgrade SGLang, or write deepseek_v3 as the model_type
S33  has no attribute 'draft_vocab_size'
    the draft's config.json has no draft_vocab_size
    -> add it: a number, or null for the target's own vocabulary
S34  unsupported operand type\(s\) for \*: 'NoneType' and 'int'
    the draft's config.json says target_hidden_size null
    -> remove that key
S35  Attempted to load weight \(.*\) into parameter \(
    a tensor has another shape than the model expects: checkpoint and model do not belong together
    -> compare hidden_size, draft_vocab_size and the number of auxiliary layers with the target's
S36  EAGLE3 currently only supports 1 layer
    this version takes drafts of one layer only (more came with 0.5.12)
    -> upgrade SGLang
S37  does not implement set_eagle3_layers_to_capture|does not support EAGLE3
    this version cannot run EAGLE-3 with this target
    -> upgrade SGLang (Kimi-K2.5 needs 0.5.10)
S37  has no attribute 'set_eagle3_layers_to_capture'
    this version cannot run EAGLE-3 with this target
    -> upgrade SGLang (Kimi-K2.5 needs 0.5.10)
S42  watchdog timeout \(self\.watchdog_timeout=
    a forward step took longer than the watchdog allows
    -> see the stacks below the line; raise watchdog-timeout where the first request compiles kernels
S43~  Health check failed\. Server couldn't get a response from detokenizer
    the scheduler hangs or is starved
    -> look at the scheduler's stack with py-spy
S44~  Initialization failed\. warmup error:
    the server's own first request failed
    -> set NO_PROXY=127.0.0.1 where a proxy is set; SGLANG_WARMUP_TIMEOUT where kernels compile for long
S45~  Subprocess \S+ \(pid=\d+\) crashed with exit code
    a process of the server died after the start
    -> exit code -9 with no traceback is the kernel's: see `dmesg` for the OOM killer
S47  illegal memory access
    a GPU kernel read or wrote outside its memory
    -> try another attention or MoE backend; CUDA_LAUNCH_BLOCKING=1 shows the kernel
S48  /dev/shm/nccl-.*(?:No space left|failed)|unable to (?:open|mmap).*shm
    /dev/shm is too small
    -> give the container --shm-size 32g or --ipc host
S49  ambiguous option: --cuda-graph-(?:max-)?bs
    this flag was split in 0.5.14
    -> write cuda-graph-max-bs-decode or cuda-graph-bs-decode
S50  error: (?:unrecognized arguments|ambiguous option|argument )
    this version does not take a flag of the profile
    -> compare `args` with `python -m sglang.launch_server --help` of this version
S51  Unknown speculative algorithm name
    there is no such speculative algorithm
    -> EAGLE3 is the one for EAGLE-3 drafts
S52  Pipeline parallelism (?:currently only supports EAGLE|is not compatible with overlap schedule)
    SGLang has no EAGLE-3 with pipeline parallelism
    -> set parallel.pp to 1 and use tensor parallelism
S53  is installed with version .*, which is less than the minimum required version
    packages of different SGLang versions are mixed in this environment
    -> install the pinned set again
S53  with minimum required version .* is not installed
    packages of different SGLang versions are mixed in this environment
    -> install the pinned set again
S54  GLIBC_2\.3\d' not found|is not a supported wheel on this platform
    the host's C library is older than the wheels need (2.34 from 0.5.11 on)
    -> use a container, or SGLang 0.5.10
weights-file  SafetensorError\b
    a weights file is cut short or is no safetensors file
    -> copy the checkpoint again and compare its digest
no-folder  HFValidationError: Repo id must be
    the model's or the draft's folder is not there: SGLang then takes the path for the name of a model hub's repository
    -> see `model.path` and `draft.path`
token-ids  IndexError: index out of range in self
    a token id lies outside the vocabulary: the draft's d2t may hold token ids, not distances
    -> subtract 0, 1, 2, ... from d2t
"""
