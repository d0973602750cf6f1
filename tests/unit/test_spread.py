"""Work on many files by several processes: all of it is done, in order, whatever becomes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.host.spread import FEW, WORKERS, spread
from tests.project import PATIENCE, ROOT

NAMES = [f"file-{number}" for number in range(WORKERS * FEW + 3)]
several = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: one process")


# In an interpreter of its own: beside the threads that other tests have left there are no processes.
ALONE = """
import json, os
from deploy.host.spread import spread
from tests.unit.test_spread import NAMES
here = os.getpid()
def work(name):
    if os.getpid() != here and name == NAMES[1]:
        os._exit(1)
    return (os.getpid(),)
done = list(spread(lambda name: (name.upper(), os.getpid()), NAMES))
print(json.dumps([here, done, list(spread(work, NAMES))]))
"""


@several
def test_many_files_are_worked_on_by_several_processes_in_order_and_what_one_dies_of_is_done_again_here():
    said = subprocess.run(
        [sys.executable, "-c", ALONE], check=True, capture_output=True, cwd=ROOT, timeout=PATIENCE
    ).stdout
    here, done, again = json.loads(said)
    assert [(name, told[0]) for name, told in done] == [(name, name.upper()) for name in NAMES]
    assert 2 <= len({told[1] for _, told in done}) <= WORKERS
    assert here not in {told[1] for _, told in done}
    assert again[1][1] == [here]
    assert again[0][1] != [here]


@several
def test_what_a_process_could_not_tell_is_done_here():
    here = os.getpid()
    told = list(spread(lambda name: (name, here == os.getpid(), None if here == os.getpid() else object()), NAMES))
    assert [one[1] for _, one in told] == [True] * len(NAMES)


@several
def test_what_fails_in_a_process_fails_here_too():
    def work(name: str) -> tuple[str]:
        if name == NAMES[3]:
            raise ValueError(name)
        return (name,)

    with pytest.raises(ValueError, match=NAMES[3]):
        list(spread(work, NAMES))


def test_few_files_and_a_program_of_several_threads_are_left_to_this_process():
    assert {told[0] for _, told in spread(lambda _: (os.getpid(),), NAMES[: 2 * FEW - 1])} == {os.getpid()}
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert {told[0] for _, told in spread(lambda _: (os.getpid(),), NAMES)} == {os.getpid()}
    finally:
        stop.set()
        thread.join()


def test_no_process_is_left_over():
    def children() -> set[str]:
        """Pids, whichever thread started them: those of earlier tests end when they like."""
        return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}

    before = children()
    list(spread(lambda name: (name,), NAMES))
    assert children() <= before
