"""`deploy status` and its --watch, from the start of a server to its end, with GPUs that its processes hold."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.project import ROOT, Project, ended, until, with_run

BOUND = 60.0  # seconds; the machine may be busy


def gpus(project: Project) -> None:
    """Eight GPUs whose memory processes hold."""
    state = project.folder / "gpus"
    state.mkdir()
    (state / "gpus.json").write_text(json.dumps({"preset": "rtx-pro-6000 x8"}))
    path = f"{ROOT / 'tests' / 'fake-bin'}:{os.environ['PATH']}"
    project.environ |= {"FAKE_GPU_STATE": str(state), "PATH": path}


@contextmanager
def watching(project: Project, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`status --watch`, and the file that it writes to."""
    out = project.folder / "watched"
    argv = project.argv("status", "--watch", "--every", "0.5", *words)
    with out.open("wb") as file:
        process = subprocess.Popen(
            argv, cwd=project.folder, env=project.environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        yield process, out
    finally:
        process.kill()
        process.wait()


def interrupted(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(BOUND)


def signalled(run: str, number: int) -> None:
    for pid in with_run(run):
        os.kill(pid, number)


def test_a_server_from_its_start_to_its_end(project):
    gpus(project)
    project.fake(gpus=2, parallel={"tp": 2}, args={"enable_metrics": True})
    done = project.run("up", "profile=fake")
    assert done.code == 0, done.err

    row = project.status()
    assert (row["state"], row["why"], row["drift"]) == ("serving", "", {"keys": {}})
    assert [(gpu["index"], gpu["own_mib"], gpu["memory_total_mib"]) for gpu in row["gpus"]] == [
        (0, 40000, 97887),
        (1, 40000, 97887),
    ]
    assert row["since"] >= row["launched"]
    assert (row["tokens_per_second"], round(row["accept_length_now"])) == (100.0, 3)

    changed(project, port=1, gates={"accept_length": ">= 1.2"})
    text = project.run("status").out
    assert "port, gates" in text
    assert "0-1: 78 of 191 GiB, 0%" in text

    signalled(row["run"], signal.SIGSTOP)
    hangs = project.status()
    assert (hangs["state"], "no answer in time" in hangs["why"]) == ("not answering", True)
    signalled(row["run"], signal.SIGCONT)

    assert project.run("down", "profile=fake", "-y").code == 0
    ended = project.status()
    assert (ended["state"], ended["pid"], ended["gpus"], ended["drift"]) == ("stopped", None, [], None)
    assert ended["since"] > row["since"]


def changed(project: Project, **fields: Any) -> None:
    file = project.folder / "profiles" / "fake.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))


def test_a_change_is_a_line_and_ctrl_c_is_the_end(project):
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    run = project.status()["run"]
    with watching(project) as (process, out):
        until(lambda: "state serving" in out.read_text(), BOUND, "that it serves")
        signalled(run, signal.SIGKILL)
        until(lambda: "state dead" in out.read_text(), BOUND, "its death")
        assert interrupted(process) == 0
    lines = [line for line in out.read_text().splitlines() if "deployment fake" in line]
    assert len(lines) == 2, "numbers that move are no news"
    assert all(f"run {run}" in line for line in lines)


def test_each_round_is_a_line_of_json(project):
    with watching(project, "--json") as (process, out):
        until(lambda: out.read_text().count("\n") > 2, BOUND, "three rounds")
        assert interrupted(process) == 0
    rounds = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(one["rows"] == [{"host": "localhost", "state": "nothing deployed", "gpus": []}] for one in rounds)
    assert rounds[0]["at"] < rounds[1]["at"] < rounds[2]["at"]


def test_on_a_terminal_the_table_moves_and_the_cursor_comes_back(project):
    primary, secondary = pty.openpty()
    environ = {**project.environ, "TERM": "xterm", "CI": "", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        project.argv("status", "--watch", "--every", "0.5"), cwd=project.folder, env=environ,
        stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary,
    ) as process:  # fmt: skip
        os.close(secondary)
        told = b""
        while told.count(b"nothing deployed") < 3:  # drawn again and again
            told += os.read(primary, 65536)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # EIO: nobody has it open any more
            while piece := os.read(primary, 65536):
                told += piece
        assert process.wait(BOUND) == 0
    os.close(primary)
    assert told.rindex(b"\x1b[?25h") > told.rindex(b"\x1b[?25l")
    assert b"every 0.5 s, Ctrl-C ends" in told


def test_this_machine_under_another_name_is_one_host(tmp_path):
    project = Project(tmp_path / "p", {"box": {"transport": "local", "work": "~/.deploy"}})
    project.fake()
    try:
        assert project.run("up", "profile=fake").code == 0
        with watching(project, "--json") as (process, out):
            until(lambda: out.read_text().count("\n") > 1, BOUND, "two rounds")
            assert interrupted(process) == 0
        last = json.loads(out.read_text().splitlines()[-1])
        assert [row["host"] for row in last["rows"]] == ["box"]
        assert [row["host"] for row in project.run("status", "--json").json] == ["box"]
        done = project.run("down")
        assert (done.code, "localhost" in done.err) == (0, False), done.err
    finally:
        ended(project.folder)
