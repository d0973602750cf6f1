"""The engine's own bench client as a load generator: what it is told, what is made of its output, what is left of it.

A stand-in plays the engine's interpreter; the real client runs beside ours in benchmarks/client.py.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import ConfigError, Interrupted, RemoteFailed
from deploy.loads import Ran, bench_serving
from deploy.measuring.prompts import Prompt
from tests import loads
from tests.project import PATIENCE, free_port, until

OUTPUT = {  # of 0.5.23, with --output-details; shortened
    "backend": "sglang-oai-chat", "duration": 2.5, "completed": 2, "total_output_tokens": 11,
    "input_lens": [8, 8, 8], "output_lens": [6, 5, 8], "ttfts": [0.5, 0.25, 0.0], "itls": [[0.1, 0.2], [], []],
    "generated_texts": ["one two", "three", ""],
    "errors": ["", "", "Traceback (most recent call last):\n  ...\nClientPayloadError: cut\n"],
}  # fmt: skip

STAND_IN = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
words = dict(zip(sys.argv, sys.argv[1:]))
seen = {"argv": sys.argv[1:], "data": pathlib.Path(words["--dataset-path"]).read_text(), "env": dict(os.environ),
        "folder": os.getcwd(), "pid": os.getpid()}
pathlib.Path(SEEN).write_text(json.dumps(seen))
print("100%|####| 2/3 [00:01<00:00]", flush=True)
time.sleep(SECONDS)
if OUTPUT:
    output = words.get("--output-file") or words["--result-dir"] + words["--result-filename"]
    pathlib.Path(output).write_text("{}\\n" + OUTPUT + "\\n")
print("its last words")
sys.exit(STATUS)
"""


class Stand:
    """An interpreter that plays the client: what it saw, and the node that has it."""

    def __init__(self, folder: Path, output: str = json.dumps(OUTPUT), status: int = 0, seconds: float = 0.0) -> None:
        self.folder, self.seen = folder, folder / "seen"
        self.python = folder / "python"
        filled = {"SEEN": repr(str(self.seen)), "SECONDS": seconds, "OUTPUT": repr(output), "STATUS": status}
        text = STAND_IN
        for name, value in filled.items():
            text = text.replace(name, str(value))
        self.python.write_text(text)
        self.python.chmod(0o700)

    def run(self, engine: str = "sglang", key: str = "", remote: Any = None, **fields: Any) -> Ran:
        node = loads.node(free_port(), engine, engine={"name": engine, "python": str(self.python)}, env={"A": "b"})
        asked = loads.asked(3, 2, **fields)
        return bench_serving.run(asked, node, remote or loads.here(self.folder, key=key), lambda _done, _of: None)

    def told(self) -> Any:
        return json.loads(self.seen.read_text())


def test_its_output_becomes_samples_with_the_servers_count_of_tokens(tmp_path: Path) -> None:
    done = Stand(tmp_path).run()
    assert done.seconds == 2.5
    first, second, third = done.samples
    assert (first.first, first.first_tokens, first.tokens, first.tokens_by) == (0.5, 2, 6, "spread")
    assert [(round(gap, 3), tokens) for gap, tokens in first.chunks] == [(0.1, 2), (0.2, 2)]
    assert (first.text, first.finish, first.error) == ("one two", "stop", "")
    assert (second.first, second.first_tokens, second.chunks) == (0.25, 5, ())
    assert (third.error, third.counters, third.first) == ("ClientPayloadError: cut", None, None)
    assert [one.prompt for one in done.samples] == ["test/0", "test/1", "test/2"]
    assert first.counters is not None
    assert first.counters.steps is None  # absent, not zero
    assert not bench_serving.COUNTS


