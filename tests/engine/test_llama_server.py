"""The launcher of llama.cpp's server, with the real server, and the tiny pair's broken drafts on it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.project import PATIENCE, until

ROOT = Path(__file__).parent.parent.parent
TINY = ROOT / "examples" / "tiny-eagle3"
LAUNCHER = ROOT / "deploy" / "host" / "llama_server.py"

pytestmark = pytest.mark.engine


def make_dead() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_dead", TINY / "make_dead.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Server:
    """The launcher as a process, listening on a port of the kernel's choice."""

    def __init__(self, log: Path, *flags: str, **env: str) -> None:
        argv = [sys.executable, "-I", str(LAUNCHER), "--port", "0", "--model", str(TINY / "target.gguf"), *flags]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, **env}
            )
        assert self.process.stdout
        self.told = self.process.stdout.readline().strip()
        self.url = self.told.rpartition(" ")[2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def ask(self, path: str, body: dict[str, object] | None = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def accept_length(self) -> float:
        body = {"prompt": "Q: count from 3\nA:", "n_predict": 60, "temperature": 0, "ignore_eos": True}
        timings = self.ask("/completion", body)["timings"]
        generated = int(timings["predicted_n"])
        return generated / (generated - int(timings["draft_n_accepted"]))


def eagle3(draft: Path) -> list[str]:
    return ["--model-draft", str(draft), "--spec-type", "draft-eagle3", "--draft-max", "3"]


def refused(*flags: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", str(LAUNCHER), "--port", "0", *flags]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_it_says_where_it_listens_and_ends_with_0_on_sigterm(tmp_path):
    with Server(tmp_path / "log", "--alias", "tiny", "--ctx-size=512", "--no-warmup", "--n-batch", "64") as server:
        assert server.told.startswith("listening on http://127.0.0.1:")
        assert server.ask("/v1/models")["data"][0]["id"] == "tiny"
        assert server.ask("/props")["default_generation_settings"]["n_ctx"] == 512
        until(
            lambda: "model loaded" in (tmp_path / "log").read_text(), what="its log, which a thread of its own writes"
        )
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=PATIENCE) == 0


ACCEPTED = [("draft.gguf", 3.0, 4.0), ("random-head.gguf", 1.0, 1.05), ("zero-head.gguf", 1.0, 1.15)]


@pytest.mark.parametrize(("name", "least", "most"), ACCEPTED)
def test_a_dead_draft_serves_and_is_never_right(tmp_path, name, least, most):
    draft = TINY / name if (TINY / name).exists() else make_dead().make(name, tmp_path)
    with Server(tmp_path / "log", *eagle3(draft)) as server:
        assert least <= server.accept_length() <= most


def test_a_folder_with_one_gguf_stands_for_it(tmp_path):
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "any.gguf").write_bytes((TINY / "draft.gguf").read_bytes())
    with Server(tmp_path / "log", *eagle3(tmp_path / "draft")) as server:
        assert server.accept_length() > 3


def test_keys_come_from_a_file_or_from_the_environment(tmp_path):
    (tmp_path / "keys").write_text("one\n\ntwo\n")
    for flags, env, key in (
        (["--api-key-file", str(tmp_path / "keys")], {}, "two"),
        ([], {"LLAMA_API_KEY": "three"}, "three"),
    ):
        with Server(tmp_path / "log", *flags, **env) as server:
            with pytest.raises(urllib.error.HTTPError) as caught:
                server.ask("/v1/models")
            caught.value.close()
            assert caught.value.code == 401
            assert server.ask("/v1/models", Authorization=f"Bearer {key}")["data"]


TARGET = ["--model", str(TINY / "target.gguf")]
WRONG = [
    ([], 2, "--model is missing"),
    (["--model"], 2, "--model needs a value"),
    (["--model", "/nothing.gguf"], 2, "there is no file '/nothing.gguf'"),
    ([*TARGET, "--ctx-sze", "1"], 2, "did you mean --ctx-size?"),
    ([*TARGET, "--n-bach", "1"], 2, "did you mean --n-batch?"),
    ([*TARGET, "--threads", "many"], 2, "--threads takes int, not 'many'"),
    ([*TARGET, "--no-port"], 2, "there is no flag '--no-port'"),
    ([*TARGET, "--spec-type", "eagle3"], 2, "draft-eagle3"),
    ([*TARGET, "--model-draft", str(TINY)], 2, "holds draft.gguf, target.gguf"),
    ([*TARGET, "--api-key-file", "/nothing"], 2, "--api-key-file:"),
]


@pytest.mark.parametrize(("flags", "status", "told"), WRONG)
def test_a_wrong_flag_is_refused_in_words(flags, status, told):
    ended = refused(*flags)
    assert ended.returncode == status
    assert told in ended.stderr


def test_a_draft_that_does_not_load_ends_the_server(tmp_path):
    draft = make_dead().make("truncated.gguf", tmp_path)
    ended = refused(*TARGET, *eagle3(draft))
    assert ended.returncode == 1
    assert f"with the draft '{draft}'" in ended.stderr
    assert "failed to load draft model" in ended.stderr


def test_broken_drafts_are_the_same_each_time(tmp_path):
    dead = make_dead()
    for name in dead.NAMES:
        first, second = dead.make(name, tmp_path / "1"), dead.make(name, tmp_path / "2")
        files = [path for path in [first, *first.glob("*")] if path.is_file()]
        assert files
        for path in files:
            assert path.read_bytes() == (second / path.name if second.is_dir() else second).read_bytes()
