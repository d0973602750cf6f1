"""What our load generator adds to the times that it measures, and whether the engine's own client measures the same.

    python -m benchmarks.client [ROUNDS]           against a server of a fixed cadence, beside a bare reader
    python -m benchmarks.client --beside [ROUNDS]  beside sglang's bench client, on a real llama.cpp (profile local)
    python -m benchmarks.client --sglang [ROUNDS]  the same on a real SGLang (profile local-sglang)

A server in a process of its own sends one token every 5 ms, and tells when it sent each. `late` is from a token's
sending to its time as measured, by one clock. The bare reader does nothing but `recv` in a thread for each stream.
Target: ours at most 1 ms a token, none lost.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from deploy import environments
from deploy.loads import Ran, _program, load
from deploy.measuring import statistics
from deploy.plan import Node
from deploy.remote import Remote
from tests import loads
from tests.project import EXAMPLES, Project, free_port
from tests.scripted_server import CHUNKED, Script, chunk, event, last, scripted, usage

TOKENS, CADENCE = 200, 0.005
REQUESTS = {"local": 200, "local-sglang": 12}  # of a round: some seconds of each server
STREAMS = (1, 8)
DATASETS = "load_dataset = None  # the client imports it for data sets that are not used here\n"


def paced(*_: Any) -> Script:
    steps = [(CADENCE, chunk(event("word ", **usage(number)))) for number in range(1, TOKENS + 1)]
    end = [(0.0, chunk(event(finish="length") + last(TOKENS)) + b"0\r\n\r\n"), (0.0, b"")]
    return [(0.0, CHUNKED), *steps, *end]


def serve() -> None:
    """The server's process: its port at once; with each line of stdin, when it sent what since the last one."""
    with scripted(paced, version="0") as server:
        print(server.port, flush=True)
        for _ in sys.stdin:
            print(json.dumps(server.sent), flush=True)
            server.sent.clear()
            server.asked.clear()


@dataclass
class Cadence:
    """The server, and when it sent the tokens of each answer."""

    port: int
    process: subprocess.Popen[str]

    def sent(self) -> list[list[float]]:
        """When each token of each answer was sent since the last time, by the clock of all processes."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [times[1 : TOKENS + 1] for times in json.loads(self.process.stdout.readline())]


@contextmanager
def cadence() -> Iterator[Cadence]:
    words = [sys.executable, "-m", "benchmarks.client", "--serve"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield Cadence(int(process.stdout.readline()), process)
        process.kill()


def bare(port: int, streams: int) -> list[list[float]]:
    """When readers that do nothing else had each token."""

    def read(_: int) -> list[float]:
        body = b'{"messages": []}'
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            times: list[float] = []
            while len(times) < TOKENS:
                data = connection.recv(1 << 18)
                times += [time.perf_counter()] * data.count(b'"word "')
            return times

    with ThreadPoolExecutor(streams) as pool:
        return list(pool.map(read, range(streams)))


def ours(port: int, streams: int, remote: Remote) -> tuple[list[list[float]], float]:
    """The same as our client measures it, and its share of a core."""
    question = {"path": "/", "body": {"messages": []}, "tokens": ["usage", "completion_tokens"]}
    asked = {"port": port, "key": "", "concurrency": streams, "timeout": 60.0, "gpus": []}
    found = _program.run(
        "load", {**asked, "requests": [question] * streams}, remote, deadline=60.0, told=lambda _: None
    )
    arrived = []
    for one in found["requests"]:
        times: list[float] = []
        for at, count, _ in one["chunks"]:
            times += [found["began"] + one["started"] + at] * (count - len(times))
        arrived.append(times)
    return arrived, found["client_busy"]


def told(name: str, late: Sequence[float], count: int, wanted: int) -> None:
    p50, p99 = quantiles(late, n=100)[49], quantiles(late, n=100)[98]
    print(
        f"  {name:<12} {count}/{wanted} tokens, late by mean {mean(late) * 1e3:+.3f} ms, "
        f"p50 {p50 * 1e3:+.3f}, p99 {p99 * 1e3:+.3f}"
    )


def overhead(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, cadence() as server:
        remote = loads.here(Path(folder))
        for streams in STREAMS:
            late: dict[str, list[float]] = {"bare reader": [], "ours": []}
            count, busy = dict.fromkeys(late, 0), []
            for _ in range(rounds):
                for name, values in late.items():
                    server.sent()
                    if name == "ours":
                        arrived, share = ours(server.port, streams, remote)
                        busy.append(share)
                    else:
                        arrived = bare(server.port, streams)
                    count[name] += sum(map(len, arrived))
                    pairs = zip(sorted(arrived), sorted(server.sent()), strict=True)
                    values += [at - sent for got, given in pairs for at, sent in zip(got, given, strict=True)]
            print(f"{streams} streams, {TOKENS} tokens every {CADENCE * 1e3:g} ms, {rounds} rounds")
            for name, values in late.items():
                told(name, values, count[name], rounds * streams * TOKENS)
            print(f"  our client's share of a core: {mean(busy):.3f}")


# ---- beside the engine's own client ------------------------------------------------------------------------------


@contextmanager
def served(profile: str, folder: Path) -> Iterator[Node]:
    """A real server of that profile of the tool's own, on a free port."""
    project = Project(folder / "project")
    project.environ["HOME"] = str(Path.home())  # where the environments are
    project.environ.pop("XDG_CACHE_HOME")
    project.profile("bench", extends=profile, port=free_port(), bench={"prompts": []})
    done = project.run("up", "profile=bench", timeout=600)
    try:
        assert done.code in (0, 10), done.err  # 10: the default gate has no measurement; it serves all the same
        manifest = next((folder / "project" / "work").glob("*/bench/runs/*/manifest.json"))
        yield Node.from_json(json.loads(manifest.read_text())["node"])
    finally:
        project.run("down")


