"""The stand-in for SGLang looks like it from outside, and misbehaves as it is told."""

# mypy: allow-untyped-defs, allow-untyped-calls

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from tests import fakes
from tests.fakes import READY, children_of, cmdlines
from tests.project import PATIENCE, until

PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: TP\d+)?\] ")
# The phases' marks, as the facts sheet of SGLang has them
MARKS = [
    r"server_args=",
    r"Init (?:torch distributed|parallel) begin\.",
    r"Init (?:torch distributed ends\. mem usage=[\d.]+ GB|parallel ends\. elapsed=[\d.]+ s)",
    r"Load weight begin\. avail mem=[\d.]+ GB",
    r"(?:Loading safetensors checkpoint shards|Multi-thread loading shards):\s+\d+% Completed \| 2/4",
    r"Load weight end\. elapsed=[\d.]+ s, type=Kimi\w+, .*?avail mem=[\d.]+ GB, mem usage=[\d.]+ GB\.",
    r"Load weight end\. .*type=LlamaForCausalLMEagle3",
    r"(?:KV Cache is allocated\.|KV cache allocated\.).*?#tokens: \d+",
    r"Memory pool end\. avail mem=[\d.]+ GB",
    r"Capture target verify (?i:cuda graph) begin\b",
    r"Capturing batches \(bs=\d+ avail_mem=[\d.]+ GB\):\s*\d+%\|.*?\| 3/9",
    r"Capture target verify (?i:cuda graph) end\..*?(?:Time elapsed: |elapsed=)[\d.]+ s",
    r"Capture draft decode (?i:cuda graph) begin\b",
    r"Capture draft extend (?i:cuda graph) end\.",
    r"max_total_num_tokens=\d+, chunked_prefill_size=-?\d+, max_prefill_tokens=\d+, max_running_requests=\d+, ",
    r"Engine startup timings \(s\): ",
    r"Uvicorn running on \S+",
    READY,
]


@pytest.fixture
def start(tmp_path):
    with fakes.starting(tmp_path) as run:
        yield run


def test_the_log_has_every_mark_of_sglang_in_order(start):
    log = start("--speculative-draft-model-path", "/d", "--tp-size", "2").says(READY).log()

    places: list[int] = []
    for mark in MARKS:
        found = re.compile(mark).search(log, places[-1] if places else 0)
        assert found, f"{mark} is not there, or too early"
        places.append(found.end())
    lines = [line for line in re.split(r"[\r\n]", log) if line]
    assert all(PREFIX.match(line) or line.startswith(("Multi-thread", "Capturing")) for line in lines)
    assert "Load weight begin" in log.split(" TP1] ", 2)[2]


def test_one_rank_has_no_rank_in_its_log_and_no_draft_no_draft_phase(start):
    log = start().says(READY).log()

    assert " TP0]" not in log
    assert "draft decode" not in log
    assert "Capture target decode CUDA graph begin" in log


def test_the_port_opens_only_after_loading(start):
    server = start(phase_seconds={"graphs": 1}).says("Capture target")

    assert server.refuses()
    assert server.says(READY).ask("/health_generate") == (200, "")


def test_loading_takes_as_long_as_asked_for(start):
    began = time.monotonic()
    start(load_seconds=1.0, phase_seconds={"kv": 0}).says(READY)

    assert 0.7 < time.monotonic() - began < 60


def test_a_port_that_is_taken_shows_only_after_loading(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start(port=taken.getsockname()[1])

        assert server.process.wait(PATIENCE) == 1
    log = server.log()
    assert re.search(r"\[Errno 98\].*address already in use", log)
    assert log.index("Memory pool end") < log.index("Errno 98")


@pytest.mark.parametrize(
    ("fake", "status", "said", "unsaid"),
    [
        ({"die_at": "weights"}, -9, "Scheduler hit an exception: Traceback.*\n.*CUDA out of memory", "Load weight end"),
        ({"die_at": "graphs", "die_exit": 3}, 3, "Capture cuda graph failed", "CUDA graph end"),
        ({"die_at": "kv", "die_signal": "SEGV", "die_error": "none"}, -11, "KV Cache is allocated", "exception"),
        ({"die_at": "rendezvous"}, -9, r"Timed out after \d+ seconds waiting for clients", "Load weight"),
        ({"die_at": "draft", "die_error": "shape"}, -9, "Attempted to load weight", "KV Cache"),
        ({"die_at": "args", "die_error": "flag", "die_exit": 2}, 2, "error: unrecognized arguments", "Init"),
        ({"die_at": "warmup"}, -9, "Initialization failed. warmup error:", "fired up"),
        ({"die_at": "serving", "die_after": 0.2}, -9, "an illegal memory access", "warmup error"),
    ],
)
def test_it_dies_where_and_how_it_is_told(start, fake, status, said, unsaid):
    server = start(**fake)

    assert server.process.wait(PATIENCE) == status
    assert re.search(said, server.log(), re.DOTALL)
    assert unsaid not in server.log()


def test_silence_at_a_phase_lasts(start):
    server = start(silent_at="rendezvous").says("Init parallel begin")

    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)
    assert "Load weight" not in server.log()


