"""A server that fills its log, under a cap, through the real command line."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.project import Project, until, with_run

CHATTY = Path(__file__).parents[1] / "chatty_server.py"
ALL = re.compile(r"that was all, (\d+) lines")


def numbered(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^line (\d{9}) x{84}$", text, re.MULTILINE)]


def chatty(project: Project, seconds: float, **wrong: object) -> None:
    project.fake(
        engine={"name": "sglang", "python": str(CHATTY)},
        log={"cap": "128K"},
        env={"CHATTY": str(seconds), "FAKE": json.dumps({"lifetime": 120, **wrong})},
    )


def test_nothing_is_lost_or_doubled_for_who_follows_it(project: Project, tmp_path: Path) -> None:
    chatty(project, 6)
    assert project.run("up", "profile=fake").code == 0
    folder = Path(project.status()["folder"])
    log = tmp_path / "followed"
    with log.open("w") as out, subprocess.Popen(
        project.argv("logs", "-f", "-n", "20"), cwd=project.folder, env=project.environ, stdout=out
    ) as follower:  # fmt: skip
        try:
            said = until(lambda: ALL.search(log.read_text()), what="the last line")
        finally:
            follower.kill()
    seen, count = numbered(log.read_text()), int(said[1])
    assert "[deploy: " not in log.read_text()
    assert seen == list(range(seen[0], count))
    assert int((folder / "server.log.cut").read_text()) > 128 << 10, "it was cut off more than once meanwhile"
    assert sum(file.stat().st_size for file in folder.glob("server.log*")) < 4 * 128 << 10

    shown = project.run("logs", "-n", "1500").out
    assert len(shown.splitlines()) == 1500, "from server.log.1 as well"
    assert numbered(shown)[-1] == count - 1
    assert project.run("down").code == 0
    assert with_run(folder.name) == []


def test_it_comes_up_and_dies_with_its_reasons_while_the_log_is_cut(project: Project) -> None:
    chatty(project, 60, load_seconds=3)
    assert project.run("up", "profile=fake").code == 0
    chatty(project, 60, load_seconds=3, die_at="draft")
    done = project.run("up", "profile=fake")
    assert (done.code, "another shape" in done.err) == (6, True), done.err


def test_the_companion_is_no_part_of_the_server_and_ends_with_it(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    row = project.status()
    (companion,) = [pid for pid in pids("logcap.py") if Path(f"/proc/{pid}/cwd").resolve() == Path(row["folder"])]
    assert companion not in with_run(row["run"])
    assert Path(f"/proc/{companion}/stat").read_text().rpartition(") ")[2].split()[3] != row["pid"], "its own session"
    assert project.run("down").code == 0
    until(lambda: not Path(f"/proc/{companion}").exists(), what="it ended")


def pids(word: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words:
            found.append(int(folder.name))
    return found
