"""What connects the GPUs of a host with each other and with its network cards, and how their NVLinks are.

From `nvidia-smi topo -m` and `nvidia-smi nvlink --status`. The matrix is meant for people: its columns differ by driver
(up to 515 network cards stand in it by their own names, later as NIC0 with a legend), and newer drivers underline its
heading though nobody looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from deploy.facts import About, Answer, Command, Fact, Question

MATRIX = ("nvidia-smi", "topo", "-m")
NVLINK = ("nvidia-smi", "nvlink", "--status")
# How far apart two devices are without NVLink, from the nearest, in the words of the matrix's own legend.
PCIE = {
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "a PCIe host bridge",
    "NODE": "two PCIe host bridges of a NUMA node",
    "SYS": "the link between NUMA nodes",
}
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
LINK = re.compile(r"^\s*Link (\d+): (?:<inactive>|([0-9.]+) GB/s)", re.IGNORECASE)
GPU = re.compile(r"^GPU (\d+): ")
UNREADABLE = "Unable to retrieve NVLink information"  # said of a GPU whose links are all down


@dataclass(frozen=True)
class Links:
    """The NVLinks of one GPU. A board without NVLink has none, and so no Links."""

    gpu: int
    speeds: tuple[float | None, ...]  # GB/s one way, of each link; None: it is down. Empty: all are down

    @property
    def down(self) -> int:
        return sum(speed is None for speed in self.speeds)


@dataclass(frozen=True)
class Topology:
    """None is what could not be seen; `error` says what was said instead."""

    devices: tuple[str, ...] | None  # as the matrix names them: GPU0, NIC0, mlx5_0
    between: Mapping[tuple[str, str], str]  # "NV18", or a key of PCIE
    nics: Mapping[str, str]  # {NIC0: mlx5_0}
    cpus: Mapping[int, str]  # {GPU: "0-31,64-95"}: those of its NUMA node
    numa: Mapping[int, str]  # {GPU: "0"}
    nvlinks: tuple[Links, ...] | None
    error: str = ""

    @property
    def links(self) -> Mapping[tuple[int, int], str] | None:
        """What connects two GPUs, by their index, in both orders."""
        if self.devices is None:
            return None
        of = {name: int(name[3:]) for name in self.devices if re.fullmatch(r"GPU\d+", name)}
        return {(of[a], of[b]): link for (a, b), link in self.between.items() if a in of and b in of}

    def pair(self, a: int, b: int) -> str | None:
        """What connects two GPUs, by their index; None where that is not told."""
        return self.between.get((f"GPU{a}", f"GPU{b}"))

    def without_nvlink(self, gpus: Iterable[int]) -> list[tuple[int, int, str]] | None:
        """Those pairs of these GPUs that only PCIe connects, and how; None where not every pair is told."""
        found = [(a, b, self.pair(a, b)) for a, b in combinations(sorted(gpus), 2)]
        if any(link is None for *_, link in found):
            return None
        return [(a, b, link) for a, b, link in found if link and not link.startswith("NV")]

    def nvlinked(self, gpus: Iterable[int]) -> bool | None:
        """Whether NVLink connects each of these GPUs with each; of a single one, whether it has links that are up."""
        wanted = sorted(gpus)
        if len(wanted) > 1:
            apart = self.without_nvlink(wanted)
            return None if apart is None else not apart
        if self.nvlinks is None:
            return None
        return any(links.gpu in wanted and len(links.speeds) > links.down for links in self.nvlinks)


def parse_matrix(text: str) -> Topology:
    """From what MATRIX printed; a text without a matrix is the error."""
    lines = [ESCAPES.sub("", line).rstrip() for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if re.match(r"^\s+GPU0\b", line)), None)
    if start is None:
        return Topology(None, {}, {}, {}, {}, None, text.strip()[:500] or "nvidia-smi topo said nothing")
    heading = [cell.strip() for cell in lines[start].split("\t")[1:]]
    columns = [cell for cell in heading if cell and "Affinity" not in cell and "NUMA" not in cell]
    between: dict[tuple[str, str], str] = {}
    cpus: dict[int, str] = {}
    numa: dict[int, str] = {}
    for line in lines[start + 1 :]:
        device, *cells = [cell.strip() for cell in line.split("\t")]
        if device not in columns:
            continue
        between |= {(device, other): cell for other, cell in zip(columns, cells, strict=False) if cell not in ("X", "")}
        found = re.fullmatch(r"GPU(\d+)", device)
        if found:
            rest = dict(zip(heading[len(columns) :], cells[len(columns) :], strict=False))
            cpus |= _told(int(found[1]), rest.get("CPU Affinity", ""))
            numa |= _told(int(found[1]), rest.get("NUMA Affinity", ""))
    named = re.findall(r"^\s*(NIC\d+): (\S+)\s*$", "\n".join(lines), re.MULTILINE)
    own = {name: name for name in columns if not re.fullmatch(r"(GPU|NIC)\d+", name)}
    return Topology(tuple(columns), between, {**own, **dict(named)}, cpus, numa, None)


def parse_nvlink(text: str) -> tuple[Links, ...]:
    """From what NVLINK printed: nothing at all for boards without NVLink, as the RTX PRO 6000."""
    found: dict[int, list[float | None]] = {}
    down: set[int] = set()
    gpu = -1
    for line in text.splitlines():
        if named := GPU.match(line):
            gpu = int(named[1])
        elif link := LINK.match(line):
            found.setdefault(gpu, []).append(float(link[2]) if link[2] else None)
        elif line.strip().startswith(UNREADABLE):
            down.add(gpu)
    return tuple(Links(gpu, tuple(found.get(gpu, ()))) for gpu in sorted({*found, *down}))


def _questions(_: About) -> dict[str, Question]:
    return {"matrix": Command(MATRIX), "nvlink": Command(NVLINK)}


def _parse(answers: Mapping[str, Answer]) -> Topology:
    matrix, nvlink = answers["matrix"], answers["nvlink"]
    if matrix.missing:
        return replace(parse_matrix(""), error="there is no nvidia-smi")
    found = parse_matrix(matrix.out if matrix.status is not None else matrix.err)
    return replace(found, nvlinks=parse_nvlink(nvlink.out) if nvlink.status == 0 and found.devices else None)


FACT: Fact[Topology] = Fact("topology", _questions, _parse)


def _told(gpu: int, text: str) -> dict[int, str]:
    return {gpu: text} if text and text != "N/A" else {}