def test_a_port_may_be_open_and_never_ready(start):
    server = start(silent_at="warmup").says("Uvicorn running")

    assert [server.ask(path)[0] for path in ("/health", "/ready", "/model_info")] == [503, 503, 200]


def test_term_ends_it_unless_ignored(start):
    obedient, deaf = start().says(READY), start(ignore_term=True, stragglers=1).says(READY)
    for server in (obedient, deaf):
        server.process.terminate()
    (scheduler,) = children_of(deaf)
    os.kill(scheduler, signal.SIGTERM)

    assert obedient.process.wait(PATIENCE) == -signal.SIGTERM
    assert deaf.ask("/health")[0] == 200
    assert list(children_of(deaf)) == [scheduler]


def test_schedulers_bear_sglangs_title_and_die_with_it(start):
    server = start(children=2).says(READY)
    found = children_of(server)

    assert sorted(cmdlines()[pid].split()[0] for pid in found) == ["sglang::scheduler_TP0", "sglang::scheduler_TP1"]
    assert {int(stat[3]) for stat in found.values()} == {server.process.pid}, "the same session"
    server.process.kill()
    server.process.wait()
    until(lambda: not children_of(server))


@pytest.mark.parametrize(("kind", "same_session"), [("stragglers", True), ("orphans", False)])
def test_some_are_left_behind_with_the_environment_of_the_run(start, kind, same_session):
    server = start(**{kind: 1}).says(READY)
    server.process.kill()
    server.process.wait()

    ((pid, stat),) = children_of(server).items()

    assert (int(stat[3]) == server.process.pid) == same_session
    assert int(stat[1]) not in (server.process.pid, os.getpid())
    assert pid != server.process.pid


def test_without_spt_noenv_a_title_wipes_the_environment(start):
    server = start(children=1, env={"SPT_NOENV": ""}).says(READY)

    assert children_of(server) == {}


@pytest.mark.parametrize(("visible", "used"), [("", [40000, 40000, 0]), ("1,2", [0, 40000, 40000])])
def test_gpu_memory_is_held_while_it_lives(start, tmp_path, visible, used):
    (tmp_path / "gpus.json").write_text('{"preset": "b200 x3"}')
    env = {"FAKE_GPU_STATE": str(tmp_path), "CUDA_VISIBLE_DEVICES": visible}
    server = start("--tp", "2", env=env, children=2).says(READY)

    def memory():
        query = [
            str(fakes.TESTS / "fake-bin" / "nvidia-smi"),
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
        ]
        return [int(line) for line in subprocess.check_output(query, env={**os.environ, **env}).split()]

    assert memory() == used
    server.process.kill()
    server.process.wait()
    until(lambda: memory() == [0, 0, 0])


def test_it_answers_for_the_model_it_was_started_with_or_for_another(start):
    own = start("--served-model-name", "kimi", "--speculative-draft-model-path", "/d").says(READY)
    other = start(model="/models/other").says(READY)

    assert own.ask("/get_model_info")[1]["model_path"] == "/models/kimi"
    assert own.ask("/v1/models")[1]["data"][0]["id"] == "kimi"
    info = own.ask("/server_info")[1]
    assert (info["speculative_draft_model_path"], info["version"], info["port"]) == ("/d", "0.5.20", own.port)
    assert other.ask("/model_info")[1]["model_path"] == other.ask("/v1/models")[1]["data"][0]["id"] == "/models/other"


def test_it_can_answer_two_questions_or_what_it_is_told(start):
    server, wrong = start().says(READY), start(answer="Bananas, all of them.").says(READY)

    assert server.chat()["choices"][0]["message"]["content"] == "2 + 2 = 4."
    assert server.generate(prompt="The capital of France?")["text"] == "The capital of France is Paris."
    assert server.chat("Write.", max_tokens=5)["choices"][0]["finish_reason"] == "length"
    assert wrong.chat()["choices"][0]["message"]["content"] == "Bananas, all of them."


@pytest.mark.parametrize(
    ("reasoning", "content", "thought"),
    [("", "2 + 2 = 4.", None), ("only", None, "2 + 2 = 4."), ("both", "2 + 2 = 4.", "I think.")],
)
def test_the_answer_may_stand_in_the_reasoning(start, reasoning, content, thought):
    message = start(reasoning=reasoning).says(READY).chat()["choices"][0]["message"]

    assert (message["content"], message["reasoning_content"]) == (content, thought)


def test_a_stream_says_the_same_piece_by_piece(start):
    text = start().says(READY).chat(stream=True)

    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "2 + 2 = 4."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert text.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("length", [1.0, 1.6, 2.75, 3.9])
