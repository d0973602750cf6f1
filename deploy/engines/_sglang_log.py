"""SGLang's log, 0.5.8 to 0.5.23: what a line tells about the start."""

from __future__ import annotations

import re

from deploy.engines import _log, _phases
from deploy.engines._log import Progress
from deploy.engines._phases import Order

PREFIX = re.compile(r"^\[(?P<at>[\d-]{10} [\d:]{8}(?:\.\d{3})?)(?P<ranks>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] ")
# Two ranks may write into one line, and a bar leaves its line open for whatever comes next.
APART = re.compile(r"[\r\n]+|(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")

_GRAPH = r"(?i:(?:cuda|cpu|npu|musa|xpu) graph)"
_BEGIN, _END = r"(?: \(step \d+\))? begin\b", r"(?: \(step \d+\))? end\..*?(?:Time elapsed: |elapsed=)(?P<s>[\d.]+) ?s"
# What a draft's own graphs are called; "single-CG draft extend" and "Frozen-KV MTP draft" since 0.5.18, "UNO tree
# draft" in 0.5.23. The rest are the target's: "", "piecewise " up to 0.5.13; "target verify ", "target prefill " since.
_DRAFTS = r"Capture (?P<what>(?:single-CG |Frozen-KV MTP |UNO tree )?draft(?: decode| extend| prefill)?)"
_TARGETS = r"Capture (?P<what>(?:target |piecewise )?(?:prefill |decode |verify |extend )?)" + _GRAPH
# Names of classes of the draft models; a standalone draft is of the target's kind, and told by coming second.
_DRAFT_CLASS = r"\w*(?:Eagle|NextN|MTP|DFlash|DSpark)\w*"
_BAR = r"\s*\d+%\|.*?\| (?P<done>\d+)/(?P<total>\d+)"

# With *: tensor parallel rank 0 alone writes it, of a draft's graphs since 0.5.12 (log_info_on_rank0).
MARKS = _log.mark_rows(
    ("starting", "", "", r"server_args=", "arguments accepted"),
    ("rendezvous", "", "begin", r"Init (?:torch distributed|parallel) begin\.", "joining the other ranks"),
    ("*rendezvous", "", "", r"sglang is using nccl==(?P<version>[\d.]+)", "NCCL {version}"),
    # "parallel" since 0.5.22; before it, the seconds came between 0.5.8 and 0.5.12
    ("rendezvous", "", "end", r"Init (?:torch distributed|parallel) ends\. (?:elapsed|mem usage)=", "all ranks joined"),
    ("rendezvous", "", "", r"NCCL/RCCL(?:/HCCL)? warmup completed in (?P<s>[\d.]+)s", "NCCL warm after {s} s"),
    ("rendezvous", "", "", r"Memory baseline taken\. mem usage=", "all ranks joined"),
    ("gate", "", "begin", r"Gated launch (?:still )?waiting for activation", "waiting for activation"),
    ("gate", "", "end", r"Gated launch activated\. elapsed=", "activated"),
    ("weights", "", "begin", r"Load weight begin\. avail mem=(?P<gb>[\d.]+) GB", "loading, {gb} GB free"),
    (
        "weights",
        "",
        "",
        r"(?:Loading|Multi-thread loading) [^:|\r\n]*:\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)",
        "{done} of {total} shards",
    ),
    (
        "weights",
        "draft",
        "end",
        rf"Load weight end\. .*?type=(?P<model>{_DRAFT_CLASS}), .*?mem usage=(?P<gb>-?[\d.]+) GB",
        "{model} loaded, {gb} GB",
    ),
    (
        "weights",
        "",
        "end",
        r"Load weight end\. .*?type=(?P<model>\w+), .*?mem usage=(?P<gb>-?[\d.]+) GB",
        "{model} loaded, {gb} GB",
    ),
    # --startup-weight-load-mode overlap, 0.5.23: graphs are captured with dummies, and only then come the weights
    ("commit", "", "end", r"Load weight end\. Committed real weights .*? in (?P<s>[\d.]+) s", "weights in after {s} s"),
    ("kv cache", "draft", "", r"draft KV cache allocated\..*?#tokens: (?P<tokens>\d+)", "room for {tokens} tokens"),
    ("kv cache", "", "", r"KV [Cc]ache (?:is )?allocated\..*?#tokens: (?P<tokens>\d+)", "room for {tokens} tokens"),
    ("kv cache", "", "end", r"Memory pool end\. avail mem=(?P<gb>-?[\d.]+) GB", "{gb} GB free"),
    ("*graphs", "draft", "begin", rf"{_DRAFTS}(?: {_GRAPH})?{_BEGIN}", "capturing {what} graphs"),
    ("*graphs", "draft", "end", rf"{_DRAFTS}(?: {_GRAPH})?{_END}", "{what} graphs captured in {s} s"),
    ("*graphs", "draft", "end", rf"{_DRAFTS}(?: {_GRAPH})? end\b", "{what} graphs captured"),
    ("graphs", "target", "begin", rf"{_TARGETS}{_BEGIN}", "capturing {what}graphs"),
    ("graphs", "target", "end", rf"{_TARGETS}{_END}", "{what}graphs captured in {s} s"),
    ("graphs", "", "", rf"Capturing batches \([^)]*\):{_BAR}", "{done} of {total} batch sizes"),
    # of the prefill: "num tokens" up to 0.5.18, "[BCG]" beside it in 0.5.12, "prefill shape" in 0.5.23
    ("graphs", "", "", rf"Capturing (?:num tokens |prefill shape )?\([^)]*\):{_BAR}", "{done} of {total} lengths"),
    ("", "", "", r"Registering (?P<n>\d+) cuda graph addresses", "registering {n} addresses for all-reduce"),
    ("", "", "", r"Entering DeepGEMM JIT Pre-Compile session", "DeepGEMM compiles, for 10 to 20 minutes mostly"),
    ("", "", "", rf"DeepGEMM warmup[^|\r\n]*:{_BAR}", "DeepGEMM compiles: {done} of {total}"),
    ("", "", "", r"Running FlashInfer autotune", "FlashInfer tunes itself"),
    (
        "*scheduler",
        "",
        "",
        r"max_total_num_tokens=(?P<tokens>\d+), .*max_running_requests=(?P<most>\d+)",
        "{tokens} tokens, at most {most} requests",
    ),
    ("scheduler", "", "end", r"Engine startup timings \(s\): ", "engine set up"),  # since 0.5.18
    ("http", "", "", r"Uvicorn running on (?P<url>\S+)", "listening on {url}"),
    ("*warm-up", "", "", r"Prefill batch(?: \[\d+\])?, #new-seq: \d+", "first requests"),
    ("ready", "", "end", r"The server is fired up and ready to roll!", "ready"),
)

