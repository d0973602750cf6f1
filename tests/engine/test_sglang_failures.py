"""Real engines, made to fail: what they then write, and what we make of it, is what the recorded logs say.

Two launches are made each time, 10 to 40 s each; the others are part of `make test-all`. They stand in
`tests/sglang_launches.py` and `tests/vllm_launches.py`; `python -m tests.record_logs` records their logs.
"""

from __future__ import annotations

import json
import os
import re

import pytest

from deploy import engines, environments
from deploy.engines._log import Seen
from tests import overlays, sglang_lines
from tests.installed import needs
from tests.launches import launch
from tests.record_logs import ENDINGS, LAUNCHES
from tests.sglang_lines import SIGNATURES, VERSIONS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

ALWAYS = {"speculators"}
RECORDED = json.loads(ENDINGS.read_text())
SAID = json.loads(SIGNATURES.read_text())["executed"]
EVERY = [
    pytest.param(engine, name, marks=[getattr(pytest.mark, engine), *[pytest.mark.full] * (name not in ALWAYS)])
    for engine, cases in LAUNCHES.items()
    for name in cases
]


@pytest.mark.parametrize(("engine", "name"), EVERY)
def test_a_launch_ends_as_it_was_recorded_and_is_explained(engine, name, tmp_path):
    needs(f"{engine}-cpu")
    installed, case = environments.locate(f"{engine}-cpu"), LAUNCHES[engine][name]
    assert installed
    if case.memory and os.geteuid() != 0:
        pytest.skip("a control group needs root")
    ended = launch(case, name, installed, tmp_path)
    recorded = RECORDED.get(f"{engine}-{installed.version}-{name}")
    ends = [(recorded["exit"] if recorded else ended.status, case.told, case.rank)]
    ends += [case.other] if case.other else []
    silent = 900.0 if ended.status is None and case.told else None
    told = engines.load(engine).explain(ended.log, Seen(exit=ended.status, silent=silent))
    found = (ended.status, told.signature if told else "", told.rank if told else "")
    assert any(found[:2] == (exit_, row) and re.fullmatch(rank, found[2]) for exit_, row, rank in ends), (
        found, ended.log[-3000:]
    )  # fmt: skip


@pytest.mark.sglang
@pytest.mark.parametrize("version", VERSIONS)
def test_its_own_code_says_the_lines_that_our_table_waits_for(version):
    """One process a version calls the functions that write them."""
    needs(overlays.BASE)
    installed = overlays.locate(f"sglang-{version}")
    if installed is None and not os.environ.get("CI"):
        pytest.skip(f"python -m tests.overlays sglang-{version}")
    assert installed
    assert sglang_lines.alike(sglang_lines.executed(installed)) == sglang_lines.alike(SAID[version])
