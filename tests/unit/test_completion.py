"""Completion in a real shell: what stands in the line after a press of the tab key."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.project import PATIENCE

ROOT = Path(__file__).parents[2]
INVENTORY = """
hosts: {gpu1: , gpu2: , gpu3: , head: }
groups: {blackwell: ["gpu[1-2]"]}
"""
PROFILE = """
engine: {name: sglang, environment: sglang-cpu}
hosts: blackwell
model: /m
env: {MINE: 1}
args: {mem-fraction-static: 0.5, trust-remote-code: true}
"""
# A key prints the line as it stands, and empties it.
RC = r"""
PS1='$ '; bind 'set enable-bracketed-paste off'; bind 'set completion-query-items 0'; bind 'set page-completions off'
shown() { printf '<<%s>>\n' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }
bind -x '"\C-g": shown'
eval "$(deploy completion bash)"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with files in it, and the command on the path."""
    root = tmp_path_factory.mktemp("completed")
    for name, text in {
        "inventory.yaml": INVENTORY,
        "profiles/mine.yaml": PROFILE,
        "profiles/other.yaml": PROFILE,
        "ckpt/step-1/config.json": "{}",
        "a file.gguf": "",
        "profiles/other\nwise.yaml": PROFILE,
        "profiles/m\udcff.yaml": PROFILE,
        "runs/20261129-201500-abcd/events.jsonl": "",
        "runs/20261130-201500-cdef/events.jsonl": "",
        "bin/deploy": f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m deploy "$@"\n',
        "broken/inventory.yaml": "hosts: [",
        "broken/profiles/mine.yaml": "engine: {",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "bin/deploy").chmod(0o755)
    return root


def environment(project: Path) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("DEPLOY_", "COMP_"))}
    return {**plain, "PATH": f"{project}/bin:{plain['PATH']}", "TERM": "dumb", "COLUMNS": "500", "LC_ALL": "C.UTF-8"}


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, project: Path) -> None:
        (project / "rc").write_text(RC)
        self.terminal, inner = pty.openpty()
        argv = ["bash", "--noprofile", "--rcfile", str(project / "rc"), "-i"]
        self.process = subprocess.Popen(
            argv, cwd=project, env=environment(project), stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)
        self.said = ""
        self.line("", "")

    def line(self, typed: str, keys: str = "\t") -> str:
        """What stands in the line after these keys."""
        self.said = ""
        os.write(self.terminal, f"{typed}{keys}\x07".encode())
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"<<(.*)>>", self.said)):
            assert time.monotonic() < deadline, self.said
            self.said += os.read(self.terminal, 65536).decode()
        return found[1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=PATIENCE)
        os.close(self.terminal)


@pytest.fixture(scope="module")
def bash(project: Path) -> Iterator[Shell]:
    if not shutil.which("bash"):
        pytest.skip("no bash")
    shell = Shell(project)
    yield shell
    shell.close()


LINES: list[tuple[str, str]] = [  # what is typed before the tab, what stands there after it
    ("deploy res", "deploy restart "),
    ("deploy profile sh", "deploy profile show "),
    ("deploy up --hos", "deploy up --hosts "),
    ("deploy up profi", "deploy up profile="),
    ("deploy up profile=mi", "deploy up profile=mine "),
    ("deploy down profile=mi", "deploy down profile=mine "),
    ("deploy profile show mi", "deploy profile show mine "),
    ("deploy profile show mine --host he", "deploy profile show mine --host head "),
    ("deploy up --hosts bl", "deploy up --hosts blackwell "),
    ("deploy hold bl", "deploy hold blackwell "),
    ("deploy release he", "deploy release head "),
    ("deploy hosts trust gpu1,he", "deploy hosts trust gpu1,head "),
    ("deploy hosts --hosts he", "deploy hosts --hosts head "),
    ("deploy up --hosts=bl", "deploy up --hosts=blackwell "),
    ("deploy up --hosts gpu1,he", "deploy up --hosts gpu1,head "),
    ("deploy up --hosts 'all,!he", "deploy up --hosts 'all,!head' "),
    ("deploy up --hosts gpu[", "deploy up --hosts gpu[1-3] "),
    ("deploy up hosts=bl", "deploy up hosts=blackwell "),
    ("deploy up profile=mine para", "deploy up profile=mine parallel."),
    ("deploy up profile=mine parallel.t", "deploy up profile=mine parallel.tp="),
    ("deploy up speculative.algorithm=EAGLE3", "deploy up speculative.algorithm=EAGLE3 "),
    ("deploy up speculative.algorithm=STA", "deploy up speculative.algorithm=STANDALONE "),
    ("deploy up engine.name=ll", "deploy up engine.name=llamacpp "),
    ("deploy up engine.environment=sg", "deploy up engine.environment=sglang-cpu "),
    ("deploy up on_failure=r", "deploy up on_failure=rollback "),
    ("deploy up evict=t", "deploy up evict=true "),
    ("deploy up nccl.IB_DIS", "deploy up nccl.IB_DISABLE="),
    ("deploy up nccl.SOCKET_FAMILY=AF_INET6", "deploy up nccl.SOCKET_FAMILY=AF_INET6 "),
    ("deploy up waive=[ck", "deploy up waive=[ckpt] "),
    ("deploy up waive=[ckpt,dis", "deploy up waive=[ckpt,disk] "),
    ("deploy up gates.acc", "deploy up gates.accept_length="),
    ("deploy up +gates.acc", "deploy up +gates.accept_length="),
    ("deploy up +nccl.DEBUG_F", "deploy up +nccl.DEBUG_FILE="),
    ("deploy up profile=mine ~env.M", "deploy up profile=mine ~env.MINE "),
    ("deploy up profile=mine '~env.M", "deploy up profile=mine '~env.MINE' "),
    ("deploy up profile=mine ~args.tr", "deploy up profile=mine ~args.trust-remote-code "),
    ("deploy up profile=mine env.M", "deploy up profile=mine env.MINE="),
    ("deploy up draft.path=ck", "deploy up draft.path=ckpt/"),
    ("deploy up draft=ckpt/st", "deploy up draft=ckpt/step-1/"),
    ("deploy up draft=a", r"deploy up draft=a\ file.gguf "),
    ("deploy restart --ckpt ck", "deploy restart --ckpt ckpt/"),
    ("deploy try ckpt/st", "deploy try ckpt/step-1/"),
    ("deploy try speculative.num_st", "deploy try speculative.num_steps="),
    ("deploy bench bench.ro", "deploy bench bench.rounds="),
    ("deploy history 2026113", "deploy history 20261130-201500-cdef "),
    ("deploy rollback 2026113", "deploy rollback 20261130-201500-cdef "),
    ("deploy bench --load ow", "deploy bench --load own "),
    ("deploy smoke smoke.a", "deploy smoke smoke.ask="),
    ("deploy completion ba", "deploy completion bash "),
    # nothing to complete
    ("deploy smoke por", "deploy smoke por"),
    ("deploy bench por", "deploy bench por"),
    ("deploy down por", "deploy down por"),
    ("deploy up +por", "deploy up +por"),
    ("deploy up profile=mine +hos", "deploy up profile=mine +hos"),
    ("deploy up profile=mine +waiv", "deploy up profile=mine +waiv"),
    ("deploy up no.such.ke", "deploy up no.such.ke"),
    ("deploy up port=", "deploy up port="),
    ("deploy up profile=nothing ~en", "deploy up profile=nothing ~en"),
]


@pytest.mark.parametrize(("typed", "line"), LINES, ids=[case[0] for case in LINES])
def test_the_tab_key_goes_on_with_the_line(bash: Shell, typed: str, line: str) -> None:
    assert bash.line(typed) == line
    assert "Traceback" not in bash.said


def test_all_that_may_stand_there_is_listed(bash: Shell) -> None:
    bash.line("deploy up profile=mine parallel.", "\t\t")
    assert set(re.findall(r"parallel\.\w+=", bash.said)) == {f"parallel.{key}=" for key in ("tp", "pp", "dp", "ep")}
    bash.line("deploy up --hosts ", "\t\t")
    assert {"gpu1", "gpu2", "gpu3", "head", "blackwell", "gpu[1-3]", "all", "localhost"} <= set(bash.said.split())


def ask(project: Path, folder: str, line: str) -> tuple[int, str]:
    """What the command answers a shell, on both streams."""
    environ = {**environment(project), "COMP_LINE": line, "COMP_CURRENT": line.rsplit(" ", maxsplit=1)[-1]}
    done = subprocess.run(
        ["deploy"], cwd=project / folder, env={**environ, "_DEPLOY_COMPLETE": "bash_complete"}, capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "line", ["deploy up --hosts ", "deploy up profile=mine ~", "deploy up hosts=", "deploy history "]
)
def test_a_broken_project_has_nothing_to_say(project: Path, line: str) -> None:
    assert ask(project, "broken", line)[1].strip() == ""


@pytest.mark.parametrize(
    "line", ["", "deploy", "'", "deploy up 'a b", 'deploy up "', "deploy up \\", "deploy up $(", "\x01"]
)
def test_no_line_is_too_odd(project: Path, line: str) -> None:
    code, told = ask(project, ".", line)
    assert (code in (0, 1), "Traceback" in told) == (True, False), told


def test_names_need_nothing_heavy(project: Path) -> None:
    """Commands, options, profiles and runs: no pydantic, no YAML."""
    program = (
        "import os, sys; os.environ |= {'_DEPLOY_COMPLETE': 'bash_complete', 'COMP_LINE': 'deploy up profile='}\n"
        "from deploy import cli; from deploy.completion import shells; shells.answer(cli.deploy)\n"
        "sys.exit(bool({'pydantic', 'yaml', 'rich', 'paramiko'} & set(sys.modules)))"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv, cwd=project, env={**environment(project), "PYTHONPATH": str(ROOT)}, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(project: Path, shell: str) -> None:
    done = subprocess.run(
        ["deploy", "completion", shell], env=environment(project), capture_output=True, check=True, timeout=PATIENCE
    )
    with suppress(FileNotFoundError):  # not every machine has every shell
        subprocess.run([shell, "-n"], input=done.stdout, check=True, timeout=PATIENCE)
