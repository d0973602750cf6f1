"""`deploy explain` of logs that are lying around: from a file, a folder, a pipe; JSON, exit codes, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy import engines, logfile
from deploy.commands.explain import explain
from deploy.engines._log import Explanation
from deploy.errors import ConfigError
from deploy.explaining import Account, order
from tests.project import ROOT

LOGS = ROOT / "tests" / "fixtures" / "logs"


@pytest.fixture
def deploy(tmp_path):
    """The command line in an empty folder; with `stdin`, that is a pipe."""

    def run(*words, stdin=None):
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        argv = [sys.executable, "-m", "deploy", "explain", *map(str, words)]
        env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, **given)

    return run


def test_a_file_is_explained_with_evidence_remedy_and_what_followed(deploy):
    done = deploy(LOGS / "sglang-0.5.23-wrong-fc-tp2.log")
    assert done.returncode == 0
    assert "S35  TP0: the draft: a tensor has another shape" in done.stdout
    assert "\n    AssertionError: Attempted to load weight" in done.stdout
    assert "\n-> compare hidden_size" in done.stdout
    assert "\nit followed: S04" in done.stdout


def test_a_pipe_is_explained_as_json_and_a_users_own_line_comes_first(deploy, tmp_path):
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n")
    (tmp_path / "failures.yaml").write_text("failures: {odd: {line: 'Chosen by us', cause: ours, remedy: port=1}}\n")
    log = "Chosen by us\n" + (LOGS / "vllm-0.32.0-port-taken.log").read_text()
    found = json.loads(deploy("--json", stdin=log).stdout)
    assert (found["log"], found["engine"], found["failure"]["signature"]) == ("-", "vllm", "odd")
    assert found["failure"]["consequences"] == ["port: a port is taken"]


def test_a_log_that_ends_in_the_midst_cannot_be_told_but_by_what_is_said_of_it(deploy):
    log = (LOGS / "sglang-0.5.23-good-tp2.log").read_text().partition("Load weight end.")[0]
    done = deploy(stdin=log)
    assert (done.returncode, "as far as the phase weights" in done.stdout) == (10, True)
    done = deploy("--silent", "900", stdin=log)
    assert (done.returncode, "weights  TP1: weights come slowly" in done.stdout) == (0, True), done.stdout
    assert "SIGKILL" in deploy("-", "--exit", "137", "--engine", "sglang", stdin=log).stdout


def test_a_key_in_the_evidence_is_hidden(deploy):
    log = "server_args={'api_key': 'sk-very-secret-77'} [Errno 98] address already in use\n"
    for words in (["--engine", "sglang"], ["--engine", "sglang", "--json"]):
        done = deploy(*words, stdin=log)
        assert ("S11" in done.stdout, "sk-very-secret-77" in done.stdout) == (True, False), done.stdout


REFUSED = [
    (["nosuch.log"], "nosuch.log: cannot be read: No such file"),
    (["one.log", "two.log"], "one log is explained at a time"),
    (["one.log", "profile=x"], "one log is explained at a time"),
    (["-"], "stdin: is empty"),
    (["-", "--engine", "sglnag"], "did you mean 'sglang'?"),
    (["-", "--jsonl"], "has no events"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_makes_no_sense_is_refused(words, said):
    error = CliRunner().invoke(explain, words).exception
    assert isinstance(error, ConfigError)
    assert said in str(error)


# ---- reading and recognising


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda log: log.stem)
def test_a_log_is_recognised(log):
    assert logfile.recognised(log.read_text(), engines.every()) == log.name.partition("-")[0]


def test_a_log_that_no_engine_writes_is_any_commands():
    assert logfile.recognised("Hello.\nListening.\n", engines.every()) == "command"


def test_a_large_log_is_read_at_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(logfile, "HEAD", 100)
    monkeypatch.setattr(logfile, "TAIL", 100)
    log = tmp_path / "server.log"
    log.write_text("first\n" + "x" * 5000 + "\nlast\n")
    found = logfile.read(str(tmp_path))  # the folder of a run
    assert found.startswith("first\n")
    assert found.endswith("\nlast\n")
    assert "[deploy: 4812 bytes are left out]" in found
    assert len(found) < 300


def test_a_log_is_read_whatever_its_bytes(tmp_path):
    log = tmp_path / "odd.log"
    log.write_bytes(b"\xff\x00 [Errno 98] \xfe\n")
    assert "[Errno 98]" in logfile.read(str(log))
    log.write_bytes(b" \n")
    with pytest.raises(ConfigError, match="is empty"):
        logfile.read(str(log))


def test_a_folder_without_a_log_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        logfile.read(str(Path(tmp_path)))


# ---- several hosts


def test_the_host_that_failed_first_comes_first():
    def account(where, kind=None, time=""):
        told = kind and Explanation("S01", "c", "r", "e", kind=kind, time=time)
        return Account(where, "sglang", told, (), None, ready=False)

    late, early = account("late", "cause", "20:31:31"), account("early", "cause", "20:31:30")
    follower, silent = account("follower", "consequence", "20:31:29"), account("silent")
    hosts = [one.where for one in sorted([silent, follower, late, early], key=order)]
    assert hosts == ["early", "late", "follower", "silent"]
