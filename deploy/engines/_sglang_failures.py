"""SGLang's known failures, 0.5.8 to 0.5.23, as a table for `_table.rows`; the names are those of docs/failures.md.

NAME  regular expression of the line        NAME~: a consequence of a failure elsewhere; any cause beats it
    what it means                           NAME@phase: only while the rank was in that phase
    -> what to do                           NAME!n: no failure, worth knowing after n such lines in a row

NAME?: the last that was heard before a silence, and NAME?+: while compilers work. Those lines stand in healthy logs as
well; no row of the other kinds may match a server that came up well. A remedy's KEY=VALUE may be said as it is on the
command line of `deploy`; {name} is what the line says. Of two rows for one line the upper one is told; S18, which
quotes any other failure, stands last.
"""

FAILURES = r"""
S01  Rank (?P<rank>\d+) scheduler died during initialization \(exit code: -9\)
    the process of rank {rank} was killed while it loaded; without a word of its own, mostly by the kernel
    -> see `dmesg` for the OOM killer; the host's memory must hold what all ranks load at once
S01  Rank (?P<rank>\d+) scheduler died during initialization \(exit code: -(?P<signal>4|6|7|8|11)\)
    the process of rank {rank} died of signal {signal} in native code while it loaded
    -> look at that rank's last lines, and at `dmesg`; 7 is SIGBUS: see df /dev/shm
S01~  Rank (?P<rank>\d+) scheduler died during initialization
    the process of rank {rank} died while it loaded
    -> look at that rank's exception
S02~  Rank (?P<rank>\d+) scheduler is dead
    the process of rank {rank} died while it loaded
    -> see `dmesg` for the OOM killer
S03~  \b(?P<who>[A-Z]\w+) hit an exception
    an exception ended the process {who}; what it says is not in the log
    -> read the log behind that line: deploy logs -n 500
S04~  Received sigquit from a child process|SIGQUIT received\.
    a process of the server failed
    -> look at the log of the other ranks
S07~  Timed out after \d+ seconds waiting for clients\. (?P<came>\d+/\d+) clients joined
    not all ranks came to the rendezvous: {came}
    -> see whether every node's server runs, and whether nodes and ranks are what the plan says
S08  The server socket has failed to listen|EADDRINUSE
    the rendezvous port is taken, often by a server that was left behind
    -> end what holds the port, or args.nccl-port=29950
S09~  Watchdog caught collective operation timeout
    a collective operation waited in vain: one rank is stuck, slow or gone
    -> find the rank that lacks the next phase; where disks are slow: args.dist-timeout=3600
S10  \b(?P<port>[a-z_]{4,30}) at (?P<number>\d+) is not available in \d+ seconds
    a port that SGLang needs is taken: {port} {number}
    -> end what holds it, or another one: args.nccl-port=29950
S10  Port is already in use\. dist_init_port=|engine_info_bootstrap_port \d+ is already in use
    a port that SGLang needs is taken
    -> end what holds it, or another one: args.nccl-port=29950
S10!  port \d+ is in use\. Waiting for \d+ seconds|The port \d+ is in use, but we could not find
    it waited for a port that somebody held
    -> end what holds it before the next start
S11  \[Errno 98\].*address already in use
    the HTTP port is taken; SGLang finds out when all is loaded, and then hangs without an end (seen in 0.5.23)
    -> end what holds the port, or another one: port=30001
S12  Not enough memory\. Please try to increase --mem-fraction-static|weights leave no GPU memory for the KV cache
    weights and draft leave no room for the KV cache
    -> see that the GPUs were empty; then args.mem-fraction-static=0.92, parallel.tp=8, or args.context-length=65536
S14@weights  CUDA out of memory|torch\.OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure (?:2 )?'out of memory'
    the GPU is full while weights load: the model is too big, or something else holds memory
    -> see nvidia-smi for other processes; parallel.tp=8, or a quantised model
S13  CUDA out of memory|torch\.OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure (?:2 )?'out of memory'
    the GPU is full after the weights were loaded: graph capture or the first requests found no memory
    -> args.mem-fraction-static=0.8, or args.cuda-graph-max-bs-decode=16 (args.cuda-graph-max-bs=16 before 0.5.14)
S15  The memory capacity is unbalanced
    another process holds memory on some of the GPUs
    -> free the GPUs; where it is meant so: env.SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0
S16~  TP rank (?P<ready>\d+) could finish the model loading, but there are other ranks
    rank {ready} has loaded; another rank has not, within 480 s, or died meanwhile
    -> find the rank without "Load weight end": `dmesg` for the OOM killer, a slow disk or NFS
S17  Cannot find any model weights with
    the model's folder has no weights that SGLang can read
    -> compare the folder with its model.safetensors.index.json
S22  'CustomAllReduceV2' object has no attribute 'obj'
    a known fault of SGLang 0.5.11 in the custom all-reduce
    -> upgrade, or args.disable-custom-all-reduce=true
S23  custom_all_reduce.*invalid argument
    the custom all-reduce may not share memory between these GPUs
    -> args.disable-custom-all-reduce=true; give CUDA_VISIBLE_DEVICES as numbers
S23!  Setup Custom allreduce failed with
    the custom all-reduce could not be set up; NCCL is taken instead
    -> args.disable-custom-all-reduce=true silences it; give CUDA_VISIBLE_DEVICES as numbers
S24!  is disabled because (?:your platform lacks GPU P2P capability|it's not supported on more than two PCIe-only GPUs)
    no custom all-reduce on these GPUs: they have no direct way to each other
    -> nothing; args.disable-custom-all-reduce=true silences it
S26  no kernel image is available
    the installed build has no code for this GPU
    -> install the wheels for this CUDA version and GPU
S27  Unsupported architecture|trtllm_batched_gemm.*sm100
    a kernel for another Blackwell GPU was chosen
    -> args.attention-backend=triton, and args.moe-runner-backend=flashinfer_cutlass
S28  is not supported for the current GPU\. Minimum capability
    this GPU cannot run the model's quantisation
    -> use a checkpoint with another quantisation
S29  trtllm_mla backend requires MLA model
    the draft took over the target's MLA attention backend and has no MLA
    -> args.speculative-draft-attention-backend=flashinfer
S30  User-specified context_length \(\d+\) is greater than the derived context_length
    a longer context is asked for than the model was made for
    -> args.context-length=65536, or env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1
S30  is greater than the derived context_length
    the draft's max_position_embeddings is shorter than the target's context
    -> env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, or raise max_position_embeddings in the draft's config.json
S31  Unrecognized model in .*model_type
    the config.json has no model_type: of a draft, it is in the Speculators format
    -> convert the draft to SGLang's format: deploy ckpt fix DRAFT
S32  KeyError: 'kimi_k2'
    this version does not know the model type kimi_k2 (it came with 0.5.12)
    -> upgrade SGLang, or write deepseek_v3 as the model_type
S33  has no attribute 'draft_vocab_size'
    the draft's config.json has no draft_vocab_size
    -> add it: a number, or null for the target's own vocabulary
S34  unsupported operand type\(s\) for \*: 'NoneType' and 'int'
    the draft's config.json says target_hidden_size null
    -> remove that key: deploy ckpt fix DRAFT
S35  Attempted to load weight \((?P<file>.*)\) into parameter \((?P<model>.*)\)
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
S38!5  accept len: (?P<low>1\.0[0-5](?!\d))?
    the draft is dead: not one of its tokens is accepted, though the server answers well
    -> deploy ckpt check DRAFT --target MODEL; speculative.algorithm=EAGLE3 for an EAGLE-3 draft
S39!  Eagle3 MLA: skipping unexpected weight
    the draft's tensors have a prefix that this class does not know, and are dropped
    -> rename them without `model.`: deploy ckpt fix DRAFT
S40!  Parameter \S+ not found in params_dict
    the checkpoint has tensors that the model has no place for
    -> nothing for scales and rotary leftovers; else see whether architecture and quantisation are those of the model
S41  RuntimeError: Some weights are not initialized from checkpoints
    the checkpoint lacks tensors that the model needs
    -> copy it again, and compare it with its model.safetensors.index.json
S41!  Some weights are not initialized from checkpoints
    the checkpoint lacks tensors that the model needs: they keep random values
    -> copy it again, and compare it with its model.safetensors.index.json
S42  watchdog timeout \(self\.watchdog_timeout=(?P<seconds>[\d.]+)(?!.*self\.soft=True)
    a forward step took longer than the {seconds} s that the watchdog allows
    -> see the stacks above the line; where the first request compiles kernels: args.watchdog-timeout=1800
S42!  watchdog timeout \(self\.watchdog_timeout=.*self\.soft=True
    a step took longer than the soft watchdog allows; it only shows the stacks
    -> see the stacks above the line
S43~  Health check failed\. Server couldn't get a response from detokenizer
    the scheduler hangs or is starved
    -> look at the scheduler's stack with py-spy
S44  Initialization failed\. warmup error:
    the server's own first request failed
    -> behind a proxy: env.NO_PROXY=127.0.0.1; where kernels compile for long: env.SGLANG_WARMUP_TIMEOUT=1800
S45  Subprocess (?P<who>\S+) \(pid=\d+\) crashed with exit code -9
    the process {who} was killed while it served; without a word of its own, mostly by the kernel
    -> see `dmesg` for the OOM killer
S45~  Subprocess (?P<who>\S+) \(pid=\d+\) crashed with exit code (?P<code>-?\d+)
    the process {who} died while it served, with exit code {code}
    -> look at its last lines, and at `dmesg`
S47  illegal memory access
    a GPU kernel read or wrote outside its memory
    -> args.attention-backend=triton, or another MoE backend; env.CUDA_LAUNCH_BLOCKING=1 shows the kernel
S48  /dev/shm/nccl-.*(?:No space left|failed)|unable to (?:open|mmap).*shm
    /dev/shm is too small
    -> give the container --shm-size 32g or --ipc host; or nccl.SHM_DISABLE=1
S49  ambiguous option: --cuda-graph-(?:max-)?bs
    this flag was split in 0.5.14
    -> ~args.cuda-graph-max-bs args.cuda-graph-max-bs-decode=16, and so for cuda-graph-bs
S50  error: (?:unrecognized arguments|ambiguous option|argument )
    this version does not take a flag of the profile
    -> compare `args` with `python -m sglang.launch_server --help` of this version
S51  Unknown speculative algorithm name
    there is no such speculative algorithm
    -> speculative.algorithm=EAGLE3 is the one for EAGLE-3 drafts
S52  Pipeline parallelism (?:currently only supports EAGLE|is not compatible with overlap schedule)
    SGLang has no EAGLE-3 with pipeline parallelism
    -> parallel.pp=1, and tensor parallelism instead
S53  is installed with version .*, which is less than the minimum required version
    packages of different SGLang versions are mixed in this environment
    -> install the pinned set again
S53  with minimum required version .* is not installed
    packages of different SGLang versions are mixed in this environment
    -> install the pinned set again
S54  GLIBC_2\.3\d' not found|is not a supported wheel on this platform
    the host's C library is older than the wheels need (2.34 from 0.5.11 on)
    -> use a container, or SGLang 0.5.10
S55!  KV cache pool is full\. Retract
    the KV cache is full: requests are put back into the queue
    -> args.max-running-requests=16, or args.mem-fraction-static=0.92
S56!  Max running requests is reset to 48
    SGLang serves at most 48 requests at once where it speculates
    -> args.max-running-requests=128
S57!  Schedulers still alive \d+s after ShutdownReq
    it did not stop cleanly: GPU memory may be held for a while
    -> deploy down ends what is left
S58!  SIGTERM received on node_rank (?P<node>\d+); waiting
    the follower {node} ignores TERM until its head has stopped
    -> deploy down stops all hosts of a replica
S18  Capture [\w -]*(?i:cuda graph) failed
    CUDA graphs could not be captured
    -> args.mem-fraction-static=0.8, args.cuda-graph-max-bs-decode=16; args.disable-cuda-graph=true shows the real error
"""
