"""What a repair of a 2 GB draft costs: `deploy ckpt fix` against safetensors.torch load + save, and against `cp`.

    python -m benchmarks.checkpoint [ROUNDS [MEGABYTES]]     as root: ext4 and XFS on loop devices, else where TMPDIR is

Alternating, medians. Timed is the work alone, within the process: no interpreter's start, no import of torch. Ours
ends with everything synced; torch's does not. Targets: in place without a copy, and as a reflink, 1/50 of the time and
32 MiB of memory; as a copy 1.2 times `cp`, synced too. torch is that of `deploy engine install sglang-cpu`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from deploy import environments, host
from tests import filesystems

TENSORS = 20
Run = Callable[..., str]  # a program and its words, where the file system is mounted; its stdout

MAKE = """
import json, os, sys
folder, size, tensors = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
each = size // tensors // 2 * 2
fields = {}
for n in range(tensors):
    fields[f"layers.0.{n}.weight"] = {"dtype": "BF16", "shape": [each // 2], "data_offsets": [n * each, (n + 1) * each]}
text = json.dumps(fields, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
os.makedirs(folder)
block = os.urandom(1 << 20)
with open(f"{folder}/model.safetensors", "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    left = each * tensors
    while left:
        left -= file.write(block[: min(left, 1 << 20)])
    file.flush()
    os.fsync(file.fileno())
open(f"{folder}/config.json", "w").write("{}")
"""
OURS = """
import json, os, resource, sys, time, types
space = sys.modules["repair"] = types.ModuleType("repair")
exec(compile(sys.argv[1], "repair", "exec"), space.__dict__)
wish = json.loads(sys.argv[2])
began = time.perf_counter()
answer = space.act(wish)
taken = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": taken, "MiB": peak / 1024, "answer": answer}))
"""
TORCH = """
import json, resource, sys, time
import torch
from safetensors.torch import load_file, save_file
began = time.perf_counter()
tensors = load_file(sys.argv[1])
save_file({name.replace("layers.0", "midlayer"): tensor for name, tensor in tensors.items()}, sys.argv[2])
taken = time.perf_counter() - began
print(json.dumps({"seconds": taken, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
CP = """
import json, os, subprocess, sys, time
began = time.perf_counter()
subprocess.run(["cp", *sys.argv[1:]], check=True)
bare = time.perf_counter() - began
file = os.open(sys.argv[2], os.O_RDONLY)
os.fsync(file)
print(json.dumps({"seconds": time.perf_counter() - began, "bare": bare}))
"""


def repaired(run: Run, folder: Path, mode: str, new: str, **more: Any) -> dict[str, Any]:
    names = {f"layers.0.{number}.weight": new.format(number) for number in range(TENSORS)}
    wish = {"path": str(folder), "mode": mode, "rename": {"model.safetensors": names}, **more}
    found: dict[str, Any] = json.loads(run(sys.executable, "-I", "-c", OURS, host.source("repair"), json.dumps(wish)))
    assert "error" not in found["answer"], found["answer"]
    return found


def in_place(run: Run, folder: Path, new: str) -> dict[str, Any]:
    found = repaired(run, folder, "in-place", new, orig=False)
    repaired(run, folder, "undo", new)
    return found


def new_folder(run: Run, folder: Path) -> dict[str, Any]:
    out = folder.with_name("out")
    found = repaired(run, folder, "new", "midlayer.{}.weight", out=str(out))
    run("rm", "-r", str(out))
    return found


def by_torch(run: Run, python: str, folder: Path) -> dict[str, Any]:
    target = folder.with_name("torch.safetensors")
    found: dict[str, Any] = json.loads(run(python, "-I", "-c", TORCH, str(folder / "model.safetensors"), str(target)))
    run("rm", str(target))
    return found


def by_cp(run: Run, folder: Path) -> dict[str, Any]:
    target = folder.with_name("cp.safetensors")
    found: dict[str, Any] = json.loads(
        run(sys.executable, "-I", "-c", CP, str(folder / "model.safetensors"), str(target))
    )
    run("rm", str(target))
    return found


def measure(place: tuple[str, Run, Path], python: str, rounds: int, megabytes: int) -> None:
    name, run, at = place
    folder = at / "draft"
    run(sys.executable, "-I", "-c", MAKE, str(folder), str(megabytes << 20), str(TENSORS))
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "torch": lambda: by_torch(run, python, folder),
        "in place": lambda: in_place(run, folder, "midlayer.{}.weight"),
        "in place, longer names": lambda: in_place(run, folder, "a.much.longer.name.{}.weight"),
        "new folder": lambda: new_folder(run, folder),
        "cp": lambda: by_cp(run, folder),
    }
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, act in ways.items():
            run("dd", f"if={folder}/model.safetensors", "of=/dev/null", "bs=1M")  # making room empties the page cache
            run("sync", "-f", str(folder))  # and what somebody left to be written slows the next one down
            found[way].append(act())
    torch = median(one["seconds"] for one in found["torch"])
    for way, several in found.items():
        taken, peak = (median(one.get(key, 0) for one in several) for key in ("seconds", "MiB"))
        how = several[0].get("answer", {}).get("files", {}).get("model.safetensors", "")
        print(f"{name:<5} {way:<23} {taken * 1e3:9.1f} ms   1/{torch / taken:<7.1f} {peak:7.1f} MiB  {how}")
    copy, cp, bare = (
        median(one[key] for one in found[way])
        for way, key in (("new folder", "seconds"), ("cp", "seconds"), ("cp", "bare"))
    )
    if "copied" in found["new folder"][0]["answer"]["files"].values():
        print(f"{name:<5} new folder: {copy / cp:.2f} times cp synced, {copy / bare:.2f} times cp that is not")


@contextmanager
def places(megabytes: int) -> Iterator[Iterator[tuple[str, Run, Path]]]:
    """Each file system in turn, that of TMPDIR where none can be made."""

    def here(*argv: str) -> str:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def each() -> Iterator[tuple[str, Run, Path]]:
        for kind in filesystems.KINDS:
            if why := filesystems.missing(kind):
                print(f"{kind}: not measured: {why}")
                continue
            with filesystems.mounted(kind, folder, 3 * megabytes + 1000) as mount:
                yield kind, lambda *argv, mount=mount: checked(mount, *argv), mount.at
        if os.geteuid():
            yield "here", here, folder

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield each()


def checked(mount: filesystems.Mount, *argv: str) -> str:
    done = mount.run(*argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    engine = environments.locate("sglang-cpu")
    if engine is None:
        sys.exit("torch is that of an engine: deploy engine install sglang-cpu")
    print(f"a draft of {megabytes} MB, medians of {rounds}, load average {os.getloadavg()[0]:.1f}")
    with places(megabytes) as each:
        for place in each:
            measure(place, engine.python, rounds, megabytes)


if __name__ == "__main__":
    main()
