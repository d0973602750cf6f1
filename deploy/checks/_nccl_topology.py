"""NCCL's and the engine's settings against what connects the GPUs of a host: NVLink, or PCIe with what lies between.

When NCCL takes P2P over PCIe: `ncclTopoCheckP2p`, `src/graph/paths.cc` of 2.30. What engines do on PCIe alone:
`custom_all_reduce_utils.py` of SGLang 0.5.8 to 0.5.23 and `custom_all_reduce.py` of vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deploy.checks._nccl import Ranks, found, key
from deploy.facts.iommu import PASSES, Iommu
from deploy.facts.topology import PCIE
from deploy.findings import Finding, Verdict

# How far P2P may reach, by NCCL_P2P_LEVEL; the old numbers do not know NVL.
LEVELS = {"LOC": 0, "NVL": 1, "PIX": 2, "PXB": 3, "PHB": 4, "SYS": 5}
OLD = (0, 2, 3, 4, 5)
# What nvidia-smi calls NODE is within a NUMA node, for which NCCL says PHB.
DISTANCES = {"PIX": 2, "PXB": 3, "PHB": 4, "NODE": 4, "SYS": 5}
# Flags that do their work over NVLink, and what the engine makes of them without.
NVLINK_FLAGS: Mapping[str, str] = {
    "enable-nccl-nvls": "NVLink SHARP",
    "enable-symm-mem": "NCCL's symmetric memory",
    "enable-torch-symm-mem": "PyTorch's symmetric memory",
    "enable-mscclpp": "MSCCL++",
    "enable-flashinfer-allreduce-fusion": "FlashInfer's fused all-reduce",
}
PCIE_IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
NO_CUSTOM = "disable-custom-all-reduce"
NO_IOMMU = "iommu=pt on the kernel's command line, or IOMMU (VT-d, AMD-Vi) off in the BIOS"
NO_ACS = "ACS off in the BIOS, or by `setpci -s BRIDGE ECAP_ACS+0x6.w=0` as root after each boot"
SHOWN = 6  # pairs of GPUs by name


def topology(ranks: Ranks) -> Iterator[Finding]:
    """Nothing for one GPU alone."""
    if ranks.gpus is None or ranks.node.gpus < 2:
        return
    apart = ranks.topology.without_nvlink(ranks.gpus)
    if apart is None:
        yield found("UNKNOWN", "what connects the GPUs is not known", ranks.topology.error)
        return
    nvlinked = len(apart) < len(ranks.gpus) * (len(ranks.gpus) - 1) // 2
    yield from _of_nvlink(ranks) if nvlinked else _without_nvlink(ranks)
    if apart:
        yield from _over_pcie(ranks, apart)
    if ranks.number("SHM_DISABLE") == 1 and any(not _peers(ranks, link) for *_, link in apart):
        what = "NCCL_SHM_DISABLE=1, and P2P does not reach all GPUs: they talk by the network, within one host"
        yield found(
            "WARN", what, _pairs(apart), f"leave {key('NCCL_SHM_DISABLE')} out; if /dev/shm is small, enlarge it"
        )


def _of_nvlink(ranks: Ranks) -> Iterator[Finding]:
    """NVLink is there, and left unused."""
    off = {"NCCL_P2P_DISABLE": ranks.number("P2P_DISABLE") == 1, "NCCL_P2P_LEVEL": _level(ranks) < LEVELS["NVL"]}
    for variable in (name for name, holds in off.items() if holds and name in ranks.env):
        what = f"{variable}={ranks.env[variable]} leaves NVLink unused"
        yield found("WARN", what, ranks.whence(variable), f"leave {key(variable)} out")
    devices = ranks.env.get("CUDA_VISIBLE_DEVICES", "")
    if "GPU-" in devices and ranks.node.profile.engine.name == "sglang" and NO_CUSTOM not in ranks.said:
        what = "with CUDA_VISIBLE_DEVICES by UUID, SGLang leaves its own all-reduce off: it reads numbers"
        yield found("WARN", what, f"CUDA_VISIBLE_DEVICES={devices}", "name the GPUs by their index")


def _without_nvlink(ranks: Ranks) -> Iterator[Finding]:
    """What was set for a machine that has it."""
    there = "\n".join(sorted({f"{link}: {PCIE.get(link, link)}" for link in (ranks.topology.links or {}).values()}))
    for flag, name in NVLINK_FLAGS.items():
        if flag in ranks.said:
            yield found("WARN", f"--{flag}: {name} needs NVLink, and there is none", there, f"leave args.{flag} out")
    if ranks.number("NVLS_ENABLE") == 1:
        what = "NCCL_NVLS_ENABLE=1, and there is no NVLink: NCCL goes on without"
        yield found("WARN", what, there, f"leave {key('NCCL_NVLS_ENABLE')} out")
    if ranks.number("MNNVL_ENABLE") == 1:
        what = "NCCL_MNNVL_ENABLE=1, and there is no NVLink: NCCL will not start"
        yield found("FAIL", what, there, f"leave {key('NCCL_MNNVL_ENABLE')} out")
    algorithms = ranks.env.get("NCCL_ALGO", "")
    words = {word.strip().lower() for word in algorithms.rpartition(":")[2].split(",")}
    if words and words <= {"nvls", "nvlstree"}:
        what = f"NCCL_ALGO={algorithms} needs NVLink, and there is none: NCCL has no algorithm left"
        yield found("FAIL", what, there, f"leave {key('NCCL_ALGO')} out")
    if ranks.env.get("NCCL_P2P_LEVEL") == "NVL":
        what = "NCCL_P2P_LEVEL=NVL, and there is no NVLink: the GPUs talk by shared memory alone"
        remedy = f"if that is meant, say {key('NCCL_P2P_DISABLE')}=1; else leave {key('NCCL_P2P_LEVEL')} out"
        yield found("WARN", what, there, remedy)


def _over_pcie(ranks: Ranks, apart: list[tuple[int, int, str]]) -> Iterator[Finding]:
    """P2P over PCIe where something lies between hangs with all GPUs at 100 %, or crawls."""
    reached = [pair for pair in apart if _peers(ranks, pair[2])]
    users = [f"NCCL, {_why(ranks)}"] if reached else []
    custom = _custom(ranks)
    users += [custom] if custom else []
    if not users:
        return
    evidence = "\n".join([f"P2P is used by {user}" for user in users] + [_pairs(reached or apart)])
    between, unseen = _between(ranks.iommu), _unseen(ranks.iommu)
    avoid = _avoid(ranks, bool(reached))
    if between:
        what = "the GPUs talk over PCIe, where something lies between: NCCL may hang, or crawl"
        yield found("WARN", what, "\n".join([evidence, *between]), f"{avoid}; or {_away(ranks.iommu)}")
    elif unseen:
        what = "the GPUs talk over PCIe, and whether an IOMMU or ACS lies between cannot be seen"
        verdict: Verdict = "UNKNOWN" if ranks.iommu.gpus is None else "WARN"
        yield found(verdict, what, "\n".join([evidence, *unseen]), f"if NCCL hangs: {avoid}")


def _between(seen: Iommu) -> list[str]:
    kinds = sorted({path.type or "" for path in seen.gpus or () if path.type not in (None, PASSES)})
    on = ", ".join(seen.units or ())
    said = f" (kernel: {' '.join(seen.said)})" if seen.said else ""
    translating = [f"the IOMMU ({on}) translates what GPUs write: {', '.join(kinds)}{said}"] if kinds else []
    alike: dict[str, list[str]] = {}
    for bridge, bits in sorted(seen.redirecting.items()):
        alike.setdefault(bits, []).append(bridge)
    return translating + [f"ACS of {', '.join(bridges)}: {bits}" for bits, bridges in alike.items()]


def _away(seen: Iommu) -> str:
    """How that which lies between is taken away."""
    return ", and ".join([NO_IOMMU] * bool(seen.translating) + [NO_ACS] * bool(seen.redirecting))


def _unseen(seen: Iommu) -> list[str]:
    lines = []
    if seen.error or seen.gpus is None:
        lines.append(seen.error or "the PCI devices are not shown")
    elif not seen.gpus:
        lines.append("no GPU is among the PCI devices that are shown")
    elif seen.translating is None:
        lines.append("the kernel does not tell whether the IOMMU translates (before 5.11)")
    if seen.unreadable:
        lines.append(f"only root may read the ACS of {', '.join(seen.unreadable)}: sudo lspci -vvv | grep ACSCtl")
    if seen.guest:
        lines.append(
            "this is a virtual machine: its host's IOMMU and ACS are not seen from inside, and are needed there"
        )
    return lines


def _custom(ranks: Ranks) -> str:
    """The engine's own all-reduce, where it goes over PCIe."""
    profile = ranks.node.profile
    if profile.engine.name == "sglang" and ranks.said.on(PCIE_IPC):
        return f"SGLang's own all-reduce ({PCIE_IPC}=1)"
    two = ranks.node.gpus == 2 and profile.nodes == 1
    if profile.engine.name in ("sglang", "vllm") and two and NO_CUSTOM not in ranks.said:
        return "the engine's own all-reduce, which it uses between two GPUs; with more, it is off by itself"
    return ""


