"""Programs of several parts, as they are sent: one text, in one namespace."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from deploy import host

FOLDER = Path(host.__file__).parent
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def names(text: str) -> list[str]:
    """What a text defines at its top, imports aside."""
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        if isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_part_overrides_a_name_of_another(name):
    assert [name for name, count in Counter(names(host.source(name))).items() if count > 1] == []


def test_a_name_that_two_parts_define_is_seen():
    assert Counter(names("def a(): ...\na = 1"))["a"] == 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_part_comes_once_and_nothing_of_deploy_is_left_to_import(name):
    text = host.source(name)
    assert "from deploy" not in "\n".join(line for line in text.splitlines() if line.startswith("from "))
    assert text.count("from __future__") == 1
    assert len(text.encode()) < 128 << 10  # of one word of a command line (MAX_ARG_STRLEN)


def test_a_program_of_parts_runs_alone(tmp_path):
    argv = [sys.executable, "-I", "-S", "-c", host.source("checkpoint"), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ("is empty" in done.stdout, done.stderr) == (True, "")
