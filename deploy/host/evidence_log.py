"""What a run's log shows of each rank: a part of `evidence`, no program.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import glob
import os
import re
from collections import OrderedDict, deque

from deploy.host.family import Member
from deploy.host.log import Log

SCANNED = 8 << 20  # bytes of the log that are searched
LAST = 60  # lines of each rank
CARDS = 300  # lines of NCCL's
LONGEST_LINE = 2000
# How a line says whose it is: SGLang 0.5.8 to 0.5.23 "[time DP0 TP1]", vLLM 0.33 "(Worker_TP1 pid=7)".
WHOSE = (
    re.compile(r"\[[\d-]{10} [\d:]{8}(?:\.\d{3})?((?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)+)\] "),
    re.compile(r"\(([\w-]+) pid=\d+\) "),
)
NCCL_LINE = re.compile(r"\bNCCL\b|nccl==|ProcessGroupNCCL|\[Gloo\]|\bnet/(?:IB|Socket)\b")
NCCL_VARIABLE = re.compile(r"(?:NCCL|GLOO|TORCH_NCCL|CUDA|UCX|OMPI|MASTER)_\w*=")


def log_tail(folder: str, most: int) -> str:
    """The end of the log, at most so many bytes, without a line that is cut: it may hold a part of a secret."""
    log = Log(folder)
    try:
        oldest, end = log.ends()
        text = b"".join(log.pieces(max(oldest, end - most), end, 1 << 20))
    except OSError as error:
        return f"the log cannot be read: {error.strerror}\n"
    cut = end - oldest > most
    return (re.split(rb"[\r\n]", text, maxsplit=1)[-1] if cut else text).decode("utf-8", "replace")


def rank_tails(folder: str) -> str:
    """The last lines of each rank; a line that names none (a traceback's) belongs to the one before it."""
    found: OrderedDict[str, deque[str]] = OrderedDict()
    whose = ""
    for line in re.split(r"[\r\n]+", log_tail(folder, SCANNED)):
        told = next(filter(None, (pattern.match(line) for pattern in WHOSE)), None)
        whose = told[1].strip() if told else "" if line.startswith("[") else whose
        if line.strip():
            found.setdefault(whose, deque(maxlen=LAST)).append(line[:LONGEST_LINE])
    if not any(found):
        return "the log names no ranks\n"
    return "".join(f"== {rank or 'no rank'}\n" + "\n".join(found[rank]) + "\n\n" for rank in sorted(found))


def nccl_told(folder: str, members: dict[int, Member]) -> str:
    """NCCL's lines in the log and in the files that NCCL_DEBUG_FILE names, and the environment that it has."""
    lines = deque((line for line in log_tail(folder, SCANNED).splitlines() if NCCL_LINE.search(line)), maxlen=CARDS)
    text = (
        "\n".join(line[:LONGEST_LINE] for line in lines)
        or "NCCL says nothing in the log; NCCL_DEBUG=INFO makes it speak"
    )
    seen = {}
    for pid in members:
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                words = environ.read().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        seen[pid] = sorted(word for word in words if NCCL_VARIABLE.match(word))
    for pid, words in seen.items():
        text += f"\n\n== environment of {pid}\n" + "\n".join(words or ["nothing of NCCL's"])
    named = {word.partition("=")[2] for words in seen.values() for word in words if word.startswith("NCCL_DEBUG_FILE=")}
    for name in sorted(named):
        for path in sorted(glob.glob(re.sub(r"%[hp]", "*", name)))[:16]:  # %h and %p: the host, the process
            text += f"\n\n== {path}\n{end_of(path)}"
    return text + "\n"


def end_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (16 << 10)))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"cannot be read: {error.strerror}"
