"""The limits (ulimit) of what is started there without a terminal, and so of the server."""

from __future__ import annotations

import math
from collections.abc import Iterator

from deploy.checks import Case
from deploy.checks._words import gib
from deploy.facts import limits, processes, rdma
from deploy.facts.limits import Limits
from deploy.findings import Finding
from deploy.plan import Node

FILES = 65535  # SGLang (srt/utils/common.py) and vLLM (utils/system_utils.py) raise theirs to it, if they may
THREADS = 2048  # that a server of eight ranks starts easily: OpenMP, NCCL, tokenizers, downloads
REMEDY = "in /etc/security/limits.d: {user} - {kind} {value}; in a container: --ulimit {kind}={value}"


def check(case: Case) -> Iterator[Finding]:
    """Only what would stop a server, or slow it, is told."""
    found = case.facts[limits.FACT]
    told = [*_files(found), *_locked(found, case), *_threads(found, case)]
    yield from told
    if not told:
        yield Finding("limits", "PASS", f"{_shown(found.nofile.hard)} open files, {_shown(found.nproc.soft)} processes")


def _files(found: Limits) -> Iterator[Finding]:
    if found.nofile.hard < FILES:
        what = f"at most {_shown(found.nofile.hard)} files may be open, servers want {FILES}"
        yield Finding(
            "limits", "WARN", what, "ulimit -Hn", REMEDY.format(user=found.user, kind="nofile", value=1048576)
        )


def _locked(found: Limits, case: Case) -> Iterator[Finding]:
    """RDMA registers memory, which must be locked; llama.cpp locks the weights where it is told to."""
    wants = case.node is not None and (_by_rdma(case.node, case) or "mlock" in case.node.said())
    if wants and found.memlock.soft < math.inf:
        what = f"at most {gib(found.memlock.soft)} may be locked in memory, which RDMA and --mlock need more of"
        yield Finding(
            "limits", "WARN", what, "ulimit -l", REMEDY.format(user=found.user, kind="memlock", value="unlimited")
        )


def _by_rdma(node: Node, case: Case) -> bool:
    """Whether NCCL would talk over RDMA; where its devices cannot be seen, it may."""
    devices = case.facts[rdma.FACT]
    several = node.profile.nodes > 1 and dict(node.env).get("NCCL_IB_DISABLE") != "1"
    return several and (devices.devices is None or bool(devices.ready))


def _threads(found: Limits, case: Case) -> Iterator[Finding]:
    """The kernel counts threads, of all of a user's processes, and holds root to nothing."""
    living = case.facts[processes.FACT]
    us = next((process.uid for process in living.all if process.pid == living.asked_by), None)
    held = sum(process.threads for process in living.all if process.uid == us)
    if us != 0 and found.nproc.soft - held < THREADS:
        what = f"{found.user} may have {_shown(found.nproc.soft)} threads, and has {held}"
        yield Finding("limits", "WARN", what, "ulimit -u", REMEDY.format(user=found.user, kind="nproc", value=65536))


def _shown(limit: float) -> str:
    return "unlimited" if limit == math.inf else f"{limit:.0f}"