# One of these is in every line that a mark is made for: who looks through a long log need not try them all.
WORDS = (
    *("server_args=", "Init torch distributed", "Init parallel", "sglang is using nccl", "warmup completed in"),
    *("Memory baseline taken", "Gated launch", "Load weight ", "% Completed |", "KV Cache is allocated"),
    *("KV cache allocated", "Memory pool end", "Capture ", "Capturing ", "Registering ", "DeepGEMM", "autotune"),
    *("max_total_num_tokens=", "Engine startup timings", "Uvicorn running on", "Prefill batch", "fired up and ready"),
)

# Since 0.5.14 the draft is loaded before the caches are sized, and all graphs come last. Up to 0.5.13 the draft is
# made when the target is whole, and repeats what the target's start has said (model_runner.py, eagle_worker.py).
ORDERS = _phases.orders(
    (
        "0",
        "starting, rendezvous, target weights, target kv cache, target graphs",
        "draft weights, draft kv cache, draft graphs, scheduler, http, warm-up, ready",
    ),
    (
        "0.5.14",
        "starting, rendezvous, gate, target weights, draft weights, target kv cache, draft kv cache",
        "target graphs, draft graphs, commit, scheduler, http, warm-up, ready",
    ),
)


def order(version: str | None) -> Order:
    """The phases of a version's start; the newest one's where it is not known."""
    return _phases.order(ORDERS, version)


def marks(line: str) -> list[Progress]:
    """What a line of the log tells about how far the server is: each rank's mark that is in it, in order."""
    return [step for part in APART.split(_log.ANSI.sub("", line)) if part and (step := _step(part))]


def _step(part: str) -> Progress | None:
    prefix = PREFIX.match(part)
    if not prefix:
        return _log.marked(MARKS, part)
    return _log.marked(MARKS, part, prefix["ranks"].strip(), _log.clock(prefix["at"]), apart="PP")


def progress(line: str) -> Progress | None:
    """The last of its `marks`; None where it says nothing."""
    return next(reversed(marks(line)), None) if any(word in line for word in WORDS) else None
