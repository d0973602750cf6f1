"""What nvidia-smi writes for people: the list, the topology, the links, the table."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import time

from tests.fake_gpus.models import XIDS

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def listing(state):
    for index in range(state.count):
        print(f"GPU {index}: {state.model.name} (UUID: {state.uuid(index)})")


def topology(state):
    """The matrix: NVLink everywhere, or PCIe within a socket and the interconnect across. Cards are near a GPU."""
    half = max(1, state.count // 2) if state.count > 2 else state.count
    cards = state.told.get("nics", [])
    places = {f"GPU{i}": i // half for i in range(state.count)}
    places |= {f"NIC{i}": min(i, state.count - 1) // half for i in range(len(cards))}

    def link(a, b):
        if a == b:
            return " X "
        if a[:3] == b[:3] == "GPU" and state.model.links:
            return f"NV{state.model.links}"
        if {a[:3], b[:3]} == {"GPU", "NIC"} and a[3:] == b[3:]:
            return "PIX"
        return ("PHB" if state.count <= 2 else "NODE") if places[a] == places[b] else "SYS"

    # Newer drivers underline the heading, also where it goes to a file.
    underlined = int(state.driver.split(".")[0]) >= 580
    before, after = ("\x1b[4m", "\x1b[0m") if underlined else ("", "")
    print(f"\t{before}" + "\t".join(places) + f"\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID{after}")
    for device, node in places.items():
        of_gpu = [f"{64 * node}-{64 * node + 63}", str(node), "", "N/A"]
        of_card = ["", "", "", ""]
        cells = [link(device, other) for other in places]
        print("\t".join([device, *cells, *(of_gpu if device.startswith("GPU") else of_card)]))
    print(LEGEND)
    if cards:
        print("NIC Legend:\n")
        print("\n".join(f"  NIC{i}: {card}" for i, card in enumerate(cards)) + "\n")


def links(state):
    """RTX cards have none to print; a sick fabric says so."""
    for index in range(state.count if state.model.links else 0):
        print(f"GPU {index}: {state.model.name} (UUID: {state.uuid(index)})")
        if state.told.get("no_links"):
            print("Unable to retrieve NVLink information as all links are inActive")
            continue
        for link in range(state.model.links):
            down = link in state.told.get("down", {}).get(str(index), ())
            print(f"\t Link {link}: {'<inactive>' if down else '53.125 GB/s'}")


def kernel_log(state, now):
    """(when, words) of what the driver wrote into the kernel's log, a minute ago."""
    for gpu, codes in state.told.get("xids", {}).items():
        slot = state.bus(int(gpu))[4:].rpartition(".")[0]
        for code in codes:
            yield now - 60, f"NVRM: Xid (PCI:{slot}): {code}, {XIDS[code]}"


def header(state):
    """The table for people; its heading changed with driver 610, so nobody should parse it."""
    version = (
        f"NVIDIA-SMI {state.driver}              KMD Version: {state.driver}     CUDA UMD Version: 13.3"
        if int(state.driver.split(".")[0]) >= 610
        else f"NVIDIA-SMI {state.driver}              Driver Version: {state.driver}      CUDA Version: 13.2"
    )
    print(time.strftime("%a %b %d %H:%M:%S %Y"))
    print(f"+{'-' * 89}+\n| {version:<87} |\n|{'-' * 89}|")
    for index in range(state.count):
        memory = f"{state.used(index)}MiB / {state.model.total}MiB"
        shown = state.model.name if len(state.model.name) <= 27 else f"{state.model.name[:24]}..."
        print(f"| {index:>3}  {shown:<27}  {'On':>6}  | {state.bus(index)} Off | {memory:>22} |")
    print(f"+{'-' * 89}+")
    for index, pid, name, mib in state.processes():
        print(f"| {index:>3}   N/A  N/A {pid:>12}      C   {name:<34} {mib:>7}MiB |")
