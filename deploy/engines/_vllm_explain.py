"""How vLLM's log is read for failures, written against 0.32 (its V1 engine), and what its silences mean."""

from __future__ import annotations

import re

from deploy.engines import _explain, _log, _table
from deploy.engines._dialect import Dialect
from deploy.engines._library_failures import FAILURES as LIBRARIES
from deploy.engines._log import Explanation, Seen
from deploy.engines._vllm_failures import FAILURES
from deploy.engines._vllm_log import progress

# In the form of _sglang_failures.py.
SILENCES = r"""
compiling?+  torch\.compile|Warming up model for the compilation|Capturing [\w ]*CUDA graphs|Model loading took
    torch.compile or a kernel's compiler works: slow, and no hang
    -> wait, with ready.stall=1800; keep ~/.cache/vllm and ~/.triton; args.enforce-eager=true goes without
stuck?  No available shared memory broadcast block found
    the workers do not answer their engine: one of them hangs, in a collective or in a compile
    -> py-spy dump of the workers; args.disable-custom-all-reduce=true nccl.P2P_DISABLE=1 where they hang in NCCL
nccl?  vLLM is using nccl==
    NCCL hangs while the GPUs connect to each other: mostly direct access over PCIe with the IOMMU or ACS on
    -> switch IOMMU and ACS off, or nccl.P2P_DISABLE=1 args.disable-custom-all-reduce=true; nccl.DEBUG=INFO tells more
rendezvous?  Waiting for \d+ local, \d+ remote core engine|with head node address|world_size=\d+ rank=\d+
    not all ranks come to the rendezvous: a node is missing, the wrong interface is taken, or a firewall is between
    -> nccl.SOCKET_IFNAME=eth0 env.GLOO_SOCKET_IFNAME=eth0, and see that every node's server runs
weights?  Starting to load model|Loading drafter model|Completed \| \d+/\d+|Loading weights took
    weights come slowly or not at all: the disk, an NFS, or a worker that ran out of the host's memory
    -> see iostat and free on the host; ready.stall=1800 where the disk is just slow
graphs?  Capturing [\w ]*CUDA graphs|Capturing model for
    it hangs in capturing graphs, and no compiler works
    -> args.disable-custom-all-reduce=true, or args.enforce-eager=true to see whether it is that
profiling?  Model loading took|torch\.compile (?:took|takes)|KV cache
    it hangs in its first run of the model
    -> py-spy dump of the workers; args.enforce-eager=true to see whether it is a graph
start?  non-default args|Resolved architecture|Initializing a V1 LLM engine
    it has said its arguments and nothing more: its processes import, or wait for a model hub that does not answer
    -> env.HF_HUB_OFFLINE=1 where the model lies on the host; py-spy dump shows where it is
import?  ^$
    it has said nothing at all: the interpreter imports, from a slow disk perhaps
    -> see whether engine.python lies on a network file system
"""

FATAL = re.compile(
    r"Engine core initialization failed|EngineDeadError|EngineCore (?:failed to start|encountered a fatal error)"
)

DIALECT = Dialect(
    rows=_table.rows(FAILURES + LIBRARIES + SILENCES),
    progress=progress,
    own=re.compile(r"\bv(?i:llm)\b|VLLM_|\{chat,complete,serve|\((?:APIServer|EngineCore)\S* pid=\d+\)"),
    # A process names itself in front of all that it writes, tracebacks too; its logger adds level, time and place.
    head=re.compile(
        r"(?=[(DIWEC])(?:\((?P<process>[A-Z][\w-]*?)(?P<ranks>(?:_(?:DP|PP|TP|EP|DCP|PCP)\d+)*) pid=\d+\) ?)?"
        r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]]*\] ?)?"
    ),
    headed=True,
    begin=re.compile(r"non-default args: "),
    crash=re.compile(r"WorkerProc (?:hit an exception|failed to start)|EngineCore (?:failed to start|encountered)"),
    unknown="exception",
    works=re.compile(r"Engine \d+: Avg prompt throughput: \S+ tokens/s, Avg generation throughput: (?!0\.0 )"),
    chatter=re.compile(r"INFO:     \S+ - \"|Engine \d+: Avg prompt throughput"),
    draft=("/spec_decode/", "self.drafter.load_model"),
    steps=re.compile(r"world_size=\d+ rank=|Starting to load model|Model loading took|Graph capturing finished"),
)


def explain(log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why the server died, or why it is silent; None where nothing shows a failure."""
    return _explain.explain(DIALECT, log, seen)
