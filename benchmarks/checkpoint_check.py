"""How long `deploy ckpt show` and `deploy ckpt check` take, whole commands, against `json.loads` of the same headers.

    python -m benchmarks.checkpoint_check [ROUNDS]

Models are sparse files with the names and shapes of Kimi K2.5's experts: 600 GB in 64 shards with their index, and 1 TB
in 200; a 2 GB draft whose bytes are random is looked into as well. Alternating, medians; the peer is one python3 that
reads headers and index with `json` and does nothing else. Targets: 1 s each; memory of `show` the same for both models.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tests.checkpoints import sharded, weights

READ = """
import glob, json, sys
for name in glob.glob(sys.argv[1] + "/*.safetensors"):
    with open(name, "rb") as file:
        json.loads(file.read(int.from_bytes(file.read(8), "little")))
with open(sys.argv[1] + "/model.safetensors.index.json", "rb") as file:
    json.load(file)
"""
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
Tensors = dict[str, tuple[str, list[int]]]


def model(folder: Path, shards: int, hidden: int) -> Path:
    """207,360 tensors in so many shards: 60 layers of 384 experts, each three matrices of packed 4-bit weights."""
    tensors: Tensors = {}
    for layer in range(1, 61):
        for expert in range(384):
            for part in ("gate", "up", "down"):
                name = f"language_model.model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"
                tensors[f"{name}_packed"] = ("I32", [2048, hidden // 8])
                tensors[f"{name}_scale"] = ("BF16", [2048, hidden // 32])
                tensors[f"{name}_shape"] = ("I32", [2])
    names = list(tensors)
    each = -(-len(names) // shards)
    parts: Mapping[str, Tensors] = {
        f"model-{n + 1:05}-of-{shards:06}.safetensors": {name: tensors[name] for name in names[n * each :][:each]}
        for n in range(shards)
    }
    return sharded(folder, parts, {"architectures": ["KimiK25ForConditionalGeneration"], "hidden_size": hidden})


def draft(folder: Path) -> Path:
    """2 GB in twenty matrices."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    block = os.urandom(1 << 20)
    weights(folder / "model.safetensors", {f"layers.0.{n}.weight": ("BF16", [7168, 7168]) for n in range(20)})
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(0, os.SEEK_END)
        left = file.tell() - 4096
        file.seek(4096)
        while left:
            left -= file.write(block[: min(left, 1 << 20)])
    return folder


def timed(argv: list[str]) -> tuple[float, float]:
    """(seconds, MiB of memory) of a whole command."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", MEASURED, *argv], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, int(done.stdout) / 1024


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    command = [sys.executable, "-m", "deploy", "ckpt"]
    with tempfile.TemporaryDirectory(prefix="deploy-bench-") as place:
        small, large = model(Path(place, "600GB"), 64, 7168), model(Path(place, "1TB"), 200, 12288)
        looked = draft(Path(place, "draft"))
        cases = {
            "json.loads, 64 shards": [sys.executable, "-c", READ, str(small)],
            "ckpt check, 64 shards of 600 GB": [*command, "check", str(small)],
            "ckpt show, 64 shards of 600 GB": [*command, "show", str(small)],
            "ckpt show, 200 shards of 1 TB": [*command, "show", str(large)],
            "ckpt check, a draft of 2 GB": [*command, "check", str(looked)],
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(rounds + 1):  # the first one fills the page cache
            for name, argv in cases.items():
                found[name].append(timed(argv))
    peer = [seconds for seconds, _ in found["json.loads, 64 shards"][1:]]
    for name, runs in found.items():
        ratios = [seconds / least for (seconds, _), least in zip(runs[1:], peer, strict=True)]
        seconds, memory = median(one for one, _ in runs[1:]), max(peak for _, peak in runs[1:])
        print(f"{name:<34} {seconds:6.2f} s   {median(ratios):5.2f} x json.loads   {memory:6.1f} MiB")
    print(json.dumps({"cpus": os.cpu_count(), "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
