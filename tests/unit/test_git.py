"""What a real git says of a project's folder."""

from __future__ import annotations

import subprocess

import pytest

from deploy.walk import git


@pytest.fixture
def at(tmp_path):
    """A repository in which the project is one of several folders."""

    def run(*words):
        own = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    run("init", ".")
    (tmp_path / "project").mkdir()
    return run


def test_a_clean_project_has_its_commit_and_its_branch(tmp_path, at):
    (tmp_path / "project" / "inventory.yaml").write_text("hosts: {}\n")
    assert git.state(tmp_path / "project")["commit"] is None
    at("add", ".")
    at("commit", "-m", "first")
    at("remote", "add", "origin", "https://someone:pa55word@example.com/x.git")
    (tmp_path / "elsewhere.txt").write_text("not the project's")
    state = git.state(tmp_path / "project")
    assert (len(state["commit"]), state["branch"], state["changed"]) == (40, "main", [])
    assert state["remote"] == "https://***@example.com/x.git"
    at("checkout", "--detach")
    assert git.state(tmp_path / "project")["branch"] is None


def test_what_is_changed_renamed_and_unknown_is_named(tmp_path, at, monkeypatch):
    for name in ("a.yaml", "? old.yaml", "weird\tname.yaml"):
        (tmp_path / name).write_text(name * 20)
    at("add", ".")
    at("commit", "-m", "first")
    (tmp_path / "a.yaml").write_text("b")
    (tmp_path / "weird\tname.yaml").write_text("b")
    at("mv", "? old.yaml", "new name.yaml")
    (tmp_path / "new.yaml").write_text("n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert git.state(tmp_path)["changed"] == ["a.yaml", "new name.yaml", "new.yaml", "weird\tname.yaml"]
    monkeypatch.setattr(git, "MOST", 3)
    state = git.state(tmp_path)
    assert (len(state["changed"]), state["more"]) == (3, 1)


def test_where_there_is_no_git_it_says_why(tmp_path, monkeypatch):
    assert "not a git repository" in git.state(tmp_path)["why"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git" in git.state(tmp_path)["why"]
