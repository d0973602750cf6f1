"""A draft exchanged in the running server against a restart with it: the real SGLang on this machine's CPU.

    python -m benchmarks.hotswap [--tp 2] [--rounds 3] [--parts starts large load bytes]

starts  `restart --ckpt X --cold`, then `restart --ckpt Y --hot` and back, in alternation, X and Y changing places with
        each round. The peer of an exchange is the start of the same round. Each exchanged draft is held against its own
        cold start: accept length, greedy answers, checksums. Targets: the step `swap` 0.05 times `launch` and `wait`,
        the whole command 0.3 times the other.
large   the same exchange with a draft of `--large` MB, which drafts as the small one does
load    short streamed chats at a fixed rate: while it restarts, alone, and while drafts are exchanged. Aim: none fails.
bytes   without a server: how fast a draft's bytes come into shared memory (benchmarks/handover.py)

Everything is in a folder of its own, with a port of its own, and nothing is left. Each part can be run alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import handover, large_draft, open_loop
from deploy.measuring.measurement import Measurement
from tests import places
from tests.installed import Deployment, deployment, needs
from tests.project import EXAMPLES

PARTS = ("starts", "large", "load", "bytes")
PROMPTS = ("capital of France?", "count from 3", "capital of Japan?", "count from 8", "capital of Italy?")
ALONE = 10.0  # seconds of load without anything else
BRIEF = ("bench.prompts=['capital of France?']", "bench.rounds=1", "bench.max_tokens=16", "smoke.max_tokens=16")
UNMEASURED = ("bench.prompts=[]", "gates={}")  # where others ask meanwhile the tool measures, and judges, nothing
STEPS = ("preflight", "match", "push", "stop", "free", "launch", "swap", "wait", "health", "smoke", "bench")


@dataclass(frozen=True)
class Brought:
    """One command that brought a draft: `seconds` from its start to its end, and those of its steps and of the exchange
    itself; what was then measured, and what was loaded.
    """

    draft: str
    seconds: float
    steps: dict[str, float]
    exchange: dict[str, Any]
    measured: Measurement | None
    checksums: dict[str, str]

    @property
    def start(self) -> float:
        return self.steps["launch"] + self.steps["wait"]

    @property
    def proof(self) -> tuple[Any, ...]:
        """What must be the same however the draft was brought: accept length, answers, checksums."""
        if self.measured is None or self.measured.acceptance is None:
            raise RuntimeError("nothing was measured")
        found = self.measured.acceptance
        return (found.steps, found.accepted), self.measured.answers, self.checksums


class Bench:
    """The deployment and its drafts, by name."""

    def __init__(self, made: Deployment, drafts: dict[str, Path]) -> None:
        self.made, self.drafts, self.serving = made, drafts, ""

    @property
    def other(self) -> str:
        """The one of the two small drafts that is not served."""
        return "good" if self.serving == "other" else "other"

    def bring(self, draft: str, how: str, *words: str) -> Brought:
        """By `restart --cold` or `--hot`, or `up` if nothing serves; SystemExit where it fails, or comes otherwise."""
        path = str(self.drafts[draft])
        argv = ["restart", "--ckpt", path, f"--{how}", *words]
        if not self.serving:
            argv = ["up", "profile=tiny", f"draft={path}", *words]
        began = time.perf_counter()
        done = self.made.run(*argv)
        taken = time.perf_counter() - began
        if done.code or (done.json["verdict"]["mode"] == "swap") != (how == "hot"):
            sys.exit(f"deploy {' '.join(argv)} ended with {done.code}\n{done.err}\n{done.out}")
        self.serving, brought = draft, self._read(done.json["run"], draft, taken)
        print(f"  {how:<4} {draft:<11} {taken:6.1f} s   {_told(brought)}", flush=True)
        return brought

    def _read(self, run: str, draft: str, taken: float) -> Brought:
        project = self.made.project
        events = project.events(run)
        steps = {e["step"]: e["facts"]["seconds"] for e in events if e["kind"] == "step_ended"}
        told = [e["facts"]["swap"] for e in events if "swap" in e.get("facts", {})]
        (loaded,) = (project.folder / "work").glob(f"*/tiny/runs/{run}/weights.json")
        found = [path.read_text() for path in (project.folder / "runs" / run).glob("hosts/*/bench.json")]
        return Brought(
            draft=draft,
            seconds=taken,
            steps=steps,
            exchange=told[0] if told else {},
            measured=Measurement.model_validate_json(found[0]) if found else None,
            checksums=json.loads(loaded.read_text())["checksums"],
        )


def _told(brought: Brought) -> str:
    found = brought.measured and brought.measured.acceptance
    length = f"accept length {found.accept_length:.3f}" if found else "nothing measured"
    if not brought.exchange:
        return f"stop {brought.steps.get('stop', 0.0):.1f} s, launch and wait {brought.start:.1f} s, {length}"
    seconds = brought.exchange["seconds"]
    return f"swap {brought.steps['swap']:.2f} s, requests waited {seconds['paused']:.3f} s, {length}"


# ---- starts ------------------------------------------------------------------------------------------------------


def starts(bench: Bench, rounds: int) -> list[str]:
    """Print the ratios; what is not as it should be."""
    cold, hot = [], []
    for number in range(rounds):
        one, other = ("good", "other")[:: -1 if number % 2 else 1]
        cold.append(bench.bring(one, "cold"))
        hot.append((bench.bring(other, "hot"), bench.bring(one, "hot")))
    pairs = [(mine, start) for both, start in zip(hot, cold, strict=True) for mine in both]
    mine, first, later = [one for one, _ in pairs], [one for one, _ in hot], [one for _, one in hot]
    print(f"medians of {len(cold)} starts and {len(mine)} exchanges, load average {os.getloadavg()[0]:.1f}")
    print(f"  {'seconds':<10} {'restart':>8} {'exchange':>9}")
    print(f"  {'command':<10} {_of(one.seconds for one in cold)} {_of(one.seconds for one in mine):>9}")
    for step in STEPS:
        columns = [_of(one.steps.get(step) for one in several) for several in (cold, mine)]
        print(f"  {step:<10} {columns[0]} {columns[1]:>9}")
    for name, several in (("first", first), ("later", later)):
        waited = median(one.exchange["seconds"]["paused"] for one in several)
        print(f"  the {name} exchange of a server: requests waited {waited:.3f} s")
    swap = median(one.steps["swap"] / start.start for one, start in pairs)
    command = median(one.seconds / start.seconds for one, start in pairs)
    print(f"  swap / (launch + wait)  {swap:.3f}   target 0.05")
    print(f"  command / command       {command:.3f}   target 0.3")
    return unlike([*cold, *mine])


def _of(values: Iterable[float | None]) -> str:
    found = [value for value in values if value is not None]
    return f"{median(found):8.2f}" if found else f"{'-':>8}"


def unlike(brought: Sequence[Brought]) -> list[str]:
    """Where a draft that was exchanged is not as after its own start; and print how many were."""
    known = {one.draft: one.proof for one in brought if not one.exchange}
    held = [one for one in brought if one.exchange and one.draft in known]
    wrong = [one for one in held if one.proof != known[one.draft]]
    names = ("accept length", "answers", "checksums")
    parts = [
        f"{one.draft}: {name} differs from its cold start's"
        for one in wrong
        for name, mine, its in zip(names, one.proof, known[one.draft], strict=True)
        if mine != its
    ]
    print(f"  {len(held) - len(wrong)} of {len(held)} exchanges: accept length, answers and checksums of a cold start")
    return parts


# ---- under load --------------------------------------------------------------------------------------------------


def load(bench: Bench, exchanges: int, rate: float) -> list[str]:
    """Print what became of requests; what is not as it should be."""
    if not bench.serving:
        bench.bring("good", "cold")
    print(f"{rate:g} short streamed chats a second")
    with open_loop.loaded(bench.made.port, PROMPTS, rate) as restarted:
        bench.bring(bench.other, "cold", *UNMEASURED)
    print(f"  a restart       {restarted.told().line()}", flush=True)
    with open_loop.loaded(bench.made.port, PROMPTS, rate) as alone:
        time.sleep(ALONE)
    print(f"  alone           {alone.told().line()}", flush=True)
    with open_loop.loaded(bench.made.port, PROMPTS, rate) as meanwhile:
        brought = [bench.bring(bench.other, "hot") for _ in range(exchanges)]
    told = meanwhile.told()
    print(f"  {f'{exchanges} exchanges':<15} {told.line()}", flush=True)
    mixed = [f"{a.draft} and {b.draft}: the same checksums" for a, b in pairwise(brought) if a.checksums == b.checksums]
    return [*mixed, *dict.fromkeys(f"while drafts were exchanged: {error}" for error in told.failed)]


# ---- a larger draft ----------------------------------------------------------------------------------------------


def large(bench: Bench) -> list[str]:
    """Print what an exchange takes for each byte; what is not as it should be."""
    brought = [bench.bring("large", "cold", *BRIEF), bench.bring("large other", "hot"), bench.bring("large", "hot")]
    for one in brought[1:]:
        size, seconds = one.exchange["bytes"] / 1e6, one.exchange["seconds"]
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
        print(f"  {one.draft}: {size:.0f} MB: {parts}; sent at {size / seconds['sent']:.0f} MB/s", flush=True)
    return unlike(brought)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="starts, with two exchanges each (3)")
    parser.add_argument("--tp", type=int, default=1, help="ranks of tensor parallelism (1)")
    parser.add_argument("--exchanges", type=int, default=4, help="under load (4)")
    parser.add_argument("--rate", type=float, default=5.0, help="requests a second (5)")
    parser.add_argument("--large", type=int, default=256, metavar="MB", help="size of the larger draft (256)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    needs("sglang-cpu")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))  # and the server with us
    print(f"SGLang on {os.cpu_count()} cores, tp {given.tp}, load average {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hotswap-") as name:
        folder = Path(name)
        if "bytes" in given.parts:
            handover.measure(folder, 1000, 3)
        wrong = served(folder, given) if set(given.parts) - {"bytes"} else []
    if wrong:
        sys.exit("\n".join(wrong))


def served(folder: Path, given: argparse.Namespace) -> list[str]:
    """All parts that need a server, and its end; what was not as it should be."""
    drafts = {"good": EXAMPLES / "draft", "other": large_draft.negated(EXAMPLES / "draft", folder / "other")}
    env = {"TMPDIR": str(folder)}  # torch's manager of shared memory leaves a folder there
    if given.tp > 1:
        env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(given.tp)))
    fields = {"env": env, "parallel": {"tp": given.tp}}
    with deployment(folder / "project", places.here(), "local-sglang", **fields) as made:
        bench = Bench(made, drafts)
        try:
            return measured(bench, folder, given)
        finally:
            made.run("down")  # a server that is killed leaves some of its shared memory


def measured(bench: Bench, folder: Path, given: argparse.Namespace) -> list[str]:
    """The parts that were wanted, one after another."""
    wrong: list[str] = []
    if "starts" in given.parts:
        bench.bring("good", "cold")  # which flags it takes, and what else is asked once
        wrong += starts(bench, given.rounds)
    if "large" in given.parts:
        bench.drafts["large"] = large_draft.padded(bench.drafts["good"], folder / "large", given.large)
        bench.drafts["large other"] = large_draft.negated(bench.drafts["large"], folder / "large-other")
        wrong += large(bench)
    if "load" in given.parts:
        wrong += load(bench, given.exchanges, given.rate)
    return wrong


if __name__ == "__main__":
    main()
