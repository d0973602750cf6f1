"""Why a server died or is silent: real logs of SGLang 0.5.23, vLLM 0.32.0 and llama.cpp, with paths replaced."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.engines import _explain, _llamacpp_explain, _sglang_explain, _table, _vllm_explain, command
from deploy.engines._log import UNSEEN, Seen, Signature

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
ENGINES = {"sglang": _sglang_explain, "llamacpp": _llamacpp_explain, "vllm": _vllm_explain}


def read(name: str) -> str:
    with (LOGS / f"{name}.log").open(encoding="utf-8", newline="") as file:  # keeps the progress bars' returns
        return file.read()


def explained(name):
    return ENGINES[name.partition("-")[0]].explain(read(name))


HEALTHY = [
    "sglang-0.5.23-good",
    "sglang-0.5.23-no-d2t",
    "llamacpp-good",
    "llamacpp-good-verbose",
    "llamacpp-random-head",
    "sglang-0.5.23-good-tp2",
    "vllm-0.32.0-good",
    "vllm-0.32.0-no-lm-head",
]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_log_of_a_server_that_came_up_explains_nothing(name):
    assert explained(name) is None


FAILURES = [
    ("sglang-0.5.23-wrong-fc", "S35", "the draft: a tensor has another shape", "[128, 256]"),
    ("sglang-0.5.23-truncated", "weights-file", "the draft: a weights file is cut short", "incomplete metadata"),
    ("sglang-0.5.23-port-taken", "S11", "the HTTP port is taken", "address already in use"),
    ("sglang-0.5.23-no-folder", "no-folder", "folder is not there", "/srv/drafts/nothing-here"),
    ("sglang-0.5.23-bad-flag", "S50", "does not take a flag", "--no-such-flag"),
    ("sglang-0.5.23-wrong-fc-tp2", "S35", "the draft: a tensor has another shape", "[128, 256]"),
    ("sglang-0.5.23-speculators", "S31", "Speculators format", "Unrecognized model"),
    ("sglang-0.5.23-ambiguous-flag", "S49", "this flag was split", "--cuda-graph-max-bs could match"),
    ("sglang-0.5.23-bad-algorithm", "S51", "no such speculative algorithm", "EAGEL3"),
    ("sglang-0.5.23-killed-detokenizer", "S45", "the process detokenizer was killed", "exit code -9"),
    ("sglang-0.5.23-stopped-serving-tp2", "S43", "the scheduler hangs", "Health check failed"),
    ("sglang-0.5.23-no-room", "S12", "leave no room for the KV cache", "mem-fraction-static=1e-07"),
    ("sglang-0.5.23-missing-rank", "S07", "not all ranks came to the rendezvous: 1/2", "Timed out after"),
    ("sglang-0.5.23-nccl-port-taken", "S08", "the rendezvous port is taken", "EADDRINUSE"),
    ("sglang-0.5.23-no-draft", "no-draft", "EAGLE3 has no draft of its own", "hot_token_id"),
    ("sglang-0.5.23-no-weights", "S17", "has no weights", "Cannot find any model weights"),
    ("sglang-0.5.23-out-of-memory", "S01", "was killed while it loaded", "exit code: -9"),
    ("sglang-0.5.23-pipeline", "S52", "no EAGLE-3 with pipeline parallelism", "only supports EAGLE"),
    ("sglang-0.5.23-short-draft", "S30", "the draft's max_position_embeddings is shorter", "Target model's"),
    ("sglang-0.5.23-context-too-long", "S30", "a longer context is asked for", "context_length (100000)"),
    ("sglang-0.5.23-killed-loading-tp2", "S16", "another rank has not", "without a word: TP1"),
    ("sglang-0.5.23-killed-serving-tp2", "ranks", "another rank is gone", "without a word: TP1"),
    ("sglang-0.5.23-absolute-d2t", "token-ids", "outside the vocabulary", "index out of range"),
    ("vllm-0.32.0-wrong-fc", "shape", "the draft: a tensor has another shape", "[128, 256]"),
    ("vllm-0.32.0-unknown-prefix", "names", "the draft: the checkpoint has a tensor", "named 'decoder'"),
    ("vllm-0.32.0-truncated", "weights-file", "the draft: a weights file is cut short", "incomplete metadata"),
    (
        "vllm-0.32.0-absolute-d2t",
        "token-ids",
        "a token id lies outside the vocabulary: the draft",
        "index 512 is out of bounds",
    ),
    ("vllm-0.32.0-port-taken", "port", "a port is taken", "Address already in use"),
    ("vllm-0.32.0-no-folder", "no-folder", "folder is not there", "/srv/drafts/nothing-here"),
    ("vllm-0.32.0-bad-flag", "flag", "does not take a flag", "--no-such-flag"),
    ("vllm-0.32.0-bad-method", "speculative", "refuses how it is to speculate", "Input should be 'ngram'"),
    ("vllm-0.32.0-too-long", "length", "longer than the model's own context", "max_model_len (9000)"),
    ("vllm-0.32.0-kv-big", "cache", "does not fit into the memory", "900.0 GiB"),
    ("llamacpp-truncated-draft", "cut-short", "the draft: the GGUF file is cut short", "blk.0.ffn_gate.weight"),
    ("llamacpp-truncated-model", "cut-short", "the GGUF file is cut short", "not within the file bounds"),
    ("llamacpp-port-taken", "port", "the port is taken", "couldn't bind"),
    ("llamacpp-draft-as-model", "no-context", "cannot serve on its own", "draft.gguf"),
    ("llamacpp-model-as-draft", "no-layers", "no EAGLE-3 draft", "expected 3 extract layers"),
]


@pytest.mark.parametrize(("name", "signature", "cause", "evidence"), FAILURES)
def test_a_log_of_a_server_that_died_tells_why(name, signature, cause, evidence):
    told = explained(name)
    assert told is not None
    assert told.signature == signature
    assert cause in told.cause
    assert evidence in told.evidence
    assert told.remedy


# ---- logs of one's own making


def headed(text, rank="", time="20:31:30"):
    return f"[2026-11-29 {time}{f' {rank}' if rank else ''}] {text}"


def crash(rank, *said, time="20:31:30", frame="odd"):
    opening = headed("Scheduler hit an exception: Traceback (most recent call last):", rank, time)
    return [opening, f'  File "/srv/engine/{frame}.py", line 7, in {frame}', f"    raise {frame}()", *said]


def sglang(*lines: str, seen: Seen = UNSEEN) -> Any:
    return _sglang_explain.explain("\n".join(lines), seen)


GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"
SIGQUIT = headed("Received sigquit from a child process. It usually means the child failed.")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
MLA = "ValueError: trtllm_mla backend requires MLA model"
READY = headed("The server is fired up and ready to roll!")
ODD = "odd.OddError: the moon is full"
LATE, LATER = "20:31:31", "20:31:32"

# (what stands in the log, the signature and the rank that are told)
ORDERS = {
    "the earlier of two causes": ([*crash("TP3", MLA), *crash("TP0", OOM, time=LATE)], "S29", "TP3"),
    "the earlier by its time, where logs were put behind each other": (
        [*crash("TP0", OOM, time=LATE), *crash("TP3", MLA)],
        "S29",
        "TP3",
    ),
    "a cause before consequences that came first": (
        [*crash("TP0", GLOO), SIGQUIT, *crash("TP3", MLA)],
        "S29",
        "TP3",
    ),
    "an unknown crash before a later known one": ([*crash("TP3", ODD), *crash("TP0", OOM, time=LATE)], "S03", "TP3"),
    "a known cause rather than an exception that was caught": (
        ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", ODD, *crash("TP1", MLA)],
        "S29",
        "TP1",
    ),
    "two tracebacks, a line of each in turn": (
        [
            *crash("TP3", MLA)[:2],
            headed("Load weight end. type=Llama", "TP1"),
            *crash("TP0", GLOO)[:1],
            *crash("TP3", MLA)[2:],
            SIGQUIT,
        ],
        "S29",
        "TP0",  # whose they are is told by the last head alone
    ),
    "a traceback that another one cuts in two": (
        [*crash("TP3", GLOO)[:2], *crash("TP0", MLA), *crash("TP3", GLOO)[1:]],
        "S29",
        "TP0",
    ),
    "a consequence that a cause cuts in two": (
        [*crash("TP3", MLA)[:2], *crash("TP0", GLOO), *crash("TP3", MLA)[1:]],
        "S29",
        "TP3",
    ),
    "a stray line among the frames": ([*crash("TP1", MLA)[:2], "a stray line", *crash("TP1", MLA)[2:]], "S29", "TP1"),
    "a head in the middle of another rank's line": (
        [f"Loading shards:  50%|##   | 1/2{crash('TP2', MLA)[0]}", *crash("TP2", MLA)[1:]],
        "S29",
        "TP2",
    ),
    "colours and carriage returns": (
        [
            "\x1b[31m" + crash("TP2", MLA)[0] + "\x1b[0m",
            "Loading shards:  10%|# |\rLoading shards:  20%|## |\r" + crash("TP2", MLA)[1],
            MLA,
        ],
        "S29",
        "TP2",
    ),
    "the rank that says nothing, where the others lost somebody": (
        [headed("Load weight begin.", rank) for rank in ("TP0", "TP1", "TP2")]
        + [*crash("TP0", GLOO), *crash("TP2", GLOO)],
        "ranks",
        "TP1",
    ),
    "the rank behind the others": (
        [headed("Load weight begin.", rank) for rank in ("TP0", "TP1", "TP2")]
        + [headed("Load weight end. type=Llama", rank) for rank in ("TP0", "TP2")]
        + crash("TP0", "ValueError: TP rank 0 could finish the model loading, but there are other ranks that didn't"),
        "S16",
        "TP1",
    ),
    "the first of a chain that is known": (
        [
            *crash("TP1", OOM),
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            '  File "b.py", line 2, in g',
            "    h()",
            ODD,
        ],
        "S13",
        "TP1",
    ),
    "a whole message, not its first line": (
        crash("TP1", "Exception: Capture cuda graph failed: an odd thing", "CUDA error: no kernel image is available"),
        "S26",
        "TP1",
    ),
    "a crash whose exception was cut off": (crash("TP1")[:2], "S03", "TP1"),
}


@pytest.mark.parametrize(("lines", "signature", "rank"), ORDERS.values(), ids=ORDERS)
def test_what_came_first_is_told(lines, signature, rank):
    told = sglang(*lines)
    assert (told.signature, told.rank) == (signature, rank)


def test_what_followed_is_told_once_with_its_ranks():
    after = [*crash("TP0", GLOO, time=LATE), *crash("TP1", GLOO, time=LATE)]
    told = sglang(*crash("TP3", MLA), *after, *[headed("SIGQUIT received. It means one child failed.", time=LATER)] * 2)
    assert told.consequences == (
        "ranks: another rank is gone (x 2) [TP0, TP1]",
        "S04: a process of the server failed (x 2)",
    )
    assert told.time == "2026-11-29 20:31:30"


def test_an_exception_that_no_row_knows_is_told_whole():
    opening = "Traceback (most recent call last):"
    frames = [f'  File "/srv/engine/deep.py", line {line}, in deep' for line in range(80)]
    said = ["odd.OddError: the moon is full,", "and the tide is high"]
    after = "\nThe above exception was the direct cause of the following exception:\n"
    told = sglang(
        *crash("TP1", "KeyError: 'moon'"), after, "Traceback (most recent call last):", *frames, *said, SIGQUIT
    )
    assert (told.signature, told.cause, told.rank) == ("S03", said[0], "TP1")
    lines = told.evidence.splitlines()
    assert lines[:3] == ["after KeyError: 'moon'", opening, frames[0]]
    assert lines[-3:] == [frames[-1], *said]
    assert len(lines) < 70  # but for the middle of a long way


NOTHING = [
    "",
    "\n\n",
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\n',
    headed("[Autotuner]: Skipping tactic 7, due to failure while profiling: CUDA out of memory", "TP0"),
    headed("CUDA error: no kernel image is available; falling back to triton"),
    headed("SIGTERM received. signum=None frame=None. Draining requests and shutting down..."),
]


@pytest.mark.parametrize("log", NOTHING)
@pytest.mark.parametrize("engine", [*ENGINES.values(), command])
def test_a_log_without_a_failure_explains_nothing(engine, log):
    assert engine.explain(log) is None


def test_an_unknown_server_is_explained_by_its_exception():
    told: Any = command.explain(f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n{ODD}\n')
    assert (told.signature, told.cause) == ("traceback", ODD)


# ---- what else was seen

KILLED = "Out of memory: Killed process 77 (sglang::schedul) total-vm:99kB"
BARE = [headed("server_args={'tp_size': 2}")]
# (what stands in the log, what was seen, the signature, words of its cause, words of its remedy)
SEEN = {
    "the kernel beats what the others say": ([*crash("TP0", GLOO)], Seen(exit=137, oom=(KILLED,)), "oom", "memory", ""),
    "a cause in the log beats the status": (crash("TP0", MLA), Seen(exit=139), "S29", "MLA", ""),
    "a fault beats a consequence": ([SIGQUIT], Seen(exit=135), "SIGBUS", "/dev/shm", "df /dev/shm"),
    "a consequence beats a kill": ([SIGQUIT], Seen(exit=137), "S04", "a process of the server failed", ""),
    "killed without a word": (BARE, Seen(exit=137), "SIGKILL", "no word", "dmesg"),
    "the kernel could not be asked": (BARE, Seen(exit=137, unread="not permitted"), "SIGKILL", "", "not permitted"),
    "asked to end": (BARE, Seen(exit=143), "SIGTERM", "somebody asked it to end", "history"),
    "no such program": ([], Seen(exit=127), "not-found", "not found", "engine.python"),
    "a rank is gone": (BARE, Seen(lost=("sglang::scheduler_TP1",)), "S46", "sglang::scheduler_TP1", "dmesg"),
    "an end that says nothing": (BARE, Seen(exit=1), None, "", ""),
    "compilers at work": (BARE, Seen(silent=4e2, compilers=("nvcc -c a.cu",)), "compiling", "", "wait"),
    "a silence before a word": ([], Seen(silent=400.0), "import", "nothing at all", ""),
    "a silence of one that is ready": ([READY], Seen(silent=9e3), None, "", ""),
    "a cause beats the silence after it": (crash("TP0", MLA), Seen(silent=400.0), "S29", "", ""),
    "a silence beats a consequence": (
        [headed("sglang is using nccl==2.27.7", "TP0"), SIGQUIT], Seen(silent=400.0), "S05", "", "nccl.P2P_DISABLE=1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "seen", "signature", "cause", "remedy"), SEEN.values(), ids=SEEN)
def test_what_else_was_seen_is_weighed_with_the_log(lines, seen, signature, cause, remedy):
    told = sglang(*lines, seen=seen)
    assert (told and told.signature) == signature
    assert cause in (told.cause if told else "")
    assert remedy in (told.remedy if told else "")


def test_a_silence_names_the_ranks_that_lag():
    lines = [headed("Load weight begin.", f"TP{rank}") for rank in range(4)]
    lines += [headed("Load weight end. type=Llama", f"TP{rank}") for rank in (0, 1, 3)]
    told = sglang(*lines, seen=Seen(silent=900.0))
    assert (told.signature, told.rank) == ("weights", "TP2")
    assert "behind the others: TP2" in told.evidence


def test_the_users_own_lines_come_first():
    own = Signature("fan", re.compile(r"fan (?P<fan>\d) of \w+ stopped"), "fan {fan} stands still", "call them")
    noise = Signature("noise", re.compile("moon"), "the moon", "wait", kind="consequence")
    told = sglang(headed("fan 3 of gpu1 stopped", "TP1"), *crash("TP0", MLA), seen=Seen(known=(noise, own)))
    assert (told.signature, told.cause, told.rank) == ("fan", "fan 3 stands still", "TP1")
    told = sglang(*crash("TP0", ODD), *crash("TP1", MLA, time=LATE), seen=Seen(known=(noise,)))
    assert told.signature == "S29"


MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/cat.png'"  # of a request
SHOWN = [headed("Error"), "Traceback (most recent call last):", '  File "/srv/x.py", line 7, in load', MISSING]


def test_what_says_the_same_again_does_not_follow_from_it():
    assert [words.partition(":")[0] for words in explained("vllm-0.32.0-kv-big").consequences] == ["engine", "worker"]
    told = sglang(*crash("TP0", MLA), *crash("TP1", MLA, time=LATE), *crash("TP2", MLA, time=LATE))
    assert [words.partition(" (x 2) ")[2] for words in told.consequences] == ["[TP1, TP2]"]


def test_what_torch_puts_in_front_of_a_dying_ranks_exception_tells_the_rank():
    ranks = [f"[rank{rank}]: {line}" for line in (*SHOWN[1:3], "KeyError: 'x'") for rank in (3, 1)]
    told = sglang(headed("Load weight begin.", "TP0"), *ranks)
    assert (told.cause, told.rank) == ("KeyError: 'x'", "rank 3")
    assert told.evidence.splitlines() == [*SHOWN[1:3], "KeyError: 'x'"]


def test_of_a_group_of_exceptions_the_last_one_within_it_is_told():
    told = sglang(
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/srv/x.py", line 3, in f',
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "/srv/x.py", line 9, in h',
        "    | ValueError: broken",
        "    +------------------------------------",
    )
    assert told.cause == "ValueError: broken"
    assert told.evidence.startswith("after ExceptionGroup: unhandled errors")


HUNG = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
# (what was said at 20:31:30, its name while it is the last that is known)
SURVIVED = [([headed(HUNG)], "S43"), (SHOWN, "missing-file"), ([*SHOWN[:3], "KeyError: 'x'"], "traceback")]


@pytest.mark.parametrize(("said", "name"), SURVIVED)
def test_what_was_survived_for_a_minute_is_no_failure(said, name):
    batch = "Decode batch, #running-req: 1, #token: 48"
    soon, later = headed(batch, "TP0", "20:32:29"), headed(batch, "TP0", "20:32:31")
    assert sglang(batch, *said, soon).signature == name  # of several replicas one may still answer
    assert sglang(batch, *said, soon, later) is None
    assert sglang(batch, *said, later, seen=Seen(exit=137)).signature == "SIGKILL"
    assert sglang(*said, later, *crash("TP1", MLA, time="20:33:00")).signature == "S29"


def test_a_worker_of_vllm_that_was_survived_is_no_failure():
    died = "(EngineCore pid=7) ERROR 11-30 08:37:01 [core.py:1] EngineCore encountered an issue."
    rate = "(APIServer pid=5) INFO 11-30 08:{} [loggers.py:335] Engine 000: Avg prompt throughput: 0.9 tokens/s, {}"
    works, idle = (f"Avg generation throughput: {n} tokens/s, Running: 0 reqs" for n in ("6.4", "0.0"))
    for time, words, name in [("37:09", works, "engine"), ("39:09", idle, "engine"), ("39:09", works, None)]:
        told = _vllm_explain.explain("\n".join([died, rate.format(time, words)]))
        assert (told and told.signature) == name


def test_what_clients_break_all_day_hides_no_crash():
    noise = [headed("BrokenPipeError: gone"), *SHOWN[:3], "KeyError: 'x'"] * 1000
    assert sglang(*noise, *crash("TP1", MLA, time=LATE)).signature == "S29"


def test_a_rank_that_stands_still_while_it_loads_is_named():
    told: Any = _sglang_explain.explain(read("sglang-0.5.23-stopped-loading-tp2"), Seen(silent=300.0))
    assert (told.signature, told.rank) == ("weights", "TP1")


def test_a_few_low_lines_are_no_dead_draft():
    line = "Decode batch, #running-req: 1, accept len: {:.2f}, accept rate: 0.00, cpu graph: False"
    dialect = _sglang_explain.DIALECT
    low, high = [headed(line.format(1.0))] * 4, [headed(line.format(3.2))]
    assert _explain.notes(dialect, "\n".join([*low, *high, *low])) == ()
    assert [note.signature for note in _explain.notes(dialect, "\n".join([*low, *low]))] == ["S38"]


def test_a_text_that_is_no_table_is_refused():
    with pytest.raises(ValueError, match="not a row"):
        _table.rows("S01  a\n    b\n")
