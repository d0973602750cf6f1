"""The user's failures.yaml: read with types, every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.errors import ConfigError
from deploy.logs import failures
from deploy.project import Project

WHOLE = """\
failures:
  no-fan:
    line: fan (?P<fan>\\d) stopped
    cause: fan {fan} stands still
    remedy: nccl.DEBUG=INFO
  chatter: {line: 'moon', cause: the moon, remedy: wait, kind: note, count: 3, phase: weights}
"""


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def write(project, text):
    (project.root / failures.FILE).write_text(text)


def test_without_a_file_there_are_none(project):
    assert failures.load(project) == ()


def test_its_rows_are_those_of_the_tables(project):
    write(project, WHOLE)
    fan, chatter = failures.load(project)
    assert (fan.name, fan.cause, fan.remedy, fan.kind, fan.phase, fan.count) == (
        "no-fan",
        "fan {fan} stands still",
        "nccl.DEBUG=INFO",
        "cause",
        "",
        1,
    )
    assert fan.line.search("fan 3 stopped")
    assert (chatter.kind, chatter.phase, chatter.count) == ("note", "weights", 3)


ROW = "failures:\n  x:\n    line: {line}\n    cause: c\n    remedy: r\n"
# (the file, words of the error)
WRONG = [
    ("", "failures.yaml:1: is empty"),
    ("failures: {}\nothers: {}\n", "failures.yaml:2: others: there is no such key; known: failures"),
    ("failures:\n  x:\n    line: a\n    cause: c\n", "failures.yaml:2: failures.x.remedy: is missing"),
    (ROW.format(line="'['"), "failures.yaml:3: failures.x.line: is not a regular expression"),
    (ROW.format(line="'a*'"), "failures.yaml:3: failures.x.line: matches an empty line"),
    (ROW.format(line="a") + "    kind: cuase\n", "failures.yaml:6: failures.x.kind: should be 'cause'"),
    (ROW.format(line="a") + "    count: many\n", "failures.yaml:6: failures.x.count: should be a whole number"),
    (ROW.format(line="a") + "  x: {}\n", "failures.yaml:6: failures.x: stands there twice"),
    (ROW.format(line="'.+'"), "failures.yaml:3: failures.x.line: matches nearly every line"),
    (ROW.format(line="a") + "    phase: wieghts\n", "failures.yaml:6: failures.x.phase: no engine has such a phase"),
    (ROW.format(line="a") + "    count: 2\n", "failures.yaml:6: failures.x.count: only a note"),
    ("failures: {x: {line: 'a(?P<b>c)', cause: '{b}', remedy: 'see {c}'}}\n", "x.remedy: {c} is no group of `line`"),
    ("failures:\n  'a b': {line: a, cause: c, remedy: r}\n", "failures.yaml:2: failures"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_wrong_in_it_is_told_with_its_line(project, text, said):
    write(project, text)
    with pytest.raises(ConfigError) as caught:
        failures.load(project)
    assert said in caught.value.what


def test_words_over_several_lines_are_one_line_and_braces_of_a_shell_are_no_group(project):
    write(project, "failures:\n  x:\n    line: a\n    cause: |\n      one\n      two\n    remedy: rm ${HOME}/x {}\n")
    (row,) = failures.load(project)
    assert (row.cause, row.remedy) == ("one two", "rm ${HOME}/x {}")


def test_one_that_anybody_may_write_is_refused(project):
    write(project, WHOLE)
    (project.root / failures.FILE).chmod(0o666)
    with pytest.raises(ConfigError, match="every user"):
        failures.load(project)


def test_the_one_of_the_documentation_is_valid(project):
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    write(project, page.partition("```yaml\n")[2].partition("```")[0])
    assert [row.name for row in failures.load(project)] == ["ib-card-gone", "licence-noise"]
