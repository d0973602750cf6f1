"""What NCCL makes of a variable of its environment: whether it knows the name, and reads the value as it is meant.

From NCCL's user guide ("Environment Variables", 2.32) and `src/misc/param.cc`: a number is read by `strtoll(..., 0)`,
so that `true` is 0 and `4M` is 4, without a word. Names that it does not know are ignored, without a word as well.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import StringConstraints

from deploy.config import schema
from deploy.config.nccl import Nccl

PREFIX = "NCCL_"

# Documented, or read by NCCL 2.30.7's library, and seldom a reason to be set in a profile: numbers,
NUMBERS = frozenset(
    """ALLOC_P2P_NET_LL_BUFFERS CGA_CLUSTER_SIZE CHECK_POINTERS COLLNET_NODE_THRESHOLD COMM_BLOCKING
    CONNECT_ROUND_MAX_PEERS DISABLE_MEM_MANAGER ENABLE_VERSION_CHECK GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE
    GDRCOPY_FLUSH_ENABLE GDRCOPY_SYNC_ENABLE GDR_FLUSH_DISABLE GIN_ENABLE GRAPH_DUMP_FILE_RANK
    GRAPH_HELPER_DISABLE GRAPH_MIXING_SUPPORT GRAPH_REGISTER GRAPH_STREAM_ORDERING IB_AR_THRESHOLD
    IB_DATA_DIRECT IB_DEVICE_PCI_ORDER IB_ECE_ENABLE IB_EVENT_BASED_LB IB_FIFO_TC IB_MERGE_VFS IB_OOO_RQ
    IB_PKEY_VALUE IB_RETURN_ASYNC_EVENTS IB_ROUTABLE_FLID_GID_INDEX IB_USE_INLINE IB_WARN_RAIL_LOCAL
    IGNORE_COLLNET_MISMATCH IGNORE_NET_MISMATCH IPC_USE_ABSTRACT_SOCKET L1_SHARED_MEMORY_CARVEOUT
    LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER LL128_BUFFSIZE LL128_C2C LL128_NTHREADS
    LL_BUFFSIZE LOCAL_REGISTER LSA_TEAM_SIZE MAX_NRINGS MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_NRINGS
    MIN_P2P_NCHANNELS MNNVL_CLIQUE_ID MNNVL_CROSS_CLIQUE MNNVL_UUID MULTI_RANK_GPU_ENABLE NCHANNELS_PER_NET_PEER
    NET_DISABLE_INTRA NET_FORCE_FLUSH NET_GDR_C2C NET_OVERHEAD NET_SHARED_BUFFERS NET_SHARED_COMMS NVB_DISABLE
    NVB_PRECONNECT NVLS_CHUNKSIZE NVLS_NCHANNELS NVTX_DISABLE OOB_NET_ENABLE P2P_EPOCH_ENABLE P2P_LL_THRESHOLD
    P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_PXN_LEVEL P2P_READ_ENABLE P2P_USE_CUDA_MEMCPY
    P2P_VALIDATE PAT_ENABLE PROGRESS_APPENDOP_FREQ PXN_C2C REPORT_CONNECT_PROGRESS RMA_DISABLE RMA_EAGER_INIT
    SET_CPU_STACK_SIZE SET_STACK_SIZE SET_THREAD_NAME SHM_LOCALITY SINGLE_PROC_MEM_REG_ENABLE SOCKET_MAGIC
    SOCKET_POLL_TIMEOUT_MSEC SOCKET_RCVBUF SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_SNDBUF SYM_CTAS
    SYM_GIN_KERNELS_ENABLE TOPO_DUMP_FILE_RANK UID_STAGGER_RATE UID_STAGGER_THRESHOLD UNPACK_DOUBLE_NCHANNELS
    WIN_ENABLE WIN_STRIDE WORK_ARGS_BYTES WORK_FIFO_BYTES""".split()
)
# and words of any kind.
WORDS = frozenset(
    """CHECK_MODE COMM_ID CTA_POLICY DEBUG_LEVELS DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS ENV_PLUGIN GIN_PLUGIN
    GIN_TYPE GRAPH_DUMP_FILE IBVERBS_LIB IB_RAIL_POLICY LAUNCH_MODE NETDEVS_POLICY NET_MERGE_LEVEL
    NET_MERGE_POLICY NO_CACHE OOB_NET_IFNAME PROFILER_PLUGIN PROXY_CPUSET PSK RAS_ADDR RAS_TIMEOUT_FACTOR
    RMA_PLUGIN SYM_KERNEL THREAD_THRESHOLDS TUNER_CONFIG_FILE""".split()
)
# Gone, by the user guide, and what is said instead; the last three are PyTorch's, which renamed them in 2.2.
GONE: Mapping[str, str] = {
    "IB_CUDA_SUPPORT": "NCCL_NET_GDR_LEVEL",
    "IB_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
    "SINGLE_RING_THRESHOLD": "",
    "LL_THRESHOLD": "NCCL_PROTO",
    "TREE_THRESHOLD": "NCCL_ALGO",
    "CHECKS_DISABLE": "NCCL_CHECK_MODE",
    "ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
}
# Of the libraries beside it, as PyTorch 2.14 reads them.
BESIDE = frozenset(
    """GLOO_DEVICE_TRANSPORT GLOO_DISABLE_CONNECTION_RETRIES GLOO_LOG_LEVEL GLOO_SOCKET_IFNAME
    TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_BCAST_UNIQUEID
    TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_COORD_CHECK_MILSEC TORCH_NCCL_CUDA_EVENT_CACHE
    TORCH_NCCL_DEBUG_INFO_PIPE_FILE TORCH_NCCL_DEBUG_INFO_TEMP_FILE TORCH_NCCL_DESYNC_DEBUG
    TORCH_NCCL_DUMP_ON_TIMEOUT TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_ENABLE_TIMING
    TORCH_NCCL_EXTRA_DUMP_ON_EXEC TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_HIGH_PRIORITY
    TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN TORCH_NCCL_NAN_CHECK TORCH_NCCL_PROPAGATE_ERROR
    TORCH_NCCL_RANKS_PER_ROOT TORCH_NCCL_RETHROW_CUDA_ERRORS TORCH_NCCL_TRACE_BUFFER_SIZE
    TORCH_NCCL_TRACE_CPP_STACK TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC
    TP_SOCKET_IFNAME""".split()
)
RANGES: Mapping[str, tuple[int, int]] = {
    "IB_TIMEOUT": (0, 31),
    "IB_RETRY_CNT": (0, 7),
    "IB_QPS_PER_CONNECTION": (1, 128),
    "SOCKET_NTHREADS": (1, 16),
    "CGA_CLUSTER_SIZE": (0, 8),
    "MIN_CTAS": (1, 64),
    "MAX_CTAS": (1, 64),
}
ALGORITHMS = ("Ring", "Tree", "CollnetChain", "CollnetDirect", "NVLS", "NVLSTree", "PAT")
CHOSEN: Mapping[str, tuple[str, ...]] = {"ALGO": ALGORITHMS, "PROTO": ("LL", "LL128", "Simple")}
FOLDS_CASE = frozenset({"DEBUG", "ALGO", "PROTO", "NET"})  # of others `phb` is not `PHB`, and is ignored
OTHERS = ("RCCL_", "HCCL_", "UCCL_", "MSCCL_", "MCCL_", "ACCL_", "OFI_NCCL_")  # libraries whose names look alike
NEAR, NEARER = 0.8, 0.85
NUMBER = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a variable; `certain` where it surely is not what was meant."""

    what: str
    remedy: str = ""
    certain: bool = False


