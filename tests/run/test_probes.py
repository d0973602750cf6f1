"""`deploy check --deep`: measurements that are asked for by name, beside the checks."""

from __future__ import annotations

from tests.project import Project


def test_what_is_named_is_measured_and_nothing_else_is(project: Project) -> None:
    project.fake()
    done = project.run("check", "profile=fake", "--deep", "disk,nccl", "--json")
    found = {row["check"]: (row["verdict"], row["what"]) for row in done.json}
    assert (found["deep-disk"][0], "a cold load reads for" in found["deep-disk"][1]) == ("PASS", True)
    assert (done.code, found["deep-nccl"][0]) == (10, "UNKNOWN"), "the fake interpreter has no torch"
    done = project.run("check", "profile=fake", "--json")
    assert [row for row in done.json if row["check"].startswith("deep")] == []
    done = project.run("check", "profile=fake", "--deep", "dsk")
    assert (done.code, "did you mean 'disk'?" in done.err) == (2, True), done.err