def _avoid(ranks: Ranks, nccl: bool) -> str:
    settings = [f"{key('NCCL_P2P_DISABLE')}=1"] if nccl else []
    if ranks.said.on(PCIE_IPC):
        settings.append(f"no env.{PCIE_IPC}")
    elif _custom(ranks):
        settings.append(f"args.{NO_CUSTOM}=true")
    return f"set {', '.join(settings)}" if settings else f"set {key('NCCL_P2P_DISABLE')}=1"


def _level(ranks: Ranks) -> int:
    """How far NCCL lets P2P reach."""
    if ranks.number("P2P_DISABLE") == 1:
        return 0
    said = ranks.env.get("NCCL_P2P_LEVEL", "")
    if said in LEVELS:
        return LEVELS[said]
    if said.isdecimal():
        return OLD[min(int(said), len(OLD) - 1)]
    amd = ranks.iommu.vendor == "AuthenticAMD"  # two GPUs of such a machine may be as far apart as they like
    return LEVELS["SYS"] if amd and ranks.node.gpus <= 2 else LEVELS["PXB"]


def _peers(ranks: Ranks, link: str) -> bool:
    return DISTANCES.get(link, LEVELS["SYS"]) <= _level(ranks)


def _why(ranks: Ranks) -> str:
    level = ranks.env.get("NCCL_P2P_LEVEL")
    return f"since NCCL_P2P_LEVEL={level}" if level else "since they are that near, and nothing forbids it"


def _pairs(apart: list[tuple[int, int, str]]) -> str:
    by_link: dict[str, list[str]] = {}
    for a, b, link in sorted(apart, key=lambda pair: DISTANCES.get(pair[2], 0)):
        by_link.setdefault(link, []).append(f"{a}-{b}")
    told = {link: ", ".join(pairs[:SHOWN]) + ", ..." * (len(pairs) > SHOWN) for link, pairs in by_link.items()}
    return "\n".join(f"{link} ({PCIE.get(link, 'unknown')}): GPUs {pairs}" for link, pairs in told.items())
