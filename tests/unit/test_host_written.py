"""The lines of a log since a place, as a program on the host reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from deploy import host
from tests.project import PATIENCE


def written(folder: Path, *words: str) -> dict[str, Any]:
    argv = [sys.executable, "-I", "-c", host.source("written"), str(folder), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_only_what_came_since_is_told_and_only_whole_lines(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("Decode 1\nPrefill 1\nDecode 2, not wh")
    mark = written(tmp_path)
    assert mark == {"end": len("Decode 1\nPrefill 1\n"), "lines": [], "lost": 0}
    with log.open("a") as file:
        file.write("ole\nPrefill 2\nDecode 3\nDecode 4")
    found = written(tmp_path, str(mark["end"]), "Decode")
    assert found["lines"] == ["Decode 2, not whole", "Decode 3"]
    assert written(tmp_path, str(found["end"]), "Decode")["lines"] == []


def test_a_log_without_a_line_begins_at_its_beginning(tmp_path):
    (tmp_path / "server.log").write_text("half")
    assert written(tmp_path)["end"] == 0


def test_what_was_cut_off_since_is_told_as_lost(tmp_path):
    (tmp_path / "server.log.cut").write_text("100\n")
    (tmp_path / "server.log").write_text("Decode 9\n")
    assert written(tmp_path, "90", "Decode") == {"end": 109, "lines": ["Decode 9"], "lost": 10}
    assert written(tmp_path, "100", "Decode") == {"end": 109, "lines": ["Decode 9"], "lost": 0}


def test_a_log_that_is_not_there_is_told(tmp_path):
    assert "No such file" in written(tmp_path)["error"]