def test_acceptance_figures_agree_with_each_other(start, length):
    server = start(accept_length=length).says(READY)
    meta = server.generate(tokens=200)["meta_info"]

    steps, accepted = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    assert 1 + accepted / steps == pytest.approx(length, abs=0.05)
    assert meta["completion_tokens"] == 1 + steps + accepted
    assert meta["spec_num_proposed_drafts"] == 3 * steps
    assert sum(meta["spec_correct_drafts_histogram"]) == steps
    assert sum(n * count for n, count in enumerate(meta["spec_correct_drafts_histogram"])) == accepted
    details = server.chat("Write.", return_spec_tokens_details=True)["sglext"]["spec_tokens_details"]
    assert details["spec_accept_length"] == pytest.approx(length, abs=0.15)


@pytest.mark.parametrize(
    ("flags", "fake"),
    [((), {}), (("--speculative-draft-model-path", "/d"), {"acceptance": False})],
)
def test_without_a_draft_or_by_wish_there_are_no_acceptance_figures(start, flags, fake):
    server = start(*flags, "--enable-metrics", **fake).says(READY)

    assert not [name for name in server.generate()["meta_info"] if name.startswith("spec_")]
    assert "sglext" not in server.chat("Write.", return_spec_tokens_details=True)
    assert "spec_" not in server.ask("/metrics")[1]


def test_metrics_are_there_only_where_asked_for(start):
    off, on = start(accept_length=2.0).says(READY), start("--enable-metrics", accept_length=2.0).says(READY)
    on.generate(tokens=101)

    assert off.ask("/metrics")[0] == 404
    assert re.search(r"^sglang:spec_verify_calls_total\{.*\} 50$", on.ask("/metrics")[1], re.MULTILINE)
    assert on.ask("/flush_cache", {})[0] == 200


def test_a_key_is_asked_for_but_not_for_health(start, tmp_path):
    config = tmp_path / "secrets.yaml"
    config.write_text('api-key: "k\\u00e9y"\n')
    by_flag, by_file = start("--api-key", "key").says(READY), start("--config", str(config)).says(READY)

    assert by_flag.ask("/v1/models") == (401, {"error": "Unauthorized"})
    assert [by_flag.ask(path, key="key")[0] for path in ("/v1/models", "/server_info")] == [200, 200]
    assert [by_file.ask(path)[0] for path in ("/health", "/ready", "/v1/models")] == [200, 200, 401]
    assert "api_key='kéy'" in by_file.log(), "as the real one, it prints its secrets"


def test_it_is_unready_for_a_while_then_ready(start):
    server = start(unready_seconds=1.0).says(READY)

    assert [server.ask("/health")[0], server.ask("/generate", {})[0], server.ask("/model_info")[0]] == [503, 503, 200]
    until(lambda: server.ask("/health")[0] == 200)


def test_a_dead_backend_looks_healthy(start):
    server = start(dead_backend=True).says(READY)

    assert [server.ask(path)[0] for path in ("/health", "/v1/models", "/health_generate")] == [200, 200, 503]
    with pytest.raises(TimeoutError):
        server.ask("/generate", {"text": "x"}, timeout=0.5)


def test_paths_may_hang_drop_or_answer_any_status(start):
    server = start(hang="/v1/chat", drop="/generate", codes={"/ready": 500}).says(READY)

    with pytest.raises(TimeoutError):
        server.ask("/v1/chat/completions", {}, timeout=0.5)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        server.generate()
    assert server.ask("/ready")[0] == 500


def test_answers_may_be_slow(start):
    server = start(slow_seconds=0.3, tokens_per_second=100).says(READY)
    began = time.monotonic()
    server.generate(tokens=20)

    assert time.monotonic() - began >= 0.5


def test_it_may_die_after_some_answers(start):
    server = start(exits_after=2, die_exit=7, die_error="none").says(READY)
    server.chat()
    server.ask("/health")
    assert server.process.poll() is None
    server.chat()

    assert server.process.wait(PATIENCE) == 7


def test_the_log_may_be_huge(start):
    assert len(start(log_bytes=3_000_000).says(READY).log()) > 3_000_000


def test_it_never_outlives_its_time(start):
    server = start(lifetime=0.5, stragglers=1, silent_at="kv")

    assert server.process.wait(PATIENCE) == 99
    until(lambda: not children_of(server))


def test_a_misbehaviour_it_does_not_know_ends_it(start):
    server = start("--fake", "silent_at=kv", "--fake", "hangs=true")

    assert server.process.wait(PATIENCE) == 1
    assert "no such misbehaviour: hangs" in server.log()


def test_flags_name_misbehaviour_as_the_environment_does(start):
    server = start("--fake", 'codes={"/health": 418}', "--fake", "answer=no", answer="yes").says(READY)

    assert server.ask("/health")[0] == 418
    assert server.chat()["choices"][0]["message"]["content"] == "no"
