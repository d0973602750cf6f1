"""What servers written in Python die of in their libraries: torch, CUDA, NCCL, transformers, the host; a table for
`_table.rows`, which SGLang and vLLM put behind their own. The form is that of _sglang_failures.py.
"""

FAILURES = r"""
native  Fatal Python error: (?P<what>Segmentation fault|Bus error|Illegal instruction|Floating point exception)
    a process crashed in native code: {what}
    -> see the stacks below the line, and `dmesg`; a bus error: df /dev/shm; another attention backend or version
native  Segfault encountered
    a process crashed in native code: a segmentation fault
    -> see the stacks below the line, and `dmesg`; another attention backend or version
aborted~  Fatal Python error: Aborted|terminate called after throwing an instance of
    a process aborted itself, mostly after a collective operation that waited in vain
    -> look at the lines above, and for the rank that lacks the next phase
compile  Ninja build failed|ninja: build stopped|Error building extension|nvcc fatal|Could not find nvcc
    a kernel could not be compiled on the host
    -> see the compiler's lines above; the CUDA toolkit must fit torch's: env.CUDA_HOME=/usr/local/cuda
compile  No such file or directory: '(?P<program>(?:[^']*/)?(?:nvcc|ninja|g\+\+|gcc|cc))'
    a kernel could not be compiled on the host: there is no {program}
    -> install it there, and env.CUDA_HOME=/usr/local/cuda
missing-file  FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<file>[^']+)'
    a file is missing: {file}
    -> see `model.path` and `draft.path`, and compare the checkpoint with its model.safetensors.index.json
architecture  Model architectures \[.*\] (?:are not supported|failed to be inspected)
    this version does not know the model's class
    -> upgrade the server, or see `architectures` in config.json
architecture  Transformers does not recognize this architecture
    the transformers in this environment do not know the model's type
    -> upgrade the server with its pinned transformers, or see model_type in config.json
remote-code  trust_remote_code(?:=True| argument)
    the model brings code of its own, which is not run without leave
    -> args.trust-remote-code=true
no-hub  LocalEntryNotFoundError|We couldn't connect to 'https://huggingface\.co'
    the model is not on the host, and the hub cannot be reached from there
    -> give a folder on the host: model.path=/srv/models/NAME
device-assert  device-side assert triggered
    an index was out of bounds on the GPU: mostly a token id outside the vocabulary, from the draft's d2t
    -> deploy ckpt check DRAFT --target MODEL; env.CUDA_LAUNCH_BLOCKING=1 shows the kernel
ranks~  Connection (?:closed by|reset by) peer|remote process exited|ncclRemoteError|communicator was aborted
    another rank is gone
    -> look at the log of the other ranks
ranks~  recvValue failed|sendBytes failed|failed to recv, got 0 bytes|BrokenPipeError
    another process is gone
    -> look at the log of the other ranks
fabric  system not yet initialized|Error 802
    CUDA waits for the NVSwitch fabric
    -> start nvidia-fabricmanager in the driver's own version on the host
driver  CUDA driver version is insufficient|[Nn]o CUDA GPUs are available|no CUDA-capable device|invalid device ordinal
    CUDA does not find the GPUs that it is to use
    -> see nvidia-smi there, `gpus` of the host, and CUDA_VISIBLE_DEVICES
broken-gpu  uncorrectable ECC error|GPU is lost|fallen off the bus|unspecified launch failure
    a GPU failed
    -> see dmesg for Xid on the host; reset it, or take it out of CUDA_VISIBLE_DEVICES
nccl  NCCL error|nccl(?:System|UnhandledCuda|Internal|InvalidUsage)Error
    the GPUs cannot talk to each other
    -> nccl.DEBUG=INFO, and see which network it took: nccl.SOCKET_IFNAME=eth0, nccl.IB_HCA=mlx5_0
disk-full  No space left on device
    a disk of the host is full
    -> see df on the host; caches lie in ~/.cache
host-memory  DefaultCPUAllocator: can't allocate memory|std::bad_alloc|^MemoryError\b|Cannot allocate memory
    the host's memory is full
    -> see free and ulimit -v on the host; fewer processes at once
files  ^OSError: \[Errno 24\]
    it may not open as many files as it needs
    -> ulimit -n 65536 for the user on the host
permission  ^PermissionError: \[Errno 13\]
    it may not read or write a file
    -> see whose the file is, and as whom the host is reached
no-module  ^ModuleNotFoundError: No module named '(?P<name>[\w.]+)'
    this interpreter lacks {name}
    -> install it there, or set engine.python or engine.environment
no-module  python[\w.]*: (?:Error while finding .* \(ModuleNotFoundError: )?No module named '?(?P<name>[\w.]+)
    this interpreter lacks {name}
    -> install it there, or set engine.python or engine.environment
oom  [Oo]ut of memory: Killed process \d+|killed by the OOM killer
    the kernel killed a process of it: the host's memory was full
    -> look at what else uses the host's memory; fewer processes at once, or a host with more of it
"""
