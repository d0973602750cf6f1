"""How fast a host's GPUs add up tensors among themselves, by the engine's own torch, against what their links carry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy import host
from deploy.checks import Case
from deploy.errors import DeployError, RemoteFailed
from deploy.facts import gpu_health, gpus, topology
from deploy.facts.gpus import Gpu, Gpus
from deploy.findings import Finding
from deploy.ownership import foreign, visible
from deploy.plan import Node
from deploy.probes import Told, amount, finding, profiled, side_by_side, unknown

SMALL, LARGE = 64 << 10, 256 << 20  # bytes: of one decoded token of a large model, and what fills every link
ON_A_CPU = 16 << 20
STILL = 60.0  # seconds without a word from any rank: torch from a cold disk takes 30
SECONDS = 240.0  # for all of it
# GB/s one way of a PCIe lane by generation: 8, 16, 32 and 64 GT/s, and two of older ones.
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# What is too little, as a part of what the links carry one way. Ours: it is to find what is broken, not what is slow.
ENOUGH = {"NVLink": 0.5, "PCIe": 0.2}
PHASES = {
    "": "while torch was imported",
    "imported": "while the ranks looked for each other",
    "joined": "in the first all-reduce",
    "first": "in a later all-reduce",
}
PEER = (
    "peer access over PCIe hangs or corrupts with IOMMU or ACS on: turn them off, or set nccl.P2P_DISABLE=1 and "
    "disable-custom-all-reduce; NCCL_DEBUG=INFO tells more"
)


def probe(cases: Sequence[Case]) -> Told:
    """Each host by itself; none whose GPUs are in use."""
    yield from profiled("nccl", cases)
    wanted = [case for case in cases if case.node]
    for case, told in side_by_side(measured, wanted):
        found = unknown("nccl", told) if isinstance(told, DeployError) else told
        yield case.host.name, found


def measured(case: Case) -> Finding:
    """What one host's GPUs do. RemoteFailed where it could not be asked."""
    node = case.node
    if node is None or node.profile.engine.binary or node.engine.DISTRIBUTION is None:
        return finding("nccl", "UNKNOWN", "this server brings no torch by which its GPUs could be measured")
    there = gpus.read(case.remote) if node.gpus else Gpus((), ())
    taken = visible.of(node, there.all or ())
    if node.gpus and (busy := in_the_way(there, taken.gpus, taken.wrong)):
        return busy
    ranks = node.gpus or max(node.profile.parallel.tp, 2)
    if ranks < 2:
        return finding("nccl", "PASS", "one GPU alone has nobody to talk to")
    case.remote.say(f"all-reduce by {ranks} ranks")
    source, job = host.source("allreduce"), asked(node, ranks, taken.gpus)
    stdin = json.dumps({**job, "program": source}).encode()
    told = case.remote.python(source, timeout=SECONDS + 60, stdin=stdin)
    expected = expectation(case, [gpu.index for gpu in taken.gpus]) if node.gpus else None
    return judged(told, job["bytes"], expected)


def in_the_way(there: Gpus, taken: Sequence[Gpu], wrong: str) -> Finding | None:
    """Why the GPUs must not be touched."""
    if there.all is None or there.holders is None or wrong:
        return finding("nccl", "UNKNOWN", "which GPUs are to be measured cannot be told", wrong or there.error)
    names = {gpu.uuid: f"GPU {gpu.index}" for gpu in taken}
    held = [f"{names[one.gpu_uuid]}: pid {one.pid} {one.name or ''}" for one in there.holders if one.gpu_uuid in names]
    held += [
        f"GPU {gpu.index}: {gpu.memory_used_mib} MiB are used"
        for gpu in taken
        if gpu.memory_used_mib is None or gpu.memory_used_mib > foreign.idle_mib(gpu)
    ]
    if held:
        return finding("nccl", "UNKNOWN", "the GPUs are in use, and are left alone", "\n".join(held), "stop what runs")
    return None


def asked(node: Node, ranks: int, taken: Sequence[Gpu]) -> dict[str, Any]:
    """The job, as `deploy.host.allreduce` takes it, under the server's own variables: they are what is tried."""
    seen = {visible.VARIABLE: ",".join(gpu.uuid for gpu in taken)} if taken else {}
    return {
        "python": str(node.argv[0]),
        "env": {**dict(node.env), **seen},
        "ranks": ranks,
        "backend": "nccl" if node.gpus else "gloo",
        "bytes": [SMALL, LARGE if node.gpus else ON_A_CPU],
        "still": STILL,
        "seconds": SECONDS,
    }