def judge(variable: str, value: str) -> Wrong | None:
    """What is wrong with a variable of a server's environment; None for those that are right, or none of NCCL's."""
    if variable in BESIDE or variable.startswith(OTHERS):
        return None
    if not variable.startswith(PREFIX):
        near = _nearest(variable, NEARER)
        return Wrong(f"{variable} is no variable of NCCL's", f"did you mean {near}?") if near else None
    name = variable.removeprefix(PREFIX)
    if name in GONE:
        instead = GONE[name]
        return Wrong(f"{variable} is not read any more", f"set {instead} instead" if instead else "leave it out")
    if name not in NAMES:
        near = _nearest(variable, NEAR)
        remedy = f"did you mean {near}?" if near else "a plug-in may read it; if none does, leave it out"
        return Wrong(f"NCCL has no variable {variable}, and ignores it", remedy)
    return _value(name, value)


def _value(name: str, value: str) -> Wrong | None:
    if value == "":  # as if it were not set
        return None
    variable, words = f"{PREFIX}{name}", _words(name)
    if name in CHOSEN:
        return _list(name, value)
    if _is_number(name):
        return _number(name, value, words)
    said = value.upper() if name in FOLDS_CASE else value
    level = "0" in words and value.isdecimal()  # the old way to say a distance; all above 4 are SYS
    if words and said not in words and not level:
        near = next(iter(difflib.get_close_matches(value.upper(), words, n=1)), "")
        meant = f"did you mean {near}?" if near else f"one of {', '.join(words)}"
        return Wrong(f"{variable}={value} is no value that NCCL knows, and is ignored", meant)
    return None


