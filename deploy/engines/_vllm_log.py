"""vLLM's log, written against 0.32 (its V1 engine): what a line tells about the start."""

from __future__ import annotations

import re

from deploy.engines import _log, _phases
from deploy.engines._log import Progress
from deploy.engines._phases import Order

# A process names itself in front of what it logs: API server, engine core, worker. Tracebacks are logged like that too.
PREFIX = re.compile(r"^\((?P<process>[\w-]+?)(?P<ranks>(?:_(?:DP|PP|TP|EP|DCP|PCP)\d+)*) pid=\d+\) ")

STAMP = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) ")
APART = re.compile(r"[\r\n]+|(?=\([\w-]+ pid=\d+\) )")  # two processes may write into one line

# With *: the first worker of an engine alone writes it (logger.info_once), each engine of data parallel for itself.
MARKS = _log.mark_rows(
    ("starting", "", "", r"non-default args: ", "arguments accepted"),
    ("config", "", "", r"Resolved architecture: (?P<model>\w+)", "{model}"),
    ("engine", "", "", r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\)", "vLLM {version}"),
    ("engine", "", "", r"Waiting for \d+ local, \d+ remote core engine", "waiting for its engine"),
    ("rendezvous", "", "", r"headless multiproc executor, with head node address (?P<head>\S+)", "joining {head}"),
    (
        "rendezvous",
        "",
        "",
        r"world_size=(?P<total>\d+) rank=(?P<rank>\d+) local_rank=",
        "rank {rank} of {total}",
    ),
    ("*rendezvous", "", "", r"vLLM is using nccl==(?P<version>[\d.]+)", "NCCL {version}"),
    ("*weights", "target", "begin", r"Starting to load model (?P<path>.+?)\.\.\.$", "loading {path}"),
    ("*weights", "draft", "begin", r"Loading drafter model\.\.\.", "loading the draft"),
    (
        "*weights",
        "",
        "",
        r"(?:Loading|Multi-thread loading) [^:|\r\n]*:\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)",
        "{done} of {total} shards",
    ),
    ("*weights", "", "end", r"Model loading took (?P<gib>[\d.]+) GiB", "loaded, {gib} GiB"),
    ("*weights", "", "", r"Loading weights took (?P<s>[\d.]+) seconds", "loaded in {s} s"),
    ("*compile", "", "", r"torch\.compile (?:took|takes) (?P<s>[\d.]+) s", "compiled in {s} s"),
    ("*compile", "", "", r"Warming up model for the compilation", "compiling"),
    ("*kv cache", "", "", r"Available KV cache memory: (?P<gib>-?[\d.]+) GiB", "{gib} GiB free"),
    ("kv cache", "", "", r"KV cache size: (?P<tokens>[\d,]+) tokens", "room for {tokens} tokens"),
    ("", "", "", r"JIT kernel warmup starting", "kernels are compiled"),
    ("*graphs", "draft", "begin", r"Capturing model for .*speculator", "capturing the draft's graphs"),
    (
        "*graphs",
        "",
        "",
        r"Capturing [\w -]*CUDA graphs[^|\r\n]*:\s*\d+%\|.*?\| (?P<done>\d+)/(?P<total>\d+)",
        "{done} of {total} batch sizes",
    ),
    ("*graphs", "", "", r"Graph capturing finished in (?P<s>[\d.]+) secs", "graphs captured in {s} s"),
    ("scheduler", "", "", r"init engine \(.*?\) took (?P<s>[\d.]+) s", "engine set up in {s} s"),
    ("http", "", "", r"Starting vLLM (?:API )?server(?: \d+)? on (?P<url>\S+)", "listening on {url}"),
    ("ready", "", "end", r"Application startup complete\.", "ready"),
)

# One of these is in every line that a mark is made for.
WORDS = (
    *("non-default args: ", "Resolved architecture: ", "Initializing a V1 LLM", "Waiting for ", "multiproc executor"),
    *("world_size=", "vLLM is using nccl", "Starting to load model", "Loading drafter", "% Completed |"),
    *("Model loading took", "Loading weights took", "torch.compile", "Warming up model for", "KV cache memory: "),
    *("KV cache size: ", "JIT kernel warmup", "Capturing ", "Graph capturing", "init engine (", "Starting vLLM "),
    "Application startup complete",
)

ORDERS = _phases.orders(
    (
        "0",
        "starting, config, engine, rendezvous, target weights, draft weights, compile, kv cache",
        "target graphs, draft graphs, scheduler, http, ready",
    ),
)


def order(version: str | None) -> Order:
    """The phases of its start."""
    return _phases.order(ORDERS, version)


def marks(line: str) -> list[Progress]:
    """What a line of the log tells about how far the server is: of each process that wrote into it."""
    return [step for part in APART.split(_log.ANSI.sub("", line)) if part and (step := _step(part))]


def _step(part: str) -> Progress | None:
    stamp = STAMP.search(part)
    return _log.marked(MARKS, part, _rank(part), _log.clock(stamp[1]) if stamp else None, apart="DP")


def progress(line: str) -> Progress | None:
    """The last of its `marks`; None where it says nothing."""
    return next(reversed(marks(line)), None) if any(word in line for word in WORDS) else None


def _rank(line: str) -> str:
    prefix = PREFIX.match(line)
    return prefix["ranks"].strip("_").replace("_", " ") if prefix else ""
