"""How SGLang's log is read for failures, 0.5.8 to 0.5.23: what its silences mean, and what it says of models."""

from __future__ import annotations

import re

from deploy.engines import _explain, _log, _table
from deploy.engines._dialect import Dialect
from deploy.engines._library_failures import FAILURES as LIBRARIES
from deploy.engines._log import Explanation, Seen
from deploy.engines._sglang_failures import FAILURES
from deploy.engines._sglang_log import progress

# In the form of _sglang_failures.py. The phase marks are those of 0.5.8 to 0.5.23: "torch distributed" up to 0.5.20.
SILENCES = r"""
S25?  Entering DeepGEMM JIT Pre-Compile session
    DeepGEMM compiles its kernels in advance, minutes to tens of minutes, though no compiler is to be seen
    -> wait; precompile once and keep SGLANG_CACHE_DIR, or env.SGLANG_JIT_DEEPGEMM_PRECOMPILE=0
S25?+  Entering DeepGEMM JIT Pre-Compile session|DeepGEMM (?:JIT|warmup)
    DeepGEMM compiles its kernels in advance, minutes to tens of minutes
    -> wait; precompile once and keep SGLANG_CACHE_DIR, or env.SGLANG_JIT_DEEPGEMM_PRECOMPILE=0
S19?+  (?i:cuda graph) begin|Capturing batches
    kernels are compiled for the graphs (678 s were seen): slow, and no hang
    -> wait, with ready.stall=1800; keep ~/.cache/flashinfer and ~/.triton, or install a flashinfer-jit-cache wheel
S21?  Registering \d+ cuda graph addresses
    the custom all-reduce hangs: the GPUs cannot share memory
    -> args.disable-custom-all-reduce=true
address?  Can not get local ip by remote
    it does not find its own address, and waits for itself for ever
    -> env.SGLANG_HOST_IP=10.0.0.1, the host's own; several hosts: in the inventory, `env` of each host
S20?  (?i:cuda graph) begin|Capturing batches .* 0/\d+
    it hangs at the first graph and no compiler works: a lock that a killed build left behind, or GPUs that cannot talk
    -> remove ~/.cache/flashinfer on the host; else args.disable-custom-all-reduce=true nccl.P2P_DISABLE=1
graphs?  Capturing batches
    it hangs in the midst of capturing graphs
    -> args.disable-custom-all-reduce=true, or args.disable-cuda-graph=true to see whether it is that
S05?  sglang is using nccl==
    NCCL hangs while the GPUs connect to each other: mostly direct access over PCIe with the IOMMU or ACS on
    -> switch IOMMU and ACS off, or nccl.P2P_DISABLE=1 args.disable-custom-all-reduce=true; nccl.DEBUG=INFO tells more
S06?  Init (?:torch distributed|parallel) begin\.
    not all ranks come to the rendezvous: a node is missing, the wrong interface is taken, or a firewall is between
    -> nccl.SOCKET_IFNAME=eth0 env.GLOO_SOCKET_IFNAME=eth0, and see that every node's server runs
gate?  Gated launch (?:still )?waiting for activation
    it waits to be let in
    -> POST /gate/activate on the head's gated-launch-port
weights?  Load weight begin\.|Completed \| \d+/\d+|Load weight end\.
    weights come slowly or not at all: the disk, an NFS, or a rank that ran out of the host's memory
    -> see iostat and free on the host, and the rank that is behind; ready.stall=1800 where the disk is just slow
warm-up?  Uvicorn running on|Prefill batch
    its own first request is not answered
    -> py-spy dump of the schedulers; behind a proxy: env.NO_PROXY=127.0.0.1
start?  server_args=
    it has said its arguments and nothing more: its processes import, or wait for a model hub that does not answer
    -> env.HF_HUB_OFFLINE=1 where the model lies on the host; py-spy dump shows where it is
import?  ^$
    it has said nothing at all: the interpreter imports, from a slow disk perhaps
    -> see whether engine.python lies on a network file system
"""

# What its libraries say, of models and drafts.
OTHERS = r"""
weights-file  SafetensorError\b
    a weights file is cut short or is no safetensors file
    -> copy the checkpoint again and compare its digest
no-folder  (?:HFValidationError|OSError): Repo id must be|Incorrect path_or_model_id
    the model's or the draft's folder is not there: SGLang then takes the path for the name of a model hub's repository
    -> see `model.path` and `draft.path`
no-draft  has no attribute 'hot_token_id'
    EAGLE3 has no draft of its own: none is given, or the one that is given is no EAGLE-3 draft
    -> draft=/srv/drafts/NAME; deploy ckpt check DRAFT says what it is
token-ids  IndexError: index out of range in self
    a token id lies outside the vocabulary: the draft's d2t may hold token ids, not distances
    -> deploy ckpt fix DRAFT subtracts 0, 1, 2, ... from d2t
aux-layers  mat1 and mat2 shapes cannot be multiplied
    the draft gets hidden states of another width than its fc takes: too few or too many auxiliary layers
    -> deploy ckpt check DRAFT --target MODEL; see eagle_aux_hidden_state_layer_ids
backend  (?:EAGLE|Speculative decoding) is not supported in (?:decode|prefill) attention backend
    the attention backend cannot verify drafts
    -> args.attention-backend=flashinfer, or args.speculative-draft-attention-backend=flashinfer
divisible  AssertionError: \d+ is not divisible by (?P<by>\d+)
    heads or experts cannot be shared out evenly to {by} GPUs
    -> another size: parallel.tp=4
"""

FATAL = re.compile(
    r"Received sigquit from a child process|SIGQUIT received\.|hit an exception: Traceback|\[Errno 98\]"
    r"|Initialization failed\. warmup error|Rank \d+ scheduler (?:died|is dead)"
)

DIALECT = Dialect(
    rows=_table.rows(FAILURES + OTHERS + LIBRARIES + SILENCES),
    progress=progress,
    own=re.compile(r"\bsglang\b|server_args=|launch_server\.py|fired up and ready to roll"),
    head=re.compile(
        r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)"
        r"(?P<ranks>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] "
    ),
    begin=re.compile(r"server_args=(?!.*\bnode_rank=[1-9])"),  # the ranks of a replica may share a log
    crash=re.compile(r"\b[A-Z]\w+ hit an exception"),
    unknown="S03",
    works=re.compile(r"(?:Pre|De)\w+ batch"),
    chatter=re.compile(r"(?:Pre|De)\w+ batch|INFO:     \S+ - \""),
    draft=("draft_worker",),
    steps=re.compile(
        r"Init (?:torch distributed|parallel) (?:begin|ends)|Load weight (?:begin|end)\.|Memory pool end\."
        r"|Capture [\w ]*(?i:cuda graph) (?:begin|end)"
    ),
)


def explain(log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why the server died, or why it is silent; None where nothing shows a failure."""
    return _explain.explain(DIALECT, log, seen)
