"""Real logs of launches that fail, and SGLang's own lines, against our tables of failures.

`tests/engine/test_sglang_failures.py` makes the same logs and lines again from the installed engines.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from deploy import engines
from deploy.engines import _explain, _sglang_explain
from deploy.engines._log import Explanation, Seen
from tests.composed import composed, goes_on, read
from tests.known_lines import LIBRARIES, SGLANG, Known
from tests.launches import Launch
from tests.record_logs import ENDINGS, LAUNCHES
from tests.sglang_lines import ROWS, SIGNATURES, launched, named
from tests.sglang_lines import composed as handmade

RECORDED: dict[str, dict[str, Any]] = json.loads(ENDINGS.read_text())
TOLD = json.loads(SIGNATURES.read_text())


def case(log: str) -> Launch:
    engine, _, name = log.split("-", 2)
    return LAUNCHES[engine][name]


def explained(log: str) -> Explanation | None:
    exited = RECORDED[log]["exit"]
    silent = 900.0 if exited is None and case(log).told else None  # it lived, and said nothing more
    return engines.load(log.partition("-")[0]).explain(read(log), Seen(exit=exited, silent=silent))


@pytest.mark.parametrize("log", [log for log in RECORDED if case(log).told])
def test_a_real_log_of_a_failure_tells_why(log):
    told = explained(log)
    assert told is not None
    assert told.signature == case(log).told
    assert re.fullmatch(case(log).rank, told.rank)
    assert told.evidence.splitlines()[0] in read(log)


@pytest.mark.parametrize("log", [log for log in RECORDED if not case(log).told])
def test_a_real_log_of_a_healthy_server_tells_of_no_failure(log):
    assert explained(log) is None
    dialect = engines.load(log.partition("-")[0]).DIALECT
    assert not case(log).noted or case(log).noted in [note.signature for note in _explain.notes(dialect, read(log))]


SAID = [
    pytest.param(name.split()[0], line, id=f"{version} {name}")
    for version, cases in TOLD["executed"].items()
    for name, case in cases.items()
    for line in case["lines"]
]
SEEN = {"silence": Seen(silent=900.0), "compiling": Seen(silent=900.0, compilers=("cicc --arch sm_120",))}


@pytest.mark.parametrize(("row", "line"), SAID)
def test_a_line_that_its_own_code_says_is_found_in_a_real_start(row, line):
    form = next(known.form for known in SGLANG + LIBRARIES if known.signature.rstrip("~!") == row)
    kinds = {one.kind for one in named(row) if one.line.search(line)}
    known = Known(row, form, line)
    if kinds == {"note"}:
        assert row in [note.signature for note in _explain.notes(_sglang_explain.DIALECT, goes_on("sglang", known))]
        return
    silent = next((SEEN[kind] for kind in ("silence", "compiling") if kind in kinds), Seen())
    told = _sglang_explain.explain(composed("sglang", known, noise="cause" in kinds), silent)
    assert told is not None
    assert (told.signature, line in told.evidence) == (row, True)


def test_which_lines_are_real_is_what_the_file_says():
    """`python -m tests.sglang_lines` writes it again."""
    assert TOLD["launched"] == launched()
    assert TOLD["composed"] == handmade(TOLD["executed"], TOLD["launched"])


def test_most_rows_are_held_against_real_lines():
    """The others are CUDA's, NCCL's and the C library's own words, which only GPUs bring about; docs/failures.md."""
    rows = {row.name for row in ROWS if row.name.startswith("S")}
    assert len(rows - set(TOLD["composed"])) / len(rows) > 0.8
