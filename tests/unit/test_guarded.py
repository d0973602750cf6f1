"""What others may have written is not run as us: profiles, inventories and hooks that every user may change."""

from __future__ import annotations

import pytest

from tests.project import Project

SPOILT = {
    "the profile": ("profiles/fake.yaml", 0o666),
    "the profiles' folder": ("profiles", 0o777),
    "the inventory": ("inventory.yaml", 0o646),
    "the project's folder": (".", 0o777),
    "the hook": ("hooks/warm", 0o757),
    "the hooks' folder": ("hooks", 0o777),
    "a folder above the project": ("..", 0o777),
    "where a link to the profile leads": ("../away/profiles/deep", 0o777),
    "above where a link to the profile leads": ("../away/profiles", 0o777),
    "where a link to the hook leads": ("../away/hooks/deep", 0o777),
}


@pytest.fixture
def project(tmp_path) -> Project:
    made = Project(tmp_path / "project")
    (made.folder / "hooks").mkdir()
    (made.folder / "hooks" / "warm").write_text("#!/bin/sh\n")
    (made.folder / "hooks" / "warm").chmod(0o755)
    made.fake(hooks={"ready": [{"run": "hooks/warm"}]})
    return made


@pytest.mark.parametrize("case", SPOILT)
def test_what_every_user_may_change_is_refused_with_the_command_that_mends_it(project, case):
    path, mode = SPOILT[case]
    if "link" in case:
        kept = project.folder / path if path.endswith("deep") else project.folder / path / "deep"
        kept.mkdir(parents=True)
        name = "profiles/fake.yaml" if "profile" in case else "hooks/warm"
        (project.folder / name).rename(kept / "kept")
        (project.folder / name).symlink_to(kept.resolve() / "kept")
    (project.folder / path).chmod(mode)
    done = project.run("plan", "profile=fake")
    mended = f"chmod o-w {(project.folder / path).resolve()}"
    assert (done.code, "every user of this machine may change it" in done.err, mended in done.err) == (2, True, True), (
        done.err
    )


def test_a_sticky_folder_such_as_tmp_is_no_danger(project):
    project.folder.chmod(0o1777)
    assert project.run("plan", "profile=fake").code == 0