def expectation(case: Case, indices: Sequence[int]) -> tuple[float, str] | None:
    """(bytes a second that the links carry one way, which links); None where it is not told."""
    try:
        linked = case.facts[topology.FACT]
        healths = case.facts[gpu_health.FACT].all or ()
    except RemoteFailed:
        return None
    nvlinked = linked.nvlinked(indices)
    if nvlinked is None:
        return None
    if nvlinked:
        sums = [sum(speed or 0.0 for speed in one.speeds) for one in linked.nvlinks or () if one.gpu in indices]
        least = min(sums, default=0.0)
        return (least * 1e9, "NVLink") if least else None
    lanes = [(one.pcie_gen_max, one.pcie_width_max) for one in healths if one.index in indices]
    carried = [LANE[gen] * width for gen, width in lanes if gen in LANE and width]
    return (min(carried) * 1e9, "PCIe") if len(carried) == len(indices) and carried else None


def judged(told: Mapping[str, Any], sizes: Sequence[int], expected: tuple[float, str] | None) -> Finding:
    """From what `deploy.host.allreduce` printed."""
    ranks: dict[int, Mapping[str, Any]] = {int(number): one for number, one in told["ranks"].items()}
    left = f"\nstill there, killed in vain: pids {told['left']}" if told["left"] else ""
    if told["errors"]:
        return _died({int(number): str(words) for number, words in told["errors"].items()}, ranks, left)
    if told["hung"]:
        last = min((str(one["phase"]) for one in ranks.values()), key=list(PHASES).index, default="")
        behind = [number for number, one in ranks.items() if one["phase"] == last]
        what = f"all-reduce hangs {PHASES[last]}: no rank told anything for {STILL:g} s"
        return finding("nccl", "FAIL", what, f"ranks {', '.join(map(str, behind))} are the last ones{left}", PEER)
    head = ranks[0]
    if not all(one["right"] for one in ranks.values()):
        wrong = [number for number, one in ranks.items() if not one["right"]]
        return finding("nccl", "FAIL", "all-reduce gives wrong sums", f"on ranks {', '.join(map(str, wrong))}", PEER)
    return _rated(head, len(ranks), sizes, expected)


def _died(errors: Mapping[int, str], ranks: Mapping[int, Mapping[str, Any]], left: str) -> Finding:
    number, words = min(errors.items())
    phase = str(ranks.get(number, {}).get("phase", ""))
    evidence = f"rank {number}: {words}{left}"
    if not phase and "No module named 'torch'" in words:
        return finding("nccl", "UNKNOWN", "the engine's interpreter has no torch that could be asked")
    if not phase:
        return finding("nccl", "UNKNOWN", "the engine's torch could not be imported", evidence)
    return finding("nccl", "FAIL", f"a rank died {PHASES.get(phase, 'at its end')}", evidence, "see its last words")


def _rated(head: Mapping[str, Any], ranks: int, sizes: Sequence[int], expected: tuple[float, str] | None) -> Finding:
    small, large = (float(head["seconds"][str(size)]) for size in sizes)
    rate = 2 * (ranks - 1) / ranks * sizes[1] / large  # NCCL's bus bandwidth: what each link carries
    what = f"{amount(rate)}/s between {ranks} ranks, {amount(sizes[0])} in {small * 1e6:.0f} us"
    evidence = "\n".join(_shown(head, sizes, large, expected))
    if expected and rate < ENOUGH[expected[1]] * expected[0]:
        least = f"at least {amount(ENOUGH[expected[1]] * expected[0])}/s could be had over {expected[1]}"
        remedy = "NCCL_DEBUG=INFO tells which way it takes; look at nccl.* of the profile, at the links and the slots"
        return finding("nccl", "WARN", f"{what}: {least}", evidence, remedy)
    return finding("nccl", "PASS", what, evidence)


def _shown(
    head: Mapping[str, Any], sizes: Sequence[int], large: float, expected: tuple[float, str] | None
) -> Iterator[str]:
    by = f"NCCL {head['nccl']}" if head["nccl"] else "gloo on the CPU"
    yield f"torch {head['torch']}, {by}; {amount(sizes[1])} in {large * 1e3:.3g} ms"
    if expected:
        yield f"{expected[1]} carries {amount(expected[0])}/s each way"
