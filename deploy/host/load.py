"""Asks a server on this host a round of questions as streams, and tells what came of each, as JSON lines.

The first line of stdin is the round: {"port", "key", "concurrency", "timeout", "requests": [{"path", "body",
"tokens": [the path of the tokens so far in a chunk]}, ...], "gpus": [uuids to be watched]}. When stdin ends, it ends
as well. Lines {"done": requests ended} tell how far it is; the last line has what was measured; `began` is by this
host's monotonic clock.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import gc
import json
import os
import selectors
import sys
import time
from typing import Any

from deploy.host.load_client import Crowd, Exchange, ask_all
from deploy.host.load_events import read_stream
from deploy.host.load_gpus import Gpus


def raw_request(request: dict[str, Any], key: str) -> bytes:
    """The bytes of a POST."""
    body = json.dumps(request["body"]).encode()
    lines = [
        f"POST {request['path']} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        f"Content-Length: {len(body)}",
        *([f"Authorization: Bearer {key}"] if key else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def outcome(exchange: Exchange, tokens: list[str], since: float) -> dict[str, Any]:
    """What is told of one request: seconds from its own start, and what `read_stream` finds."""
    answer, began = exchange.answer, exchange.began
    said = b"".join(piece for _, piece in answer.pieces)[:500].decode(errors="replace")
    kind = answer.headers.get("content-type", "")
    if answer.status == 200 and "event-stream" in kind:
        found = read_stream(answer.pieces, began, tokens)
        found["error"] = exchange.error or found["error"]
    elif answer.status:
        odd = f"no stream of events, but {kind or 'nothing that it names'}"
        error = f"it answers {answer.status if answer.status != 200 else odd}: {said}"
        found = {"text": "", "finish": "", "error": error, "told": {}, "chunks": []}
    else:
        error = exchange.error or "the server hung up"
        found = {"text": "", "finish": "", "error": error, "told": {}, "chunks": []}
    return {"started": began - since, "ended": exchange.ended - began, **found}


def tell_line(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def end_with_stdin() -> None:
    """Nobody hears us any more."""
    if not os.read(0, 4096):
        os._exit(1)


def run_round(asked: dict[str, Any]) -> dict[str, Any]:
    requests = asked["requests"]
    exchanges = [Exchange(raw_request(request, asked["key"])) for request in requests]
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ, end_with_stdin)
        gpus = Gpus(asked["gpus"])
        if gpus.descriptor is not None:
            descriptor = gpus.descriptor
            selector.register(descriptor, selectors.EVENT_READ, lambda: gpus.read() or selector.unregister(descriptor))
        crowd = Crowd(selector, min(asked["concurrency"], len(exchanges)), asked["port"], asked["timeout"])
        gc.collect()
        gc.disable()  # no pause of ours in what is measured
        wall, steady, worked = time.time(), time.perf_counter(), time.process_time()
        ask_all(exchanges, crowd, selector, lambda done: tell_line({"done": done}))
        passed, busy = time.perf_counter() - steady, time.process_time() - worked
        jump = time.time() - wall - passed
        gc.enable()
        gpus.close()
    first = min(exchange.began for exchange in exchanges)
    return {
        "requests": [outcome(one, requests[number]["tokens"], first) for number, one in enumerate(exchanges)],
        "began": first,
        "seconds": max(exchange.ended for exchange in exchanges) - first,
        "clock_jump": jump,
        "client_busy": busy / passed if passed > 0 else 0.0,
        **gpus.told(),
    }


if __name__ == "__main__":
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)  # not by sys.stdin, which would keep what follows the line
        if not piece:
            sys.exit(1)
        line += piece
    tell_line(run_round(json.loads(line)))
