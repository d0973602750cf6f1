"""`deploy explain` of logs that are lying around: from a file, a folder, a pipe; JSON, exit codes, what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy import engines
from deploy.commands.explain import explain
from deploy.engines._log import Explanation
from deploy.errors import ConfigError
from deploy.logs import explaining, logfile
from deploy.logs.explaining import Account, order
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


def test_what_is_said_of_its_end_stands_beside_what_the_log_tells(deploy):
    good = LOGS / "sglang-0.5.23-good.log"
    assert "ended with exit code 1\nno failure is told; it came up" in deploy(good, "--exit", 1).stdout
    assert "ended with exit code 143\nSIGTERM: somebody asked it to end\n" in deploy(good, "--exit", 143).stdout


def test_a_key_in_the_evidence_is_hidden(deploy):
    log = "server_args={'api_key': 'sk-very-secret-77'} [Errno 98] address already in use\n"
    for words in (["--engine", "sglang"], ["--engine", "sglang", "--json"]):
        done = deploy(*words, stdin=log)
        assert ("S11" in done.stdout, "sk-very-secret-77" in done.stdout) == (True, False), done.stdout


REFUSED = [
    (["nosuch.log"], "nosuch.log: cannot be read: No such file"),
    (["one.log", "two.log"], "one log is explained at a time"),
    (["one.log", "profile=x"], "one log is explained at a time"),
    (["one.log", "--hosts", "gpu1"], "one log is explained at a time, not 'one.log --hosts'"),
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
def test_a_log_as_its_server_wrote_it_is_recognised_left_alone_and_one_start(log):
    text, name = log.read_text(), log.name.partition("-")[0]
    assert logfile.recognised(text, engines.every()) == name
    assert logfile.bare(text) == text
    assert engines.load(name).DIALECT.starts(text) == [text]


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
    with pytest.raises(ConfigError, match=r"server\.log: cannot be read: No such file"):
        logfile.read(str(Path(tmp_path)))


# What brings a log puts something in front of each line: (who, what it puts there, with the number of the line)
BEARERS = [
    ("docker logs -t", "2026-11-30T12:00:{0:02}.123456789Z "),
    ("kubectl logs --prefix --timestamps", "[pod/sglang-0/main] 2026-11-30T12:00:{0:02}.1Z "),
    ("/var/log/pods", "2026-11-30T12:00:{0:02}.1+00:00 stderr F "),
    ("docker compose logs", "\x1b[36msglang-1  | \x1b[0m"),
    ("deploy logs of a replica", "gpu1 | "),
    ("journalctl", "Nov 30 12:00:{0:02} gpu1 sglang[4711]: "),
    ("journalctl -o short-iso", "2026-11-30T12:00:{0:02}+0000 gpu1 python3[4711]: "),
    ("grep -n", "{0}:"),
    ("grep -H", "server.log:"),
    ("srun --label", "0: "),
    ("cat -n", "{0:6}\t"),
]
BORNE = ["sglang-0.5.23-other-backends", "sglang-0.5.23-killed-loading-tp2", "vllm-0.32.0-kv-big"]


@pytest.mark.parametrize("front", [front for _, front in BEARERS], ids=[who for who, _ in BEARERS])
@pytest.mark.parametrize("name", BORNE)
def test_what_brings_a_log_does_not_change_what_it_tells(name, front):
    log = (LOGS / f"{name}.log").read_text()
    borne = "".join(f"{front.format(at % 60)}{line}" for at, line in enumerate(log.splitlines(keepends=True)))
    assert explaining.of_log("x", logfile.bare(borne), None) == explaining.of_log("x", log, None)


def test_a_log_of_dockers_json_file_is_unpacked():
    log = (LOGS / "llamacpp-port-taken.log").read_text()
    kept = "".join(f"{json.dumps({'log': line, 'stream': 'stderr'})}\n" for line in log.splitlines(keepends=True))
    assert logfile.bare(f'{kept}{{"log": half') == f'{log}{{"log": half'


COMPRESSED = [
    (gzip.compress(b"x", mtime=0), "zcat old.gz | deploy explain -"),
    (lzma.compress(b"x"), "xzcat old.gz | deploy explain -"),
    ("x".encode("utf-16"), "iconv -f UTF-16 old.gz | deploy explain -"),
]


@pytest.mark.parametrize(("content", "remedy"), COMPRESSED)
def test_a_rotated_log_that_is_compressed_is_told_with_the_way_to_read_it(tmp_path, monkeypatch, content, remedy):
    monkeypatch.chdir(tmp_path)
    Path("old.gz").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        logfile.read("old.gz")
    assert caught.value.remedy == remedy


# ---- a container that is restarted keeps one log

AGAIN = [
    (["sglang-0.5.23-wrong-fc", "sglang-0.5.23-wrong-fc", "sglang-0.5.23-good"], None, ("S35 ", "S35 ")),
    (["sglang-0.5.23-wrong-fc-tp2", "sglang-0.5.23-port-taken"], "S11", ("S35 TP0: the draft",)),
    (["sglang-0.5.23-good-tp2", "sglang-0.5.23-bad-flag"], "S50", ()),  # it died before it said its arguments
    (["vllm-0.32.0-kv-big", "vllm-0.32.0-good"], None, ("cache ",)),
    (["llamacpp-good", "llamacpp-truncated-model"], "cut-short", ("it came up",)),
]


@pytest.mark.parametrize(("names", "signature", "earlier"), AGAIN)
def test_of_several_starts_in_one_log_the_last_is_explained(names, signature, earlier):
    log = "".join((LOGS / f"{name}.log").read_text() for name in names)
    found = explaining.of_log("x", log, None)
    assert (found.told and found.told.signature, len(found.earlier)) == (signature, len(earlier))
    assert all(one.startswith(words) for one, words in zip(found.earlier, earlier, strict=True))


def test_the_ranks_of_a_replica_in_one_log_are_one_start():
    line = "[2026-11-30 12:00:00] server_args=ServerArgs(model_path='/m', node_rank={}, nnodes=2)\n"
    assert len(engines.load("sglang").DIALECT.starts(line.format(0) + line.format(1))) == 1


def test_a_start_that_goes_on_is_told_with_what_became_of_the_one_before(deploy):
    failed = (LOGS / "llamacpp-truncated-model.log").read_text()
    begun = (LOGS / "llamacpp-good.log").read_text().partition("model loaded")[0]
    done = deploy(stdin=failed * 2 + begun)
    assert done.returncode == 10
    assert "the last of 3 starts in this log; before it: cut-short the GGUF file is cut short (x 2)\n" in done.stdout


def test_what_no_server_wrote_is_told(deploy):
    done = deploy(stdin="root:x:0:0\n")
    assert (done.returncode, "-> is that a server's log?" in done.stdout) == (10, True)


# ---- several hosts


def test_the_host_that_failed_first_comes_first():
    def account(where, kind=None, time=""):
        told = kind and Explanation("S01", "c", "r", "e", kind=kind, time=time)
        return Account(where, "sglang", told, (), None, ready=False)

    late, early = account("late", "cause", "20:31:31"), account("early", "cause", "20:31:30")
    follower, silent = account("follower", "consequence", "20:31:29"), account("silent")
    hosts = [one.where for one in sorted([silent, follower, late, early], key=order)]
    assert hosts == ["early", "late", "follower", "silent"]
