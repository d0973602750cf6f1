"""A known line set into a real start, among what its other ranks say when one of them dies."""

from __future__ import annotations

import re
from pathlib import Path

from tests.known_lines import Known

LOGS = Path(__file__).parent / "fixtures" / "logs"
BAR = re.compile(r"\d+%")
FRAMES = (
    '  File "/srv/engine/scheduler.py", line 6362, in run_scheduler_process',
    "    scheduler = Scheduler(server_args, port_args)",
    '  File "/srv/engine/somewhere.py", line 7, in odd',
    "    something_odd()",
)
# Of each engine: the healthy start; the mark after which weights load, and that after which all is loaded; where what
# other processes say of a death is taken from, and the line from which on; the head of a line of one rank.
STARTS = {
    "sglang": (
        "sglang-0.5.23-good-tp2",
        "TP1] Load weight begin.",
        "TP1] Memory pool end.",
        ("sglang-0.5.23-killed-serving-tp2", "hit an exception"),
        "[2026-11-30 18:44:59 TP1] ",
    ),
    "vllm": (
        "vllm-0.32.0-good",
        "Starting to load model",
        "Loading weights took",
        ("vllm-0.32.0-kv-big", "EngineCore failed to start."),
        "(Worker_TP1 pid=15) ERROR 11-30 08:40:57 [multiproc_executor.py:1063] ",
    ),
    "llamacpp": ("llamacpp-good", "loading model", "loading draft model", ("llamacpp-truncated-model", "(nobody)"), ""),
}
CRASHES = {"sglang": "Scheduler hit an exception: ", "vllm": ""}


def read(name: str) -> str:
    with (LOGS / f"{name}.log").open(encoding="utf-8", newline="") as file:  # keeps the progress bars' returns
        return file.read()


def healthy(engine: str) -> str:
    """The start that lines are set into."""
    return read(STARTS[engine][0])


def composed(engine: str, known: Known, *, noise: bool = True) -> str:
    """The start up to its phase, the line as it is written, and then the others' words; without an end."""
    start, weights, loaded, (dying, first_word), head = STARTS[engine]
    form, _, phase = known.form.partition("@")
    begun, _ = _parted(read(start), weights if phase == "weights" else loaded)
    log = read(dying)
    others = log[log.rfind("\n", 0, log.find(first_word)) + 1 :] if noise and first_word in log else ""
    return f"{begun}{_written(engine, head, form, known.line)}\n{others}"


def goes_on(engine: str, known: Known) -> str:
    """A healthy start, in which the line is said some times."""
    begun, rest = _parted(healthy(engine), STARTS[engine][2])
    return begun + f"{STARTS[engine][-1]}{known.line}\n" * 5 + rest


def _parted(log: str, mark: str) -> tuple[str, str]:
    """A log up to the end of the first line with a mark, and from there on."""
    end = log.index("\n", log.index(mark)) + 1
    return log[:end], log[end:]


def _written(engine: str, head: str, form: str, line: str) -> str:
    if form == "error":
        opening = f"{head}{CRASHES[engine]}Traceback (most recent call last):"
        each = head if engine == "vllm" else ""
        announced = [f"{head}WorkerProc hit an exception."] if engine == "vllm" else []
        return "\n".join([*announced, opening, *(f"{each}{text}" for text in (*FRAMES, line))])
    return line if form == "plain" or BAR.search(line) else f"{head}{line}"
