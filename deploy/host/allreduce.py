"""How fast the GPUs of a host add up tensors among themselves, with the engine's own torch: all-reduce.

As a program of the host's python3, with a job as JSON on stdin:

    {"python": the engine's interpreter, "env": {...}, "program": this text, "ranks": 8, "backend": "nccl" or "gloo",
     "bytes": [65536, 268435456], "still": 60, "seconds": 240}

it starts itself once for each rank in that interpreter (`rank NUMBER RANKS BACKEND PORT BYTES,...`), and prints
{"ranks": {"0": {"phase": the last one, "pid", ...}}, "hung": bool, "errors": {"0": last words}, "left": [pids]}. A
rank tells its phases as they come: imported, joined (the group), first (all-reduce), and done with the seconds of one
all-reduce by bytes and whether the sums are right. `hung`: no rank told anything for `still` seconds; all are killed.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer; as a rank it has torch.

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

ROUNDS = 20  # of each size, fewer where one takes long
BUDGET = 3.0  # seconds for all rounds of a size
ADDRESS = "127.0.0.1"


def main() -> None:
    if sys.argv[1:2] == ["rank"]:
        number, ranks, backend, port, sizes = sys.argv[2:]
        rank(int(number), int(ranks), backend, int(port), [int(size) for size in sizes.split(",")])
    else:
        print(json.dumps(conduct(json.load(sys.stdin))))


# ---- of the host: start the ranks, hear them, end them --------------------------------------------------------------


def conduct(job: dict[str, Any]) -> dict[str, Any]:
    python = shutil.which(os.path.expanduser(job["python"]))
    if python is None:
        return {"ranks": {}, "hung": False, "errors": {"0": "{} does not exist".format(job["python"])}, "left": []}
    heard: queue.Queue[tuple[int, Any]] = queue.Queue()
    children = [Child(0, 0, python, job, heard)]
    told: dict[int, dict[str, Any]] = {}
    hung, until = False, time.monotonic() + job["seconds"]
    ended: set[int] = set()
    while not hung and len(ended) < len(children):
        left = min(float(job["still"]), until - time.monotonic())
        hung = left <= 0
        try:
            number, said = heard.get(timeout=max(left, 0.01))
        except queue.Empty:
            hung = True
            continue
        if said is None:
            ended.add(number)
            if told.get(number, {}).get("phase") != "done":
                break  # the others would wait for it until their own time is over
            continue
        told[number] = {**told.get(number, {}), **said}
        if said.get("port"):
            others = range(1, job["ranks"])
            children += [Child(other, said["port"], python, job, heard) for other in others]
    for child in children:
        child.end(slow=not hung and len(ended) == len(children))
    return {
        "ranks": {str(child.number): {**told.get(child.number, {"phase": ""}), "pid": child.pid} for child in children},
        "hung": hung,
        "errors": {str(child.number): child.words() for child in children if child.failed()},
        "left": [child.pid for child in children if child.process.poll() is None],
    }


class Child:
    """One rank. It stays in our group, so that whoever ends us ends it too."""

    def __init__(self, number: int, port: int, python: str, job: dict[str, Any], heard: Any) -> None:
        self.number = number
        sizes = ",".join(str(size) for size in job["bytes"])
        words = ["rank", str(number), str(job["ranks"]), job["backend"], str(port), sizes]
        self.process = subprocess.Popen(
            [python, "-c", job["program"], *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **job["env"]},
        )
        self.pid = self.process.pid
        self._killed = False
        self._last = b""
        self._errors = threading.Thread(target=self._listen, daemon=True)
        self._errors.start()
        threading.Thread(target=self._hear, args=(heard,), daemon=True).start()

    def _hear(self, heard: Any) -> None:
        for line in self.process.stdout or ():
            with contextlib.suppress(ValueError):  # a library's own words
                said = json.loads(line)
                if isinstance(said, dict) and "phase" in said:
                    heard.put((self.number, said))
        self.process.wait()
        heard.put((self.number, None))

    def _listen(self) -> None:
        for line in self.process.stderr or ():
            self._last = (self._last + line)[-4000:]

    def end(self, *, slow: bool) -> None:
        """Kill it, unless it is about to end by itself; a process inside a wedged driver cannot be killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10 if slow else 0)
        if self.process.poll() is None:
            self._killed = True
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self._errors.join(1)

    def failed(self) -> bool:
        return not self._killed and self.process.poll() not in (0, None)

    def words(self) -> str:
        return self._last.decode("utf-8", "replace").strip()[-1500:] or f"status {self.process.poll()}"


# ---- of one rank: in the engine's interpreter -----------------------------------------------------------------------


def say(phase: str, **more: Any) -> None:
    os.write(TELL, (json.dumps({"phase": phase, **more}) + "\n").encode())


def rank(number: int, ranks: int, backend: str, port: int, sizes: list[int]) -> None:
    sys.path[:] = [entry for entry in sys.path if entry]  # the current folder must not count
    torch = importlib.import_module("torch")
    dist = importlib.import_module("torch.distributed")
    patience = dt.timedelta(seconds=600)  # whoever started us is less patient
    store = dist.TCPStore(ADDRESS, port, None, number == 0, patience, wait_for_workers=False)
    cuda = backend == "nccl"
    version = ".".join(str(part) for part in torch.cuda.nccl.version()) if cuda else ""
    say("imported", port=0 if number else store.port, torch=torch.__version__, nccl=version)
    device = torch.device("cuda", number) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(backend, store=store, rank=number, world_size=ranks, timeout=patience)
    say("joined")
    group = Group(torch, dist, device)
    right = group.adds(1 << 20)
    say("first")
    took = {}
    for size in sizes:
        took[str(size)] = group.seconds(size)
        right = group.adds(size) and right
        say("first", at=size)
    say("done", seconds=took, right=right)
    sys.stderr.flush()
    os._exit(0)  # without the group's farewell: it waits for whoever is gone


class Group:
    """All ranks, from one of them."""

    def __init__(self, torch: Any, dist: Any, device: Any) -> None:
        self.torch, self.dist, self.device = torch, dist, device
        self.ranks, self.number = dist.get_world_size(), dist.get_rank()

    def adds(self, size: int) -> bool:
        """Whether the sum is what it must be: where peers write into each other's memory, it may be garbage."""
        tensor = self.torch.full((size // 4,), float(self.number + 1), device=self.device)
        self.dist.all_reduce(tensor)
        return bool((tensor == self.ranks * (self.ranks + 1) / 2).all().item())

    def seconds(self, size: int) -> float:
        """Of one all-reduce: the slowest rank's mean."""
        tensor = self.torch.zeros((size // 4,), device=self.device)
        self._timed(tensor, 2)
        once = self._timed(tensor, 1)
        return self._timed(tensor, max(2, min(ROUNDS, int(BUDGET / max(once, 1e-6)))))

    def _timed(self, tensor: Any, rounds: int) -> float:
        self.dist.barrier()
        self._wait()
        began = time.perf_counter()
        for _ in range(rounds):
            self.dist.all_reduce(tensor)
        self._wait()
        took = (time.perf_counter() - began) / rounds
        slowest = self.torch.tensor([took], device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(slowest, op=self.dist.ReduceOp.MAX)
        return float(slowest.item())

    def _wait(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()


TELL = os.dup(1)

if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        os.dup2(2, 1)  # libraries print while they are imported
    main()
