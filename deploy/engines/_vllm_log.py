"""vLLM's log, written against 0.32 (its V1 engine): what a line tells about the start, and what killed the server."""

from __future__ import annotations

import re
from typing import cast

from deploy.engines import _log
from deploy.engines._log import Component, Explanation, Progress, Seen
from deploy.engines._vllm_failures import FAILURES

# A process names itself in front of what it logs: API server, engine core, worker. Tracebacks are logged like that too.
PREFIX = re.compile(r"^\((?P<process>[\w-]+?)(?P<ranks>(?:_(?:DP|PP|TP|EP|DCP|PCP)\d+)*) pid=\d+\) ")
HEAD = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ")

MARKS = tuple(
    (phase, cast("Component", component), re.compile(line), text)
    for phase, component, line, text in (
        ("starting", "", r"non-default args: ", "arguments accepted"),
        ("config", "", r"Resolved architecture: (?P<model>\w+)", "{model}"),
        ("engine", "", r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\)", "vLLM {version}"),
        (
            "engine",
            "",
            r"Waiting for (?P<local>\d+) local, (?P<remote>\d+) remote core engine",
            "waiting for its engine",
        ),
        ("rendezvous", "", r"headless multiproc executor, with head node address (?P<head>\S+)", "joining {head}"),
        ("rendezvous", "", r"world_size=(?P<total>\d+) rank=(?P<rank>\d+) local_rank=", "rank {rank} of {total}"),
        ("rendezvous", "", r"vLLM is using nccl==(?P<version>[\d.]+)", "NCCL {version}"),
        ("weights", "target", r"Starting to load model (?P<path>.+?)\.\.\.$", "loading {path}"),
        ("weights", "draft", r"Loading drafter model\.\.\.", "loading the draft"),
        (
            "weights",
            "",
            r"Loading (?:safetensors|pt) checkpoint shards:\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)",
            "{done} of {total} shards",
        ),
        ("weights", "", r"Model loading took (?P<gib>[\d.]+) GiB", "loaded, {gib} GiB"),
        ("weights", "", r"Loading weights took (?P<s>[\d.]+) seconds", "loaded in {s} s"),
        ("compile", "", r"torch\.compile (?:took|takes) (?P<s>[\d.]+) s", "compiled in {s} s"),
        ("compile", "", r"Warming up model for the compilation", "compiling"),
        ("kv cache", "", r"Available KV cache memory: (?P<gib>-?[\d.]+) GiB", "{gib} GiB free"),
        ("kv cache", "", r"KV cache size: (?P<tokens>[\d,]+) tokens", "room for {tokens} tokens"),
        ("graphs", "draft", r"Capturing model for .*speculator", "capturing the draft's graphs"),
        (
            "graphs",
            "",
            r"Capturing [\w ]*CUDA graphs[^|]*:\s*\d+%\|.*?\| (?P<done>\d+)/(?P<total>\d+)",
            "{done} of {total} batch sizes",
        ),
        ("graphs", "", r"Graph capturing finished in (?P<s>[\d.]+) secs", "graphs captured in {s} s"),
        ("scheduler", "", r"init engine \(.*?\) took (?P<s>[\d.]+) s", "engine set up in {s} s"),
        ("http", "", r"Starting vLLM (?:API )?server(?: \d+)? on (?P<url>\S+)", "listening on {url}"),
        ("ready", "", r"Application startup complete\.", "ready"),
    )
)

INVALID = re.compile(r"^pydantic_core\S*ValidationError: \d+ validation error")
SIGNATURES = _log.table(FAILURES)
DRAFT_FRAMES = ("/spec_decode/", "self.drafter.load_model")  # in a traceback: it is the draft that is being loaded


def progress(line: str) -> Progress | None:
    """What a line of the log says about how far the server is; None where it says nothing."""
    state = _log.lines(line)[-1:]  # of a progress bar, the last state
    return _log.marked(MARKS, state[0], _rank(line)) if state else None


def _rank(line: str) -> str:
    prefix = PREFIX.match(line)
    return prefix["ranks"].strip("_").replace("_", " ") if prefix else ""


def _plain(log: str) -> list[str]:
    """Its lines without the head of a log line; what pydantic says over several lines is one."""
    lines = [HEAD.sub("", PREFIX.sub("", line)) for line in _log.lines(log)]
    told: list[str] = []
    inside = False
    for line in lines:
        if inside and not line.startswith("    For further information"):
            told[-1] += f" {line.strip()}"
            continue
        inside = bool(INVALID.search(line))
        told += [] if line.startswith("    For further information") else [line]
    return told


def explain(log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why the server died; None where the log shows no failure."""
    lines = _plain(log)
    traceback = _log.first_traceback(lines)
    explanation = _log.first_cause(lines, (*seen.known, *SIGNATURES), progress, traceback)
    told = explanation is not None and traceback is not None and traceback.last in explanation.evidence
    if explanation and traceback and told and any(frame in traceback.text for frame in DRAFT_FRAMES):
        return _log.about("the draft", explanation)
    return explanation
