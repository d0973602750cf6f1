"""What is launched: each case's log lies in `tests/fixtures/logs`, `python -m tests.record_logs` makes it again."""

from __future__ import annotations

import functools
import json
import shutil
import signal
from pathlib import Path
from typing import Any

from tests import launches, places
from tests.launches import Launch, asked, ended, health, signalled
from tests.project import EXAMPLES

READY = launches.READY["sglang"]
TWO = {"tp-size": 2}
NO_BACKENDS = dict.fromkeys(f"{use}-attention-backend" for use in ("prefill", "decode", "speculative-draft"))
BOUND = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
GENERATED = r"POST /generate HTTP/1\.1\" 200"
STOPPED = r"Application shutdown complete"
SERVED = ((READY, asked()), (r"Decode batch", lambda running: None), (GENERATED, ended))
LOADS = r"TP1\] Load weight begin"
NEARLY = r"TP1\] Memory baseline taken"  # some tenths of a second before, in which ranks do not talk to each other


def copied(folder: Path, source: Path, **keys: Any) -> Path:
    """A copy of a checkpoint whose config.json says something else; a key that is ... is taken out."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    changed = {key: value for key, value in {**config, **keys}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(changed, indent=1))
    return folder


def broken(name: str):
    """A draft of `make_dead.py`."""
    return lambda folder: places.broken(name, folder)


def draft(**keys):
    """The healthy draft, its config.json changed."""
    return lambda folder: copied(folder, EXAMPLES / "draft", **keys)


def target(**keys):
    """The healthy target, its config.json changed."""
    return lambda folder: copied(folder, EXAMPLES / "target", **keys)


def speculators(folder: Path) -> Path:
    """The healthy draft as the Speculators library describes one: no `model_type`, the layer in an object of its own
    (sglang.md 2.1).
    """
    config = json.loads((EXAMPLES / "draft/config.json").read_text())
    own = ("architectures", "draft_vocab_size", "eagle_config", "tie_word_embeddings", "target_hidden_size")
    layer = {key: value for key, value in config.items() if key not in own}
    folder = copied(folder, EXAMPLES / "draft")
    said = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": config["draft_vocab_size"],
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy"},
    }
    (folder / "config.json").write_text(json.dumps(said, indent=1))
    return folder


def nowhere(folder: Path) -> Path:
    """No folder at all."""
    return folder


def own_code(folder: Path) -> Path:
    """A target that brings its own class."""
    return copied(folder, EXAMPLES / "target", model_type="odd", auto_map={"AutoConfig": "configuration_odd.OddConfig"})


def no_weights(folder: Path) -> Path:
    """A target of everything but its weights."""
    copied(folder, EXAMPLES / "target")
    (folder / "model.safetensors").unlink()
    return folder


two = functools.partial(Launch, args=TWO, env=BOUND)

LAUNCHES = {
    "good": Launch(acts=SERVED, until=STOPPED),
    "good-tp2": two(acts=SERVED, until=STOPPED),
    # four heads on three ranks: on a CPU it fills up
    "good-tp3": Launch(args={"tp-size": 3}, env={"SGLANG_CPU_OMP_THREADS_BIND": "0|1|1"}),
    "no-d2t": Launch(draft=broken("no-d2t"), acts=SERVED, until=STOPPED),
    # the draft
    "no-folder": Launch(told="no-folder", draft=nowhere),
    "no-draft": Launch(told="no-draft", args={"speculative-draft-model-path": None}),
    "wrong-fc": Launch(told="S35", draft=broken("wrong-fc")),
    "wrong-fc-tp2": two(told="S35", rank="TP[01]", draft=broken("wrong-fc")),
    "truncated": Launch(told="weights-file", draft=broken("truncated")),
    "absolute-d2t": Launch(told="token-ids", draft=broken("absolute-d2t")),
    "speculators": Launch(told="S31", draft=speculators),
    "no-draft-vocab": Launch(told="S33", draft=draft(draft_vocab_size=...)),
    "null-target-hidden": Launch(told="S34", draft=draft(target_hidden_size=None)),
    "short-draft": Launch(told="S30", draft=draft(max_position_embeddings=1024)),
    # the target
    "no-weights": Launch(told="S17", model=no_weights),
    "context-too-long": Launch(told="S30", args={"context-length": 100000}),
    "own-code": Launch(told="remote-code", model=own_code),
    "hub": Launch(told="no-hub", args={"model-path": "nobody/nothing"}),
    # what does not fit
    "no-tree-backend": Launch(told="backend", args={"attention-backend": "intel_amx", **NO_BACKENDS}),
    # which no row knows
    "other-backends": Launch(told="S03", args={**NO_BACKENDS, "speculative-draft-attention-backend": "intel_amx"}),
    "twice-one-layer": Launch(
        told="aux-layers", draft=draft(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 2]})
    ),
    # flags
    "bad-flag": Launch(told="S50", args={"no-such-flag": True}),
    "ambiguous-flag": Launch(told="S49", args={"cuda-graph-max-bs": 8}),
    "bad-algorithm": Launch(told="S51", args={"speculative-algorithm": "EAGEL3"}),
    "pipeline": Launch(told="S52", args={"pp-size": 2}, env=BOUND),
    # ports and ranks
    "port-taken": Launch(told="S11", taken=lambda port: port, until=r"address already in use", quiet=60),
    "nccl-port-taken": Launch(
        told="S08", args={"nccl-port": "{after}"}, taken=lambda port: port + 1, env={"SGLANG_WAIT_PORT_TIMEOUT": "5"}
    ),
    "rendezvous-taken": two(
        told="S08",
        rank="TP0",
        args={**TWO, "nnodes": 2, "node-rank": 0, "dist-init-addr": "127.0.0.1:{after}"},
        taken=lambda port: port + 1,
    ),
    "missing-rank": two(
        told="S07", args={**TWO, "nnodes": 2, "node-rank": 0, "dist-init-addr": "127.0.0.1:{after}", "dist-timeout": 15}
    ),
    # memory
    "no-room": Launch(told="S12", args={"mem-fraction-static": 1e-7, "max-total-tokens": None}),
    # made-up weights, 1.8 GB of them: what the scheduler fills when the kernel ends it
    "out-of-memory": Launch(
        told="S01",
        rank="rank 0",
        args={"load-format": "dummy", "speculative-draft-load-format": "auto"},
        model=target(intermediate_size=400_000),
        memory=2200 << 20,
    ),
    # children
    "killed-loading-tp2": two(  # rank 0 waits for it in vain, or their parent, which looks for dead ones, comes first
        told="S16",
        rank="TP1",
        other=(1, "S01", "rank 1"),
        acts=((NEARLY, signalled("sglang::scheduler_TP1", signal.SIGKILL)),),
    ),
    "killed-serving-tp2": two(
        told="ranks", rank="TP1", acts=((READY, signalled("sglang::scheduler_TP1", signal.SIGKILL)),)
    ),
    "killed-detokenizer": Launch(told="S45", acts=((READY, signalled("sglang::detokenizer", signal.SIGKILL)),)),
    "segfault-loading": Launch(
        told="native",
        acts=(("Load weight begin", signalled("sglang::scheduler", signal.SIGSEGV)),),
    ),
    "stopped-loading-tp2": two(
        told="weights", rank="TP1", acts=((LOADS, signalled("sglang::scheduler_TP1", signal.SIGSTOP)),), quiet=20
    ),
    # between two steps: its watchdog, which watches steps alone, says nothing
    "stopped-serving-tp2": two(
        told="S43",
        args={**TWO, "watchdog-timeout": 10},
        env={**BOUND, "SGLANG_HEALTH_CHECK_TIMEOUT": "3"},
        acts=((READY, signalled("sglang::scheduler_TP1", signal.SIGSTOP)), ("", health)),
        until="Health check failed",
    ),
    "stopped-decoding-tp2": two(
        told="S42",
        rank="TP0",
        args={**TWO, "watchdog-timeout": 10},
        acts=((READY, asked(1500)), ("Decode batch", signalled("sglang::scheduler_TP1", signal.SIGSTOP))),
    ),
    # its own first request
    "proxy": Launch(
        quiet=200, told="S44", env={"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    ),
    # serving
    "cache-full": Launch(
        noted="S55",
        args={"max-total-tokens": 700, "schedule-conservativeness": 0.0},
        acts=((READY, asked(300, 4)), ("Retract", ended)),
        until=STOPPED,
    ),
    "stopped-then-ended": Launch(
        noted="S57",
        acts=((READY, asked()), (GENERATED, signalled("sglang::scheduler", signal.SIGSTOP)), ("", ended)),
        quiet=60,
    ),
}
