"""Which GPUs a server takes, as CUDA reads the variable that says so."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.facts.gpus import Gpu
from deploy.ownership import visible


def host(count: int = 8, other: int | None = None) -> list[Gpu]:
    """GPUs of one model, or one of them of another."""
    names = ["NVIDIA B200" if index != other else "NVIDIA T4" for index in range(count)]
    return [Gpu(i, f"GPU-{i}{i}ab-0000", name, 183359, 0, "570.1", "10.0") for i, name in enumerate(names)]


def test_without_the_variable_the_first_ones_are_taken() -> None:
    assert [gpu.index for gpu in visible.taken(4, {}, host()).gpus] == [0, 1, 2, 3]


# (variable, how many, what is more, the indices taken, and words of what is wrong with it)
CASES: dict[str, tuple[str, int, dict[str, Any], list[int], str]] = {
    "numbers": ("4,5,6,7", 4, {}, [4, 5, 6, 7], ""),
    "in another order": ("7, 3", 2, {}, [7, 3], ""),
    "more than are wanted": ("4,5,6,7", 2, {}, [4, 5], ""),
    "names": ("GPU-55ab-0000,GPU-11ab-0000", 2, {}, [5, 1], ""),
    "the beginning of a name": ("GPU-55", 1, {}, [5], ""),
    "the beginning of all names": ("GPU-", 1, {}, [], "'GPU-' names no GPU of the host"),
    "fewer than are wanted": ("0,1", 4, {}, [0, 1], "leaves 2 of 8 GPUs, 4 are wanted"),
    "one that is not there hides the rest": ("0,9,1", 3, {}, [0], "'9' names no GPU of the host, and hides"),
    "minus one ends it": ("0,-1,1", 2, {}, [0], "leaves 1 of 8 GPUs, 2 are wanted"),
    "nothing": ("", 1, {}, [], "leaves 0 of 8 GPUs"),
    "twice": ("1,1", 1, {}, [], "stands twice, which hides all"),
    "from the engine's own first one": ("4,5,6,7", 2, {"first": 2}, [6, 7], ""),
    "every second": ("0,1,2,3,4,5,6,7", 4, {"first": 1, "step": 2}, [1, 3, 5, 7], ""),
    "beyond the last": ("4,5,6,7", 4, {"first": 1}, [5, 6, 7], "leaves 4 of 8 GPUs, 5 are wanted"),
    "none are wanted": ("x", 0, {}, [], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_variable_with(case: str) -> None:
    said, count, more, expected, wrong = CASES[case]
    found = visible.taken(count, {visible.VARIABLE: said}, host(), **more)
    assert [gpu.index for gpu in found.gpus] == expected
    assert wrong in found.wrong if wrong else not found.wrong


def test_mig_instances_are_told_and_are_no_error() -> None:
    found = visible.taken(1, {visible.VARIABLE: "MIG-7b1c"}, host())
    assert (found.gpus, found.mig, found.wrong) == ((), ("MIG-7b1c",), "")


@pytest.mark.parametrize(
    ("env", "doubtful"),
    [
        ({}, True),
        ({visible.VARIABLE: "1,2"}, True),
        ({visible.VARIABLE: "1,2", visible.ORDER: "PCI_BUS_ID"}, False),
        ({visible.VARIABLE: "GPU-11,GPU-22"}, False),
    ],
)
def test_numbers_among_several_models_are_in_doubt(env: dict[str, str], doubtful: bool) -> None:
    assert bool(visible.taken(2, env, host(other=0)).doubt) is doubtful
    assert not visible.taken(2, env, host()).doubt
