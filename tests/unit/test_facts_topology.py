"""The topology matrix and the NVLinks as nvidia-smi writes them, and fabric manager's version and state."""

# mypy: allow-untyped-defs, allow-untyped-calls

import pytest

from deploy.facts import Answer, fabric, topology

# Eight H200 with two cards, driver 570: NIC0 with a legend.
NICS = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tNV18\tPIX\tSYS\t0-31,64-95\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNODE\tSYS\t0-31,64-95\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tSYS\tPXB\t32-63,96-127\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: rocep1s0f1

"""
# Driver 470: cards by their own names.
OLD = """\
\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\tPHB\t0-15\tN/A
GPU1\tPHB\t X \tPHB\t0-15\tN/A
mlx5_0\tPHB\tPHB\t X \t\t
"""
UNDERLINED = """\
\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNODE\t0-63\t0\t\tN/A
GPU1\tNODE\t X \t0-63\t0\t\tN/A
"""


def test_pairs_cards_processors_and_numa_nodes_are_read():
    found = topology.parse_matrix(NICS)
    assert found.devices == ("GPU0", "GPU1", "GPU2", "NIC0", "NIC1")
    assert (found.pair(0, 2), found.pair(2, 1), found.between["GPU2", "NIC1"]) == ("NV18", "NV18", "PXB")
    assert found.links == {(a, b): "NV18" for a in range(3) for b in range(3) if a != b}
    assert found.nics == {"NIC0": "mlx5_0", "NIC1": "rocep1s0f1"}
    assert (found.cpus[2], found.numa) == ("32-63,96-127", {0: "0", 1: "0", 2: "1"})
    assert (found.nvlinked(range(3)), found.without_nvlink(range(3))) == (True, [])


def test_cards_by_their_own_names_and_no_numa_node():
    found = topology.parse_matrix(OLD)
    assert (found.nics, found.numa, found.cpus[1]) == ({"mlx5_0": "mlx5_0"}, {}, "0-15")
    assert (found.nvlinked([0, 1]), found.without_nvlink([0, 1])) == (False, [(0, 1, "PHB")])


def test_an_underlined_heading_is_read_as_well():
    assert topology.parse_matrix(UNDERLINED).pair(0, 1) == "NODE"


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML: Unknown Error\n", "GPU0 is somewhere\n"])
def test_what_is_no_matrix_is_unknown(text):
    found = topology.parse_matrix(text)
    assert (found.devices, found.links, found.nvlinked([0, 1]), bool(found.error)) == (None, None, None, True)


def test_a_gpu_that_is_not_told_of_leaves_it_unknown():
    found = topology.parse_matrix(NICS)
    assert (found.nvlinked([0, 7]), found.without_nvlink([0, 7])) == (None, None)


LINKS = """\
GPU 0: NVIDIA H200 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
\t Link 2: 26.562 GB/s
GPU 1: NVIDIA H200 (UUID: GPU-2)
Unable to retrieve NVLink information as all links are inActive
GPU 2: NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: GPU-3)
"""


def test_links_are_up_down_all_down_or_not_there():
    first, second = topology.parse_nvlink(LINKS)
    assert (first.gpu, first.speeds, first.down) == (0, (26.562, None, 26.562), 1)
    assert (second.gpu, second.speeds) == (1, ())
    assert topology.parse_nvlink("") == ()


@pytest.mark.parametrize(
    ("matrix", "nvlink", "alone"),
    [
        (Answer(0, NICS), Answer(0, LINKS), [True, False, False]),
        (Answer(0, OLD), Answer(0, ""), [False, False, False]),
        (Answer(0, NICS), Answer(6, "No NVLink"), [None, None, None]),
        (Answer(None, err="it had not ended after 20 s"), Answer(None), [None, None, None]),
        (Answer(None, err="[Errno 2] No such file or directory: 'nvidia-smi'"), Answer(None), [None, None, None]),
    ],
)
def test_one_gpu_alone_is_linked_where_its_links_are_up(matrix, nvlink, alone):
    found = topology.FACT.parse({"matrix": matrix, "nvlink": nvlink})
    assert [found.nvlinked([gpu]) for gpu in range(3)] == alone


ABSENT = Answer(None, err="[Errno 2] No such file or directory: 'nv-fabricmanager'")
VERSION = Answer(0, "\n\n\n\tFabric Manager version is : 580.159.03\n\n")


@pytest.mark.parametrize(
    ("version", "unit", "expected"),
    [
        (
            VERSION,
            Answer(0, "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\n"),
            ("580.159.03", "active", None, True),
        ),
        (
            VERSION,
            Answer(0, "LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\n"),
            ("580.159.03", "failed", "exit-code", True),
        ),
        (ABSENT, Answer(0, "LoadState=not-found\nActiveState=inactive\n"), (None, "not-found", None, False)),
        (ABSENT, Answer(1, "", "System has not been booted with systemd"), (None, None, None, False)),
        (VERSION, Answer(None, err="No such file"), ("580.159.03", None, None, True)),
        (Answer(139, "", "Segmentation fault"), Answer(0, ""), (None, None, None, False)),
    ],
)
def test_fabric_manager_is_read_from_itself_and_from_systemd(version, unit, expected):
    found = fabric.FACT.parse({"version": version, "unit": unit})
    assert (found.version, found.state, found.result, found.installed) == expected
