"""The CUDA that torch is built for, against drivers and boards; and how an interpreter is asked for it."""

# mypy: allow-untyped-defs, allow-untyped-calls

import sys

import pytest

from deploy.checks import Case, cuda
from deploy.host.interpreter import ask
from deploy.inventory import Host
from tests.gpu_hosts import node, seen

HOST = Host.model_validate({"name": "h1", "gpus": 1})
COMPAT = {"env": {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}}
B200, RTX, H200 = "b200 x1", "rtx-pro-6000 x1", "h200 x1"  # drivers 570 (CUDA 12.8), 595 (13.2), 570

# {what: (GPUs, torch's CUDA, more of the profile, verdict, words)}
CASES = {
    "the driver's own": (B200, "12.8", {}, "PASS", "built for CUDA 12.8, the driver runs up to 12.8"),
    "a newer minor one": (B200, "12.9", {}, "PASS", "12.9"),
    "an older major one": (RTX, "12.8", {}, "PASS", "12.8"),
    "a newer major one": (B200, "13.0", {}, "FAIL", "built for CUDA 13.0, the driver runs up to 12.8"),
    "a newer major one with cuda-compat": (B200, "13.0", COMPAT, "WARN", "13.0"),
    "too old for Blackwell": (
        RTX,
        "12.4",
        {},
        "FAIL",
        "knows no NVIDIA RTX PRO 6000 Blackwell Server Edition (compute",
    ),
    "too old for its server board": (B200, "12.6", {}, "FAIL", "knows no NVIDIA B200 (compute capability 10.0)"),
    "old enough for Hopper": (H200, "12.4", {}, "PASS", "12.4"),
    "processors alone": (RTX, "", {}, "FAIL", "built for processors alone"),
    "processors alone, and only the inventory speaks of GPUs": (RTX, "", {"gpus": None}, "WARN", "processors alone"),
}


@pytest.mark.parametrize("name", CASES)
def test_torch_is_built_for(tmp_path, name):
    preset, built, fields, verdict, words = CASES[name]
    case = Case(HOST, seen(tmp_path, cuda=built, preset=preset), node(1, **fields), None)  # type: ignore[arg-type]
    [found] = cuda.check(case)
    assert (found.verdict, words in found.what) == (verdict, True), found


@pytest.mark.parametrize(
    ("built", "taken", "fields"),
    [(None, 1, {}), ("", 0, {}), ("12.4", None, {}), ("", 1, {"args": {"device": "cpu"}})],
)
def test_nothing_is_said_without_torch_gpus_or_a_profile_and_of_servers_on_processors(tmp_path, built, taken, fields):
    server = None if taken is None else node(taken, **fields)
    case = Case(HOST, seen(tmp_path, cuda=built, preset=RTX), server, None)  # type: ignore[arg-type]
    assert list(cuda.check(case)) == []


def test_what_the_driver_does_not_tell_is_not_taken_for_right(tmp_path):
    facts = seen(tmp_path, cuda="14.0", preset=RTX, failure="no-driver")
    case = Case(HOST, facts, node(1), None)  # type: ignore[arg-type]
    assert list(cuda.check(case)) == []


# {what: (text of torch/version.py, what is told)}
VERSIONS = {
    "an annotated one": ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", "12.8"),
    "an old one": ('__version__ = "2.1.0"\ncuda = "12.1"\nhip = None\n', "12.1"),
    "for processors": ("cuda: Optional[str] = None\n", ""),
    "for another maker's": ("cuda: Optional[str] = None\nhip: Optional[str] = '6.3'\n", None),
    "one that does not tell": ("debug = False\n", None),
    "none": (None, None),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_an_interpreter_tells_what_its_torch_is_built_for_and_does_not_import_it(tmp_path, name):
    text, expected = VERSIONS[name]
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise SystemExit('imported')\n")
    if text is not None:
        (torch / "version.py").write_text(text)
    told = ask(sys.executable, "pytest", str(tmp_path))
    assert (told["cuda"], told["installed"], told["error"]) == (expected, pytest.__version__, "")
