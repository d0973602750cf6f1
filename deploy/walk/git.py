"""What git says of a project's folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.text import scrub

PATIENCE = 5.0  # seconds; a folder on a slow disk must not keep a deployment waiting
MOST = 200  # changed files that are named
FIELDS = {"1": 8, "2": 9, "u": 10}  # of `git status --porcelain=v2`: how many stand before the path


def state(root: Path) -> dict[str, Any]:
    """{commit, branch, remote, changed: [files in `root`], more}; {why} where git tells nothing.

    Files that are ignored are none; `commit` is None before the first one, `branch` where a commit is checked out.
    """
    try:
        told = _git(root, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z", "--", ".")
        remote = _git(root, "config", "--get", "remote.origin.url", ok=(0, 1)).strip()
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or str(error)
        return {"why": scrub.text(words.strip())}
    lines = told.split("\0")
    branch = dict(line.removeprefix("# branch.").split(" ", 1) for line in lines if line.startswith("# branch."))
    changed = sorted(_changed(lines))
    return {
        "commit": None if branch.get("oid", "(initial)") == "(initial)" else branch["oid"],
        "branch": None if branch.get("head", "(detached)") == "(detached)" else branch["head"],
        "remote": scrub.text(remote) or None,
        "changed": changed[:MOST],
        "more": max(0, len(changed) - MOST),
    }


def _git(root: Path, *words: str, ok: tuple[int, ...] = (0,)) -> str:
    # Without locks: an editor's git beside us is not to be kept waiting. GIT_DIR would name another project.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(root), *words],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**environ, "LC_ALL": "C"},
    )
    if done.returncode not in ok:
        raise subprocess.CalledProcessError(done.returncode, "git", done.stdout, done.stderr)
    return done.stdout


def _changed(lines: list[str]) -> Iterator[str]:
    """The paths of changed files, those that git does not know among them; a renamed one has a second line."""
    rest = iter(lines)
    for line in rest:
        kind = line[:1]
        if kind == "?":
            yield line[2:]
        elif kind in FIELDS:
            yield line.split(" ", FIELDS[kind])[-1]
            if kind == "2":
                next(rest, None)