def theirs(node: Node, folder: Path) -> Node:
    """The same server, for sglang's bench client in the environment sglang-cpu."""
    installed = environments.locate("sglang-cpu")
    assert installed, "deploy engine install sglang-cpu"
    (folder / "datasets.py").write_text(DATASETS)
    env = {**installed.env, "PYTHONPATH": f"{installed.env['PYTHONPATH']}:{folder}"}
    model = {"path": str(EXAMPLES / "target"), "name": node.served_name}
    return loads.node(node.port, "sglang", engine={"name": "sglang", "python": installed.python}, model=model, env=env)


def figures(ran: Ran) -> dict[str, float]:
    answers = [one for one in ran.samples if not one.error]
    assert len(answers) == len(ran.samples), [one.error for one in ran.samples]
    decoding = sum(one.seconds - (one.first or 0.0) for one in answers)
    return {
        "tok/s": sum(one.tokens for one in answers) / ran.seconds,
        "ttft ms": mean(one.first or 0.0 for one in answers) * 1e3,
        "ms a token": decoding / sum(one.tokens - one.first_tokens for one in answers) * 1e3,
    }


def beside(profile: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, served(profile, Path(name)) as node:
        remote = loads.here(Path(name))
        nodes = {"own": node, "bench_serving": theirs(node, Path(name))}
        asked = loads.asked(REQUESTS[profile], max_tokens=64, timeout=120.0, fixed_length=True)
        found: dict[str, list[dict[str, float]]] = {which: [] for which in nodes}
        for which in ("own", *list(nodes) * rounds):  # the first one warms up
            ran = load(which).run(asked, nodes[which], remote, lambda _done, _of: None)
            found[which].append(figures(ran))
            assert {one.tokens for one in ran.samples} == {asked.max_tokens}, which
        found["own"].pop(0)
        print(f"{len(asked.prompts)} requests of {asked.max_tokens} tokens, one at a time, {rounds} rounds of each")
        for figure in found["own"][0]:
            bands = {which: statistics.figure([one[figure] for one in ran]) for which, ran in found.items()}
            ratio = statistics.ratio(bands["own"], bands["bench_serving"])
            for which, band in bands.items():
                print(f"  {figure:<11} {which:<14} {band.value:9.2f} ({band.low:.2f} to {band.high:.2f})")
            if ratio and ratio.low is not None and ratio.high is not None:
                agree = "the same" if ratio.low <= 1 <= ratio.high else "not the same"
                print(f"  {'':<11} ours / theirs  {ratio.value:9.3f} ({ratio.low:.3f} to {ratio.high:.3f}): {agree}")


def main(words: Sequence[str]) -> None:
    numbers = [int(word) for word in words if word.isdigit()]
    if "--serve" in words:
        serve()
    elif "--sglang" in words or "--beside" in words:
        beside("local-sglang" if "--sglang" in words else "local", *(numbers or [4]))
    else:
        overhead(*(numbers or [5]))


if __name__ == "__main__":
    main(sys.argv[1:])
