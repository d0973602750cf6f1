"""Whether SGLang can exchange a draft's weights while it runs: by version, and by how it was started."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.engines._ports import Said
from deploy.engines._sglang_swap import API, swap

DRAFTED = {"speculative-draft-model-path": "d", "speculative-algorithm": "EAGLE3"}


def said(version: str | None = "0.5.23", nodes: int = 1, **flags: Any) -> Said:
    spelled = {**DRAFTED, **{name.replace("_", "-"): value for name, value in flags.items()}}
    words = {name: () if value is None else (str(value),) for name, value in spelled.items() if value is not ...}
    return Said(words, nodes=nodes, version=version)


TARGET_TOO = "writes what it is sent into the target as well"
VERSIONS = {
    "0.5.7": "was not read", "0.5.8": TARGET_TOO, "0.5.9": "loads the target alone", "0.5.10.post1": TARGET_TOO,
    "0.5.11": "one folder into both", "0.5.12.post1": "one folder into both", "0.5.20": TARGET_TOO,
    "0.5.21rc1": TARGET_TOO, "0.5.21": "", "0.5.22": "", "0.5.23": "", "0.5.23+cpu": "",
    None: "not known", "0.0.0": "does not know its version", "nightly": "no version",
}  # fmt: skip


@pytest.mark.parametrize(("version", "why"), VERSIONS.items())
def test_by_version(version: str | None, why: str) -> None:
    found = swap(said(version))
    assert (found.api is None, why in found.why, bool(found.why)) == (bool(why), True, bool(why)), found


@pytest.mark.parametrize("version", ["0.5.24", "0.5.23.post1", "0.6", "1.0rc1"])
def test_a_version_that_nobody_has_read_is_asked_by_who_insists(version: str) -> None:
    found = swap(said(version))
    assert (found.api, "newer than 0.5.23" in found.why) == (API, True)


FITS: list[dict[str, Any]] = [
    {}, {"tp_size": 8}, {"dp_size": 1}, {"load_format": "auto"}, {"speculative_algorithm": "eagle"},
    {"weight_cache_mode": "off"}, {"quantization": "fp8", "speculative_draft_model_quantization": "unquant"},
    {"load_format": "dummy", "speculative_draft_load_format": "auto"},
]  # fmt: skip
UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"speculative_draft_model_path": ...}, "without a draft"),
    ({"speculative_algorithm": "STANDALONE"}, "STANDALONE"),
    ({"nodes": 2}, "several hosts"),
    ({"nnodes": 2}, "several hosts"),
    ({"dp_size": 2}, "--dp-size"),
    ({"attn_dp_size": 4}, "--attn-dp-size"),
    ({"enable_dp_attention": None}, "--enable-dp-attention"),
    ({"ssl_certfile": "c"}, "without TLS"),
    ({"pp_size": 2}, "--pp-size"),
    ({"disaggregation_mode": "decode"}, "--disaggregation-mode"),
    ({"tokenizer_worker_num": 2}, "--tokenizer-worker-num"),
    ({"weight_cache_mode": "attach"}, "dies of new weights"),
    ({"quantization": "fp8"}, "--quantization"),
    ({"speculative_draft_model_quantization": "fp8"}, "is quantized"),
    ({"load_format": "dummy"}, "--load-format"),
    ({"speculative_draft_load_format": "gguf"}, "only safetensors"),
    ({"cpu_offload_gb": 10}, "--cpu-offload-gb"),
]


@pytest.mark.parametrize("flags", FITS, ids=str)
def test_such_a_server_takes_another_draft(flags: dict[str, Any]) -> None:
    assert swap(said(**flags)).why == ""


@pytest.mark.parametrize(("flags", "words"), UNFIT, ids=[str(flags) for flags, _ in UNFIT])
@pytest.mark.parametrize("version", ["0.5.23", "0.6"])
def test_such_a_server_does_not_whatever_its_version(flags: dict[str, Any], words: str, version: str) -> None:
    found = swap(said(version, **flags))
    assert (found.api, words in found.why) == (None, True), found


def test_what_is_asked_is_a_draft_of_json() -> None:
    asked = json.loads(json.dumps(API.to_json()))
    assert [path for path, _ in asked.values()] == [
        "/pause_generation", "/weights_checker", "/begin_weight_update", "/update_weights_from_tensor",
        "/end_weight_update", "/flush_cache", "/continue_generation",
    ]  # fmt: skip
    draft = [path for path, body in asked.values() if body.get("selector") == "draft"]
    assert draft == ["/weights_checker", "/begin_weight_update", "/update_weights_from_tensor"]
