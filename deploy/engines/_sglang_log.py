"""SGLang's log, 0.5.8 to 0.5.23: what a line tells about the start, and what killed the server."""

from __future__ import annotations

import re

from deploy.engines import _log
from deploy.engines._log import Component, Explanation, Progress, Seen
from deploy.engines._sglang_failures import FAILURES

PREFIX = re.compile(r"^\[[\d-]{10} [\d:]{8}(?:\.\d{3})?(?P<ranks>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] ")

# What a graph capture is called: "", "draft ", "piecewise " up to 0.5.13; "target verify ", "draft extend ", ... since.
_GRAPH = r"Capture (?P<what>(?:target |draft |piecewise )?(?:prefill |decode |verify |extend )?)(?i:cuda graph)"

_SHARDS = r"(?:Loading safetensors checkpoint shards|Multi-thread loading shards)"

MARKS = tuple(
    (phase, re.compile(line), text)
    for phase, line, text in (
        ("starting", r"server_args=", "arguments accepted"),
        ("rendezvous", r"Init (?:torch distributed|parallel) begin\.", "joining the other ranks"),  # parallel: 0.5.22
        ("rendezvous", r"sglang is using nccl==(?P<version>[\d.]+)", "NCCL {version}"),
        ("rendezvous", r"Init (?:torch distributed ends\. mem usage=|parallel ends\. elapsed=)", "all ranks joined"),
        ("gate", r"Gated launch (?:still )?waiting for activation", "waiting for activation"),
        ("gate", r"Gated launch activated\. elapsed=", "activated"),
        ("weights", r"Load weight begin\. avail mem=(?P<gb>[\d.]+) GB", "loading, {gb} GB free"),
        ("weights", _SHARDS + r":\s+\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)", "{done} of {total} shards"),
        (
            "weights",
            r"Load weight end\. .*?type=(?P<model>\w+), .*?mem usage=(?P<gb>[\d.]+) GB",
            "{model} loaded, {gb} GB",
        ),
        ("kv cache", r"KV Cache is allocated\..*?#tokens: (?P<tokens>\d+)", "room for {tokens} tokens"),
        ("kv cache", r"KV cache allocated\..*?#tokens: (?P<tokens>\d+)", "room for {tokens} tokens"),
        ("kv cache", r"Memory pool end\. avail mem=(?P<gb>[\d.]+) GB", "{gb} GB free"),
        ("graphs", _GRAPH + r" begin\b", "capturing {what}graphs"),
        (
            "graphs",
            r"Capturing batches \(bs=\d+ avail_mem=[\d.]+ GB\):\s*\d+%\|.*?\| (?P<done>\d+)/(?P<total>\d+)",
            "{done} of {total} batch sizes",
        ),
        ("graphs", _GRAPH + r" end\..*?(?:Time elapsed: |elapsed=)(?P<s>[\d.]+) s", "{what}graphs captured in {s} s"),
        (
            "scheduler",
            r"max_total_num_tokens=(?P<tokens>\d+), .*max_running_requests=(?P<most>\d+)",
            "{tokens} tokens, at most {most} requests",
        ),
        ("http", r"Uvicorn running on (?P<url>\S+)", "listening on {url}"),
        ("warm-up", r"Prefill batch(?: \[\d+\])?, #new-seq: \d+", "first requests"),
        ("ready", r"The server is fired up and ready to roll!", "ready"),
    )
)

SIGNATURES = _log.table(FAILURES)


def progress(line: str) -> Progress | None:
    """What a line of the log says about how far the server is; None where it says nothing."""
    state = _log.lines(line)[-1:]  # of a progress bar, the last state
    for phase, pattern, text in MARKS:
        found = pattern.search(state[0]) if state else None
        if found:
            groups = {name: value or "" for name, value in found.groupdict().items()}
            return Progress(phase, _component(groups), _rank(line), *_log.counts(groups), text.format(**groups))
    return None


def _component(groups: dict[str, str]) -> Component:
    if "model" in groups:
        return "draft" if "Eagle" in groups["model"] else "target"
    if "what" in groups:
        return "draft" if groups["what"].startswith("draft") else "target"
    return ""


def _rank(line: str) -> str:
    prefix = PREFIX.match(line)
    return prefix["ranks"].strip() if prefix else ""


def explain(log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why the server died; None where the log shows no failure."""
    lines = _log.lines(log)
    traceback = _log.first_traceback(lines)
    explanation = _log.first_cause(lines, (*seen.known, *SIGNATURES), progress, traceback)
    if explanation and traceback and traceback.last in explanation.evidence and "draft_worker" in traceback.text:
        return _log.about("the draft", explanation)
    return explanation