def _number(name: str, value: str, words: list[str]) -> Wrong | None:
    variable, taken = f"{PREFIX}{name}", reads(value)
    if not re.fullmatch(NUMBER.pattern + r"\s*", value):
        what = f"{variable}={value} is read as {taken}: NCCL takes a number here"
        return Wrong(what, _as_number(variable, value), certain=True)
    low, high = RANGES.get(name, (taken, taken))
    if not low <= taken <= high:
        return Wrong(f"{variable}={value} is out of its range", f"{low} to {high}")
    if words and str(taken) not in words:
        return Wrong(f"{variable}={value} is none of its values", f"one of {', '.join(words)}")
    return None


def _as_number(variable: str, value: str) -> str:
    """What a word was probably meant to be."""
    switch = {"1": ("true", "yes", "on", "enable", "enabled"), "0": ("false", "no", "off", "disable", "disabled")}
    meant = next((number for number, words in switch.items() if value.strip().lower() in words), "")
    size = re.fullmatch(r"\s*(\d+)\s*([KMG])i?B?\s*", value, re.IGNORECASE)
    if size:
        meant = str(int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2].upper()])
    return f"set {variable}={meant}" if meant else "set a number"


def _list(name: str, value: str) -> Wrong | None:
    """[^]word,word;function:[^]word: a word that NCCL does not know ends its start, from 2.24 on."""
    known = {word.lower(): word for word in CHOSEN[name]}
    for part in value.split(";"):
        for word in filter(None, map(str.strip, part.rpartition(":")[2].removeprefix("^").split(","))):
            if word.lower() not in known:
                near = schema.nearest(word, list(known.values()))
                meant = f"did you mean {near}?" if near else f"known: {', '.join(known.values())}"
                return Wrong(f"{PREFIX}{name}={value}: NCCL has no {word!r}, and will not start", meant, True)
    return None


def reads(value: str) -> int:
    """The number that NCCL reads in a text: strtoll with base 0, which stops at the first other character."""
    found = NUMBER.match(value)
    if not found:
        return 0
    text = found[0].strip()
    digits = text.lstrip("+-").lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    return int(text, base)


def _annotation(name: str) -> Any:
    field = Nccl.model_fields.get(name)
    return None if field is None else field.rebuild_annotation()


def _words(name: str) -> list[str]:
    """The values that can be listed."""
    return schema.choices(_annotation(name)) if name in Nccl.model_fields else []


def _is_number(name: str) -> bool:
    if name in NUMBERS:
        return True
    words = _words(name)
    return all(word.isdecimal() for word in words) if words else _patterned(_annotation(name))


def _patterned(annotation: Any) -> bool:
    """Whether only digits may stand there."""
    if get_origin(annotation) is Annotated:
        limits = [one for one in get_args(annotation)[1:] if isinstance(one, StringConstraints)]
        return any(one.pattern in (schema.COUNT, schema.INDEX) for one in limits)
    return any(_patterned(one) for one in get_args(annotation))


NAMES = frozenset(Nccl.model_fields) | NUMBERS | WORDS


def _nearest(variable: str, cutoff: float) -> str:
    known = sorted(f"{PREFIX}{name}" for name in NAMES) + sorted(BESIDE)
    return next(iter(difflib.get_close_matches(variable.upper(), known, n=1, cutoff=cutoff)), "")
