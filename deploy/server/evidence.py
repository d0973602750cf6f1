"""What a host shows of a server that died or is silent, kept in the run's record.

The looking is done by `deploy/host/evidence.py` on the host; the record files it (`deploy.record.Recorder.filed`) and
hides what is secret in it.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator

from deploy import host
from deploy.errors import DeployError
from deploy.plan import Node
from deploy.remote import Remote
from deploy.transport import Process

LOOKING = 8.0  # seconds that the program on the host may take
PATIENCE = 10.0  # seconds in all, also where the connection hangs

Put = Callable[[tuple[str, str]], None]
END = ""  # in the place of a file's name: no more comes, and why


def collect(node: Node, remote: Remote) -> None:
    """Look at all that may show why, side by side, for at most ten seconds; one `evidence` event carries it.

    It raises nothing: what cannot be looked at is told in the place of what it would have shown.
    """
    seen: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(node, remote, seen.put), name="evidence", daemon=True).start()
    files: dict[str, str] = {}
    deadline, missing = time.monotonic() + PATIENCE, f"the host did not answer within {PATIENCE:g} s"
    while (left := deadline - time.monotonic()) > 0:
        try:
            name, text = seen.get(timeout=left)
        except queue.Empty:
            break
        if name == END:
            missing = text
            break
        files[name] = text
    what = f"{len(files)} looks at it" if files else "no look at it"
    remote.emit("evidence", f"{what}; the rest is missing: {missing}" if missing else what, files=files)


def _ask(node: Node, remote: Remote, put: Put) -> None:
    """Put (name, text) of each file as it comes, and (END, why no more comes)."""
    model = node.profile.model.path
    paths = [path for path in (model, remote.place.machine.work) if path.startswith("/")]
    words = (host.source("evidence"), remote.place.server, str(node.port), str(LOOKING), *paths)
    try:
        process = remote.spawn(*remote.interpreter, *words, deadline=PATIENCE)
        try:
            for line in _lines(process):
                told = json.loads(line)
                put((END, "") if told.get("end") else (str(told["name"]), str(told["text"])))
            put((END, process.read_stderr().decode(errors="replace").strip()[-500:] or "its program ended early"))
        finally:
            process.close()
    except TimeoutError:
        put((END, "the host fell silent"))
    except DeployError as error:
        put((END, error.what))
    except (ValueError, KeyError, AttributeError) as error:
        put((END, f"our program says something else than evidence: {error!r}"))


def _lines(process: Process) -> Iterator[bytes]:
    rest = b""
    while data := process.read(timeout=PATIENCE):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
