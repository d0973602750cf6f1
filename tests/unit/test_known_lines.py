"""Each row of the engines' tables, by a line that it was written for, in a real start among other ranks' noise."""

from __future__ import annotations

import re

import pytest

from deploy import settings
from deploy.engines import _explain, _llamacpp_explain, _sglang_explain, _vllm_explain
from deploy.engines._log import Seen
from deploy.project import Project
from tests import failures_page
from tests.composed import composed, goes_on, healthy
from tests.known_lines import LIBRARIES, LLAMACPP, SGLANG, VLLM

ENGINES = {"sglang": _sglang_explain, "vllm": _vllm_explain, "llamacpp": _llamacpp_explain}
KNOWN = [
    (name, known)
    for name, table in (("sglang", SGLANG + LIBRARIES), ("vllm", VLLM + LIBRARIES), ("llamacpp", LLAMACPP))
    for known in table
]
SIGNS = {"~": "consequence", "!": "note"}
SEEN = {"last": Seen(silent=900.0), "compiling": Seen(silent=900.0, compilers=("cicc --arch sm_120",))}


def kind(known):
    """Which kind of row the line is for."""
    form = {"last": "silence", "compiling": "compiling"}.get(known.form, "cause")
    return SIGNS.get(known.signature[-1], form)


def of(*kinds):
    return [pytest.param(engine, known, id=known.line[:50]) for engine, known in KNOWN if kind(known) in kinds]


@pytest.mark.parametrize(("engine", "known"), of("cause"))
def test_a_cause_is_found_before_what_other_ranks_say_of_it(engine, known):
    told = ENGINES[engine].explain(composed(engine, known))
    assert told is not None
    assert told.signature == known.signature
    assert known.line in told.evidence
    named = re.search(r"Rank (\d)", known.line)
    own = "" if engine == "llamacpp" or known.form == "plain" else "TP1"
    assert told.rank == (f"rank {named[1]}" if named else own)
    assert any(text.startswith(("S04:", "engine:")) for text in told.consequences) == (engine != "llamacpp")


@pytest.mark.parametrize(("engine", "known"), of("consequence"))
def test_a_consequence_alone_is_told_as_one(engine, known):
    told = ENGINES[engine].explain(composed(engine, known, noise=False))
    assert told is not None
    assert f"{told.signature}~" == known.signature


@pytest.mark.parametrize(("engine", "known"), of("note"))
def test_a_note_is_no_failure(engine, known):
    log = goes_on(engine, known)
    assert ENGINES[engine].explain(log) is None
    assert f"{known.signature[:-1]}" in [note.signature for note in _explain.notes(ENGINES[engine].DIALECT, log)]


@pytest.mark.parametrize(("engine", "known"), of("silence", "compiling"))
def test_what_was_heard_last_explains_a_silence_and_nothing_else(engine, known):
    log = composed(engine, known, noise=False)
    told = ENGINES[engine].explain(log, SEEN[known.form])
    assert told is not None
    assert told.signature == known.signature
    assert known.line in told.evidence
    assert ENGINES[engine].explain(log) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_each_row_has_a_line_that_it_was_written_for(engine):
    lines = [(known.signature.rstrip("~!"), kind(known), known.line) for name, known in KNOWN if name == engine]
    without = [
        f"{row.name} {row.line.pattern}"
        for row in ENGINES[engine].DIALECT.rows
        if not any(name == row.name and its == row.kind and row.line.search(line) for name, its, line in lines)
    ]
    assert [row for row in without if not row.startswith("import ^$")] == []  # of a log without a line


@pytest.mark.parametrize("engine", ENGINES)
def test_no_row_of_another_kind_matches_a_healthy_start(engine):
    rows = [row for row in ENGINES[engine].DIALECT.rows if row.kind in ("cause", "consequence")]
    lines = healthy(engine).splitlines()
    assert [(row.name, line) for row in rows for line in lines if row.line.search(line)] == []


REMEDIES = [
    pytest.param(engine, row, id=f"{engine}-{row.name}")
    for engine, module in ENGINES.items()
    for row in module.DIALECT.rows
    if "=" in re.sub("`[^`]*`", "", row.remedy)
]
DRAFT = "draft: /srv/draft\nspeculative: {algorithm: EAGLE3}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a profile for each engine."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "profiles").mkdir()
    (folder / "inventory.yaml").write_text("hosts: {gpu1: {address: 192.0.2.1}}\n")
    for engine in ENGINES:
        profile = f"engine: {engine}\nhosts: gpu1\nmodel: /srv/model\n{DRAFT}"
        (folder / "profiles" / f"{engine}.yaml").write_text(profile)
    return Project(folder)


@pytest.mark.parametrize(("engine", "row"), REMEDIES)
def test_what_a_remedy_says_to_append_is_a_valid_override(engine, row, project):
    said = re.sub("`[^`]*`", "", row.remedy)  # a command of the host's own
    words = [word.strip("(),;:") for word in said.split() if "=" in word]
    for word in words:
        settings.load(engine, [word], project, {}).profile()


def test_the_documentation_has_every_row():
    assert failures_page.PAGE.read_text() == failures_page.page(), "python -m tests.failures_page"
