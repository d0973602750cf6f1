#!/usr/bin/env python3
"""A server whose child listens, under whatever title and in whatever session: titled_server.py PORT [WORD]...

Words: title (the child bears a title by the real setproctitle, as SGLang's and vLLM's), session (it leads a session of
its own), alone (no child: it listens itself), idle (nobody listens), reuse (the port may be listened on twice).
The child dies with its parent, and everything after a minute.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time


def serve(port: int, words: set[str]) -> None:
    """Listen, and answer nobody."""
    if "title" in words:
        import setproctitle  # type: ignore[import-not-found]

        setproctitle.setproctitle("sglang::tokenizer_worker")
    with socket.socket() as listener:
        if "reuse" in words:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if "idle" not in words:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        print("it is there", flush=True)
        time.sleep(60)


def main(port: str, *words: str) -> None:
    """Start the child, or be it."""
    signal.alarm(60)
    if "alone" in words:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        serve(int(port), set(words))
    else:
        child = [sys.executable, __file__, port, *words, "alone"]
        subprocess.run(child, start_new_session="session" in words, check=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