def test_it_is_asked_for_our_prompts_as_they_stand(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    done = stand.run(max_tokens=8, temperature=0.5, seed=7)
    told = stand.told()
    asked = [json.loads(line)["messages"] for line in told["data"].splitlines()]
    assert asked == [[{"role": "user", "content": f"question {number}"}] for number in range(3)]
    words = dict(zip(told["argv"], told["argv"][1:], strict=False))
    assert (words["-m"], words["--dataset-name"], words["--num-prompts"]) == ("sglang.bench_serving", "openai", "3")
    assert (words["--sharegpt-output-len"], words["--max-concurrency"], words["--seed"]) == ("8", "2", "7")
    assert json.loads(words["--extra-request-body"])["temperature"] == 0.5
    assert "--disable-ignore-eos" in told["argv"]
    assert told["env"]["A"] == "b"
    assert "sglang.bench_serving" in done.command
    stand.run(fixed_length=True)
    assert "--disable-ignore-eos" not in stand.told()["argv"]


def test_vllms_client_is_asked_for_the_texts_of_our_prompts(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    done = stand.run("vllm", fixed_length=True)
    told = stand.told()
    assert [json.loads(line) for line in told["data"].splitlines()] == [{"prompt": f"question {n}"} for n in range(3)]
    words = dict(zip(told["argv"], told["argv"][1:], strict=False))
    assert told["argv"][:4] == ["-m", "vllm.entrypoints.cli.main", "bench", "serve"]
    assert (words["--custom-output-len"], words["--max-concurrency"], words["--num-prompts"]) == ("8", "2", "3")
    assert {"--skip-chat-template", "--disable-shuffle", "--save-detailed", "--ignore-eos"} <= set(told["argv"])
    assert [one.tokens for one in done.samples] == [6, 5, 0]


def test_vllms_client_cannot_ask_a_dialogue(tmp_path: Path) -> None:
    dialogue = Prompt("a/0", "a", (("system", "Be short."), ("user", "Hi")))
    asked = replace(loads.asked(), prompts=(dialogue,))
    with pytest.raises(ConfigError, match="single questions") as caught:
        bench_serving.run(asked, loads.node(1, "vllm"), loads.here(tmp_path), lambda _done, _of: None)
    assert caught.value.evidence == "system > user"


def test_the_key_goes_by_its_environment(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    done = stand.run(key="hidden-key")
    told = stand.told()
    assert told["env"]["OPENAI_API_KEY"] == "hidden-key"
    assert "hidden-key" not in done.command + json.dumps(told["argv"])


def test_its_folder_goes_with_it(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.run()
    assert not Path(stand.told()["folder"]).exists()


FAILING: dict[str, dict[str, Any]] = {
    "it fails": {"status": 3},
    "no output": {"output": ""},
    "no JSON": {"output": "half {"},
    "another number of requests": {"output": json.dumps({**OUTPUT, "output_lens": [1]})},
    "without details": {"output": '{"duration": 1}'},
}


@pytest.mark.parametrize("case", FAILING)
def test_what_it_says_is_told_where_it_measured_nothing(tmp_path: Path, case: str) -> None:
    with pytest.raises(RemoteFailed, match="without a result") as caught:
        Stand(tmp_path, **FAILING[case]).run()
    assert "its last words" in caught.value.evidence
    assert "bench.load=own" in caught.value.remedy


def test_an_engine_without_a_client_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brings no bench client"):
        bench_serving.run(loads.asked(), loads.node(1, "llamacpp"), loads.here(tmp_path), lambda _done, _of: None)


def test_who_stops_ends_the_client_and_takes_its_folder_away(tmp_path: Path) -> None:
    stand, remote, failed = Stand(tmp_path, seconds=60), loads.here(tmp_path), []

    def run() -> None:
        try:
            stand.run(remote=remote)
        except Interrupted as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: stand.seen.exists() and stand.seen.read_text().endswith("}"), what="the client")
    told = stand.told()
    remote.abort.set()
    thread.join(PATIENCE)
    assert failed
    until(lambda: not Path(f"/proc/{told['pid']}").exists(), what="the end of the client")
    until(lambda: not Path(told["folder"]).exists(), what="the end of its folder")
