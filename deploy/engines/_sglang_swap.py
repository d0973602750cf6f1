"""How SGLang exchanges a draft's weights while it runs, 0.5.8 to 0.5.23, and where it must not be asked to.

Read in the wheels 0.5.8, .9, .10.post1, .11, .12.post1, .13.post1, .14, .15.post1, .16, .18, .20, .21, .22, .23
(srt/entrypoints/http_server.py, srt/managers, srt/speculative); run on 0.5.21, .22 and .23.
"""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import InvalidVersion, Version

from deploy.engines._ports import Said
from deploy.engines._swap import Api, Swap

DRAFT = {"selector": "draft"}
API = Api(
    pause=("/pause_generation", {"mode": "retract"}),  # running requests wait, and their cache is made anew
    checksums=("/weights_checker", {"action": "checksum", **DRAFT}),
    begin=("/begin_weight_update", DRAFT),
    # flushed once, at the end: of a flush that cannot be done here, 0.5.21 dies
    update=("/update_weights_from_tensor", {**DRAFT, "flush_cache": False}),
    end=("/end_weight_update", {}),
    flush=("/flush_cache", {}),
    resume=("/continue_generation", {}),
)
NEWEST = Version("0.5.23")  # that was read

BOTH = "its /update_weights_from_tensor writes what it is sent into the target as well as the draft, and its"
# From that version on: why not; "" where it can.
VERSIONS = (
    ("0.5.8", f"{BOTH} /update_weights_from_disk loads the target alone"),
    ("0.5.11", f"{BOTH} /update_weights_from_disk loads one folder into both"),
    ("0.5.21", ""),  # a `selector` for the draft alone, within /begin_weight_update and /end_weight_update
)
ALGORITHMS = ("EAGLE3", "EAGLE")
FORMATS = ("", "auto", "safetensors")


def swap(said: Said) -> Swap:
    """What the installed version offers a server that was started so."""
    for refusal in (_settings(said), _version(said.version)):
        if refusal:
            return Swap(None, refusal)
    if Version(Version(str(said.version)).public) > NEWEST:
        return Swap(API, f"SGLang {said.version} is newer than {NEWEST}, the newest whose hand-over was read")
    return Swap(API)


def _version(text: str | None) -> str:
    try:
        version = Version(text or "")
    except InvalidVersion:
        return "the version of SGLang is not known" if not text else f"{text} is no version of SGLang"
    if not any(version.release[:3]):
        return f"SGLang calls itself {text}, as an install does that does not know its version"
    found = "SGLang before 0.5.8 was not read"
    for first, why in VERSIONS:
        if version >= Version(first):
            found = f"SGLang {text} cannot: {why}" if why else ""
    return found


def _settings(said: Said) -> str:
    """Why the draft of a server with such flags is not exchanged, whatever its version."""
    if "speculative-draft-model-path" not in said:
        return "it was started without a draft of its own"
    if (algorithm := said.word("speculative-algorithm").upper()) not in ALGORITHMS:
        return f"only drafts of EAGLE and EAGLE3 were read, not of {algorithm or 'no algorithm'}"
    if said.nodes > 1 or (said.number("nnodes") or 1) > 1:
        return "its ranks are on several hosts, and weights are handed over in one host's shared memory"
    ours = {flag for flag in OVERRULED if OVERRULED[flag] in said}
    return next((why for flag, told, why in UNLESS if flag in said and flag not in ours and told(said.word(flag))), "")


def _many(value: str) -> bool:
    return value not in ("1", "0")


def _set(value: str) -> bool:
    return value not in ("0", "off", "null", "none", "None", "false")


def _always(_value: str) -> bool:
    return True


def _strange(value: str) -> bool:
    return value not in FORMATS


def _packed(value: str) -> bool:
    return value != "unquant"


# What a flag says of both models, another one says of the draft alone.
OVERRULED = {"load-format": "speculative-draft-load-format", "quantization": "speculative-draft-model-quantization"}
REMADE = "is made anew by each load, and captured graphs keep the one that was"
RANKS = "is not known to reach every rank of data parallelism"  # 0.5.22 refuses tensors where there are replicas
# (flag, whether that value of it matters, why)
UNLESS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("dp-size", _many, f"--dp-size: a hand-over {RANKS}"),
    ("attn-dp-size", _many, f"--attn-dp-size: a hand-over {RANKS}"),
    ("enable-dp-attention", _always, f"--enable-dp-attention: a hand-over {RANKS}"),
    ("pp-size", _many, "--pp-size: a hand-over was read for one stage of the pipeline only"),
    ("disaggregation-mode", _set, "--disaggregation-mode: requests are shared with other servers, which do not pause"),
    ("tokenizer-worker-num", _many, "--tokenizer-worker-num: a hand-over was read for one tokenizer only"),
    ("weight-cache-mode", _set, "--weight-cache-mode: the server dies of new weights (_assert_weight_cache_inactive)"),
    ("ssl-certfile", _always, "--ssl-certfile: it is asked on its host without TLS"),
    ("enable-multi-layer-eagle", _always, "--enable-multi-layer-eagle: each step has a draft of its own"),
    ("cpu-offload-gb", _set, "--cpu-offload-gb: where the draft's weights lie was not read"),
    ("offload-group-size", _set, "--offload-group-size: where the draft's weights lie was not read"),
    ("speculative-draft-load-format", _strange, "--speculative-draft-load-format: only safetensors are handed over"),
    ("load-format", _strange, "--load-format: only safetensors are handed over"),
    ("quantization", _packed, f"--quantization, which is the draft's too: a quantized weight {REMADE}"),
    ("speculative-draft-model-quantization", _packed, f"the draft is quantized: such a weight {REMADE}"),
)
