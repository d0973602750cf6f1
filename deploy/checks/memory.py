"""The host's own memory, where the server needs much of it, and what the kernel did when there was none."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.checks._words import GIB, gib, number, ranks
from deploy.facts import gpus, kernel, memory
from deploy.facts.memory import Memory
from deploy.findings import Finding
from deploy.plan import Node

# Flags that set host memory aside, in GiB: for each rank (SGLang srt/arg_groups/fields 0.5.23; vLLM config/offload.py
# and, up to 0.9, swap space), or for all of them (vLLM config/cache.py, 0.11 and later).
EACH_RANK = ("cpu-offload-gb", "hicache-size", "swap-space")
TOGETHER = ("kv-offloading-size",)
WHOLE_FILES = "weight-loader-disable-mmap"  # SGLang: each rank reads a whole file into memory before it takes its part
RECENT = 24 * 3600.0  # seconds


def check(case: Case) -> Iterator[Finding]:
    """What is wanted against what is there; and whom the kernel killed."""
    found = case.facts[memory.FACT]
    killed = list(_killed(case))
    yield from killed
    if case.node is None:
        if not killed and found.usable is not None:
            yield Finding("memory", "PASS", f"{gib(found.usable)} of {gib(found.total or 0)} can be used")
        return
    wanted = dict(_wanted(case.node, case))
    need = sum(wanted.values())
    if found.usable is None:
        if need:
            yield Finding(
                "memory", "UNKNOWN", "its free memory is not known", remedy="look at /proc/meminfo on the host"
            )
        return
    yield from _room(case, found, wanted) if need > _room_for(case, found) else _fits(found, need)


def _fits(found: Memory, need: float) -> Iterator[Finding]:
    wanted = f"{gib(need)} are wanted" if need else "nothing is wanted"
    yield Finding("memory", "PASS", f"{wanted} beside the GPUs, {gib(found.usable or 0)} can be used")


def _room_for(case: Case, found: Memory) -> float:
    """What is free, or where an earlier run of ours is still to end, what could be."""
    current = case.remote.place.current
    if current is None or not current.alive:
        return float(found.usable or 0)
    return float(min([(found.total or 0) - found.set_aside, *(group.limit for group in found.groups)]))


def _room(case: Case, found: Memory, wanted: dict[str, float]) -> Iterator[Finding]:
    mapped = case.node is not None and case.node.profile.engine.name == "llamacpp" and _maps(case.node)
    lines = [f"{gib(size)} for {what}" for what, size in wanted.items()]
    lines.append(f"{gib(found.usable or 0)} can be used, of {gib(found.total or 0)}")
    if found.tightest:
        lines.append(f"the control group {found.tightest.group} allows {gib(found.tightest.limit)}")
    if found.set_aside:
        lines.append(f"{gib(found.set_aside)} are set aside as huge pages")
    if found.swap_total:
        lines.append(f"{gib(found.swap_free or 0)} of {gib(found.swap_total)} of swap are free, which is far too slow")
    yield Finding(
        "memory",
        "WARN" if mapped else "FAIL",
        f"{gib(sum(wanted.values()))} of the host's own memory are wanted, {gib(_room_for(case, found))} can be had",
        "\n".join(lines),
        "end what holds memory there, lower the flags that want it, or take a host with more",
    )


def _wanted(node: Node, case: Case) -> Iterator[tuple[str, float]]:
    """(what for, bytes)."""
    weights = float(case.remote.place.model.get("size") or 0) + (node.draft.manifest.size if node.draft else 0)
    if _on_cpu(node, case) and weights:
        yield "the weights, which no GPU takes", weights
    for flag in EACH_RANK:
        if size := number(node, flag) * GIB * ranks(node):
            yield f"--{flag} on {ranks(node)} ranks", size
    for flag in TOGETHER:
        if size := number(node, flag) * GIB:
            yield f"--{flag}", size
    files = case.remote.place.model.get("files") or ()
    if WHOLE_FILES in node.said() and files:
        yield f"--{WHOLE_FILES} on {ranks(node)} ranks", float(max(file["size"] for file in files) * ranks(node))


def _on_cpu(node: Node, case: Case) -> bool:
    """Whether the weights stay in the host's memory: said so, or there is no GPU."""
    said = node.said()
    if said.word("device") == "cpu" or said.word("n-gpu-layers") == "0":
        return True
    seen = case.facts[gpus.FACT]
    return not node.gpus and seen.all is None and not seen.holders and "no nvidia-smi" in seen.error


def _maps(node: Node) -> bool:
    """Whether llama.cpp maps the file, so that it runs with less, if slowly."""
    said = node.said()
    return "no-mmap" not in said and "mlock" not in said


def _killed(case: Case) -> Iterator[Finding]:
    """Where the log cannot be read, nothing is said here: whoever needs it says so."""
    log = case.facts[kernel.FACT]
    recent = [kill for kill in log.kills or () if kill.at is not None and log.now - kill.at < RECENT]
    if recent:
        lines = [f"{log.ago(kill.at)}: {kill}" for kill in recent[-5:]]
        what = f"in the last day the kernel killed {len(recent)} process{'es' * (len(recent) > 1)} for want of memory"
        yield Finding("memory", "WARN", what, "\n".join(lines), "see what else runs there, and what its limits are")
