"""A command line held against an engine's flags: our reading of it against Python's own argparse, and every verdict.

What the real engines' parsers say is in `tests/engine/test_flags.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deploy import flags, host
from deploy.engines import vllm
from deploy.engines.sglang import ELSEWHERE
from deploy.flags import Grammar
from deploy.flags.asking import Asked, grammar
from deploy.flags.judging import judged
from deploy.flags.reading import read
from deploy.host import ask_engine
from deploy.host import flags as program
from tests.project import PATIENCE


def taken(parser: argparse.ArgumentParser, **rules: Any) -> Grammar:
    """What the host's program makes of a parser."""
    told = {"engine": "sglang", "version": "0.5.23", **program.ARGPARSE, **program.options(parser), **rules}
    return flags.parse(json.loads(json.dumps(told)))


class DeprecatedStoreTrueAction(argparse._StoreTrueAction):
    """As SGLang has it (srt/arg_groups/argparse_actions.py)."""

    new_flag = "--cuda-graph-backend-{decode,prefill}=disabled"


class DeprecatedAction(argparse._StoreTrueAction):
    error_message = "it is gone: use --attn-dp-size"


def server() -> argparse.ArgumentParser:
    """A parser with flags as SGLang 0.5.23 has them."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)
    parser.add_argument("--pipeline-parallel-size", "--pp-size", type=int)
    parser.add_argument("--pp-max-micro-batch-size", type=int)
    parser.add_argument("--cuda-graph-max-bs-decode", type=int)
    parser.add_argument("--cuda-graph-max-bs-prefill", type=int)
    parser.add_argument("--cuda-graph-backend-decode", choices=["full", "disabled"])
    parser.add_argument("--cuda-graph-bs-decode", type=int, nargs="+")
    parser.add_argument("--disable-cuda-graph", action=DeprecatedStoreTrueAction)
    parser.add_argument("--enable-dp-attention", action=DeprecatedAction)
    parser.add_argument("--dsa-decode-backend")
    parser.add_argument("--attn-dp-size", type=int)
    parser.add_argument("--grpc-mode", action="store_true", help="(Deprecated, use --smg-grpc-mode) The older one.")
    parser.add_argument("--smg-grpc-mode", action="store_true", help="Replaces the deprecated --grpc-mode.")
    parser.add_argument("--kv-cache-dtype", choices=["auto", "fp8_e5m2", "nvfp4"])
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--json-model-override-args", type=json.loads)
    parser.add_argument("--lora-paths", nargs="*")
    parser.add_argument("--middleware", action="append")
    return parser


VERDICTS = {
    "all known": ("--tp-size 8 --mem-fraction-static 0.85 --cuda-graph-bs-decode 1 2 4", "PASS", "3 flags", ""),
    "inline": ("--tp-size=8", "PASS", "1 flags", ""),
    "a negative number": ("--tp-size -1", "PASS", "1 flags", ""),
    "all of several count": ("--middleware a --middleware b", "PASS", "2 flags", ""),
    "only its help speaks of an older one": ("--smg-grpc-mode", "PASS", "1 flags", ""),
    "JSON": ('--json-model-override-args {"rope":1}', "PASS", "1 flags", ""),
    "unknown": ("--mem-fraction-statik 0.8", "FAIL", "has no flag --mem-fraction-statik", "--mem-fraction-static?"),
    "underscores": ("--tp_size 8", "FAIL", "has no flag --tp_size", "--tp-size?"),
    "ambiguous": ("--pp 2", "FAIL", "--pp may be any of 2 flags", "whole name"),
    "ambiguous since it was split": ("--cuda-graph-max-bs 16", "FAIL", "any of 2", "use --cuda-graph-max-bs-decode"),
    "renamed": ("--nsa-decode-backend x", "FAIL", "no flag --nsa-decode-backend", "use --dsa-decode-backend"),
    "short": ("--tensor-par 8", "WARN", "short for --tensor-parallel-size", "write --tensor-parallel-size"),
    "deprecated": ("--disable-cuda-graph", "WARN", "deprecated in sglang 0.5.23", "use --cuda-graph-backend-{decode"),
    "deprecated by its help": ("--grpc-mode", "WARN", "--grpc-mode is deprecated", "use --smg-grpc-mode"),
    "refused": ("--enable-dp-attention", "FAIL", "does not start with it", "use --attn-dp-size"),
    "no choice": ("--kv-cache-dtype fp8_e5m3", "FAIL", "knows no 'fp8_e5m3'", "did you mean fp8_e5m2?"),
    "a choice of another version": ("--kv-cache-dtype fp4_e2m1", "FAIL", "knows no 'fp4_e2m1'", "did you mean nvfp4?"),
    "no number": ("--tp-size two", "FAIL", "takes a whole number, not 'two'", ""),
    "no whole number": ("--tp-size 1.5", "FAIL", "takes a whole number, not '1.5'", ""),
    "one of several is none": ("--cuda-graph-bs-decode 1 x", "FAIL", "not 'x'", ""),
    "no float": ("--mem-fraction-static 85%", "FAIL", "takes a number, not '85%'", ""),
    "no JSON": ("--json-model-override-args {rope:1}", "FAIL", "takes JSON", ""),
    "no value": ("--tp-size", "FAIL", "wants a value, and has none", ""),
    "a flag for a value": ("--tp-size --grpc-mode", "FAIL", "wants a value, and has none", ""),
    "not one of several": ("--cuda-graph-bs-decode", "FAIL", "wants at least one value", ""),
    "a value for a bare one": ("--grpc-mode=1", "FAIL", "takes no value", ""),
    "a word of nobody's": ("--grpc-mode true", "FAIL", "true: belongs to no flag", "remove it"),
    "twice": ("--tp-size 8 --tensor-parallel-size 4", "WARN", "given 2 times, and the last one counts", ""),
}


@pytest.mark.parametrize("case", VERDICTS.values(), ids=VERDICTS)
def test_a_verdict_says_what_is_wrong_and_what_to_write(case):
    line, verdict, what, remedy = case
    found = judged(line.split(), taken(server()), ELSEWHERE)
    told = next(finding for finding in found if what in finding.what)
    assert (told.check, told.verdict) == ("flags", verdict)
    assert remedy in told.remedy
    worst = "FAIL" if verdict == "FAIL" else "WARN"
    assert {finding.verdict for finding in found} <= {verdict, "WARN", worst}


@pytest.mark.parametrize("line", ["--api-key k33p --api-key k33p", "--api-key=k33p --api-key=k33p", "--ap-key k33p"])
def test_no_secret_is_told(line):
    parser = server()
    parser.add_argument("--api-key")
    found = judged(line.split(), taken(parser), ELSEWHERE)
    assert [finding.verdict for finding in found] in (["WARN"], ["FAIL"])
    assert "k33p" not in str(found)


def test_everything_that_is_wrong_is_told_at_once():
    found = judged("--tp-size two --pp 2 --nonsense --disable-cuda-graph".split(), taken(server()), ELSEWHERE)
    assert [finding.verdict for finding in found] == ["FAIL", "FAIL", "FAIL", "WARN"]


@pytest.mark.parametrize("row", [*ELSEWHERE, *vllm.ELSEWHERE])
def test_a_row_has_the_newest_spelling_first(row):
    """So its newest is offered where both are there; and no spelling stands in two rows."""
    words = row.split()
    assert len(words) > 1
    assert all(word.startswith("--") for word in words)
    assert [other for other in [*ELSEWHERE, *vllm.ELSEWHERE] if set(other.split()) & set(words)] == [row]


# ---- our reading against argparse ------------------------------------------------------------------------------------

NAMES = ("--a", "--ab", "--abc", "--b-size", "--b-sizes", "--c", "-t", "-tp")
KINDS: dict[str, Any] = {"int": int, "float": float, "json": json.loads, "": None}


@st.composite
def parsers(draw: st.DrawFn) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    while names:
        mine = [names.pop() for _ in range(min(len(names), draw(st.integers(1, 2))))]
        if draw(st.booleans()):
            parser.add_argument(*mine, action="store_true", dest="x" + mine[0])
            continue
        many: Any = draw(st.sampled_from([None, "?", "*", "+", 2]))
        choices = draw(st.sampled_from([None, None, ["1", "x"]]))
        kind: Any = None if choices else KINDS[draw(st.sampled_from(sorted(KINDS)))]
        parser.add_argument(*mine, nargs=many, type=kind, choices=choices, dest="x" + mine[0])
    return parser


WORDS = st.sampled_from(
    [*NAMES, "--b", "--b-s", "--unknown", "-tp8", "-t8", "--a=1", "--ab=x", "--b-=1", "-tp=1", "-u"]
)
VALUES = st.sampled_from(
    ["1", "x", "-1", "1.5", "1e3", '{"a":', "{}", "nan", "a b", "1_0", "-", "", " 7 ", "0x1", "-.5"]
)


@settings(max_examples=600, deadline=None)
@given(parser=parsers(), line=st.lists(WORDS | VALUES, max_size=6))
@example(parser=server(), line=["--tp-size", "8", "--tp", "4"])
def test_it_fails_where_argparse_fails_and_only_there(parser, line):
    refused = ""
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            parser.parse_args(line)
    except SystemExit:
        refused = said.getvalue()
    found = judged(line, taken(parser))
    failed = [finding.what for finding in found if finding.verdict == "FAIL"]
    assert bool(failed) == bool(refused), (failed, refused)


# ---- the host's program ----------------------------------------------------------------------------------------------


def human(value: str) -> int:
    return int(value[:-1]) * 1000 if value.endswith("k") else int(value)


def or_auto(value: str) -> int:
    return -1 if value == "auto" else int(value)


KIND_OF = {
    "int": (int, ("int", [])),
    "float": (float, ("float", [])),
    "JSON": (json.loads, ("json", ["null"])),
    "7k": (human, ("size", [])),
    "a word beside": (or_auto, ("int", ["auto"])),
    "text": (str, ("", [])),
    "nothing": (None, ("", [])),
    "anything": (lambda text: text, ("", [])),
    "what nobody foresaw": (lambda text: {"full": 1}[text], ("", [])),
}


@pytest.mark.parametrize("case", KIND_OF.values(), ids=KIND_OF)
def test_what_a_converter_wants_is_found_by_trying_it(case):
    convert, expected = case
    assert program.kind_of(convert) == expected


HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use during generation (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
--rope-scaling {none,linear,yarn}       RoPE frequency scaling method, defaults to linear unless specified by
                                        the model
--control-vector-layer-range START END
                                        layer range to apply the control vector(s) to, start and end inclusive
--mlock                                 DEPRECATED in favor of --load-mode: force system to keep model in
                                        RAM
--load-mode MODE                        how model files are read
-dt,   --defrag-thold N                 KV cache defragmentation threshold (DEPRECATED)
                                        (env: LLAMA_ARG_DEFRAG_THOLD)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)


----- example-specific params -----

--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
--spec-draft-n-max N                    number of tokens to draft for speculative decoding (default: 3)
-np,   --parallel N                     number of server slots (default: -1, -1 = auto)
"""
BY_HELP = {
    "all known": ("-t 8 --flash-attn on -np 4 --no-kv-offload", "PASS", "4 flags"),
    "underscores": ("--spec_draft_n_max 3", "PASS", "1 flags"),
    "two values": ("--control-vector-layer-range 1 5", "PASS", "1 flags"),
    "one value too few": ("--control-vector-layer-range 1", "FAIL", "wants 2 values"),
    "no abbreviations": ("--thread 8", "FAIL", "has no flag --thread"),
    "no = between": ("--threads=8", "FAIL", "has no flag --threads=8"),
    "a choice": ("--rope-scaling yarn", "PASS", "1 flags"),
    "no choice": ("--rope-scaling yarm", "FAIL", "knows no 'yarm'"),
    "deprecated": ("--defrag-thold 0.1", "WARN", "--defrag-thold is deprecated"),
    "deprecated in favor": ("--mlock", "WARN", "--mlock is deprecated"),
    "removed": ("--draft-max 3", "FAIL", "--draft-max: llama-server does not start with it"),
}


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A program that prints its flags as llama-server does."""
    path = tmp_path / "llama-server"
    (tmp_path / "help").write_text(HELP)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && echo run >>{tmp_path}/asked && exec cat {tmp_path}/help\nexit 1\n'
    )
    path.chmod(0o755)
    return path


class Here:
    """As much of a host as is asked: this machine."""

    def python(self, source: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> Any:
        argv = [sys.executable, "-I", "-c", source, *args]
        done = subprocess.run(argv, input=stdin, capture_output=True, check=True, timeout=timeout)
        return json.loads(done.stdout)


def known(asked: Asked, cache: Path | str = "") -> Grammar:
    found = grammar(asked, Here(), str(cache))
    assert isinstance(found, Grammar), found
    return found


@pytest.mark.parametrize("case", BY_HELP.values(), ids=BY_HELP)
def test_a_binary_is_known_by_its_help(case):
    line, verdict, what = case
    told = {"engine": "llama-server", "version": "", **program.OWN, "options": program.read_help(HELP)}
    (found,) = judged(line.split(), flags.parse(told))
    assert (found.verdict, what in found.what) == (verdict, True), found


def test_a_removed_flag_is_told_with_the_new_one():
    told = {"engine": "llama-server", "version": "", **program.OWN, "options": program.read_help(HELP)}
    (found,) = judged(["--draft-max", "3"], flags.parse(told))
    assert found.remedy == "use --spec-draft-n-max"
    (found,) = judged(["--mlock"], flags.parse(told))
    assert found.remedy == "use --load-mode"


def test_a_binary_is_asked_once_until_it_is_another_file(binary: Path, tmp_path: Path) -> None:
    asked = Asked(str(binary), sys.executable, {})
    first = known(asked, tmp_path / "cache")
    assert known(asked, tmp_path / "cache") == first
    assert "--parallel" in first.by_name
    (tmp_path / "help").write_text(HELP + "--newer N    what is new\n")
    os.utime(binary, ns=(1, 1))
    assert "--newer" in known(asked, tmp_path / "cache").by_name
    assert (tmp_path / "asked").read_text().split() == ["run", "run"]


SILENT: dict[str, tuple[str, str]] = {
    "no such program": ("", "No such file"),
    "no flags": ("#!/bin/sh\necho hello\n", "tells no flags"),
    "flags of another kind": ("#!/bin/sh\necho '  --model-path MODEL'\n", "tells no flags"),
    "it dies": ("#!/bin/sh\nkill -9 $$\n", "tells no flags"),
    "it cannot be run": ("no program at all", "does not tell its flags"),
}


@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT)
def test_a_binary_that_does_not_tell_is_told_as_that(case, tmp_path):
    text, words = case
    path = tmp_path / "bin" / "llama-server"
    path.parent.mkdir()
    if text:
        path.write_text(text)
        path.chmod(0o755)
    assert words in str(grammar(Asked(str(path), sys.executable, {}), Here(), ""))


def test_an_interpreter_without_the_engine_is_told_as_that(tmp_path):
    assert "sglang is not installed for" in str(grammar(Asked("sglang", sys.executable, {}), Here(), str(tmp_path)))
    assert "does not exist" in str(grammar(Asked("sglang", "/no/python", {}), Here(), str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


LAUNCHER = {
    "all known": ("--model m --n-gpu-layers 999 --ctx-size 512 --no-warmup --metrics", "PASS", "5 flags"),
    "an attribute's own name": ("--n-batch 512", "PASS", "1 flags"),
    "no number": ("--ctx-size long", "FAIL", "takes a whole number, not 'long'"),
    "no truth": ("--warmup maybe", "FAIL", "takes true or false, not 'maybe'"),
    "unknown": ("--modell m", "FAIL", "has no flag --modell"),
}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Grammar]:
    """The real llama.cpp of the package xllamacpp, as its launcher takes flags."""
    yield known(Asked("xllamacpp", sys.executable, {}))


@pytest.mark.parametrize("case", LAUNCHER.values(), ids=LAUNCHER)
def test_the_flags_of_llamacpps_launcher_are_judged_as_it_would_itself(case, launcher, tmp_path):
    line, verdict, what = case
    (found,) = judged(line.split(), launcher)
    assert (found.verdict, what in found.what) == (verdict, True), found
    argv = [sys.executable, "-c", host.source("llama_server"), *line.split()]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=PATIENCE, cwd=tmp_path, text=True)
    wrong = "there is no file" not in done.stderr and "--model is missing" not in done.stderr
    assert wrong is (verdict == "FAIL"), done.stderr


def test_an_answer_of_somebody_elses_is_no_grammar():
    class Odd:
        def python(self, *_: Any, **__: Any) -> Any:
            return {"version": "1", "options": [{"names": []}]}

    assert "answers what nobody understands" in str(grammar(Asked("sglang", "python3", {}), Odd(), ""))


def test_where_nothing_can_be_kept_it_is_asked_each_time(binary: Path, tmp_path: Path) -> None:
    job = {"python": sys.executable, "env": {}, "engine": str(binary), "program": host.source("flags")}
    rest: dict[str, Any] = {"question": {}, "cache": "", "timeout": 60.0}
    assert "cached" not in ask_engine.ask({**job, **rest})
    assert "cached" not in ask_engine.ask({**job, **rest})
    assert len((tmp_path / "asked").read_text().split()) == 2


def test_dotted_flags_are_keys_of_their_own():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--speculative-config", "-sc", type=json.loads)
    parser.add_argument("model", nargs="?")
    grammar_ = taken(parser, dotted=True, underscores=True)
    line = "m --speculative_config.method eagle3 --speculative-config.model /draft --speculative-config.method mtp"
    uses, alone = read(line.split(), grammar_)
    assert ([use.key for use in uses], alone) == (["method", "model", "method"], ["m"])
    assert [(f.verdict, "config.method is given 2 times" in f.what) for f in judged(line.split(), grammar_)] == [
        ("WARN", True)
    ]
