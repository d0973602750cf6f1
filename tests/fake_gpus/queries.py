"""What nvidia-smi is asked, and its answers as CSV."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import sys
import time

from tests.fake_gpus.document import document
from tests.fake_gpus.state import FAILURES, fail, loaded
from tests.fake_gpus.text import header, links, listing, topology

UNITS = {
    "memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "utilization.gpu": "%", "power.limit": "W",
    "power.draw": "W",
}  # fmt: skip


def table(fields, rows, form):
    """CSV as nvidia-smi writes it."""
    known = {**UNITS, "used_gpu_memory": "MiB", "used_memory": "MiB"}
    if "noheader" not in form:
        print(", ".join(f"{field} [{known[field]}]" if field in known else field for field in fields))
    for row in rows:
        cells = [row[field] for field in fields]
        if "nounits" not in form:
            cells = [
                f"{cell} {known[field]}" if field in known and not cell.startswith("[") else cell
                for field, cell in zip(fields, cells, strict=True)
            ]
        print(", ".join(cells))


def query(words, known):
    """(fields, form, wanted indices or None) of a --query-...; an unknown field ends it as the real one ends."""
    options = dict(word.partition("=")[::2] for word in words)
    asked = next(value for name, value in options.items() if name.startswith("--query"))
    fields = [field.strip() for field in asked.split(",")]
    for field in fields:
        if field not in known:
            fail(2, f'Field "{field}" is not a valid field to query.\n\n')
    form = options.get("--format", "").split(",")
    if "csv" not in form:
        fail(2, '"--format=" switch is missing.\n')
    wanted = options.get("--id", options.get("-i"))
    return fields, form, [int(i) for i in wanted.split(",")] if wanted else None


def query_gpu(state, words):
    """Once, or with -lms N again and again until nobody reads it any more."""
    again = words[words.index("-lms") + 1] if "-lms" in words else None
    fields, form, wanted = query([word for word in words if word not in ("-lms", again)], state.gpu(0))
    while True:
        table(fields, [state.gpu(i) for i in range(state.count) if wanted is None or i in wanted], form)
        if again is None:
            return
        sys.stdout.flush()
        time.sleep(int(again) / 1000)


def query_apps(state, words):
    names = ("gpu_uuid", "pid", "process_name", "name", "used_gpu_memory", "used_memory", "gpu_name")
    fields, form, wanted = query(words, names)
    rows = []
    for index, pid, name, mib in state.processes():
        if wanted is None or index in wanted:
            cells = (state.uuid(index), str(pid), name, name, str(mib), str(mib), state.model.name)
            rows.append(dict(zip(names, cells, strict=True)))
    table(fields, rows, form)


def main(words):
    state = loaded()
    failure = state.told.get("failure")
    if failure == "hang":  # a wedged GPU: the real one waits in the kernel
        time.sleep(600)
    if failure:
        status, text = FAILURES[failure]
        fail(status, text.format(bus=state.bus(int(state.told.get("failed_gpu", 0)))[4:]))
    first = words[0].partition("=")[0] if words else ""
    if any(word.startswith("--query-gpu=") for word in words):
        query_gpu(state, words)
    elif any(word.startswith("--query-compute-apps=") for word in words):
        query_apps(state, words)
    elif first in ("-L", "--list-gpus"):
        listing(state)
    elif words in (["topo", "-m"], ["topo", "--matrix"]):
        topology(state)
    elif words in (["nvlink", "-s"], ["nvlink", "--status"]):
        links(state)
    elif words == ["-q", "-x"]:
        document(state)
    elif not words:
        header(state)
    else:
        fail(2, f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{' '.join(words)}\n")
