"""How one process of this host was started, as JSON: words, environment, folder, and where its paths lead."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from typing import Any

HUB = re.compile(r"[\w.-]+/[\w.-]+")


def words(pid: str, name: str) -> list[str]:
    with open("/proc/" + pid + "/" + name, "rb") as file:
        content = file.read()
    return [word.decode("utf-8", "surrogateescape") for word in content.split(b"\0")[:-1]] if content else []


def hub(name: str, environ: dict[str, str]) -> str:
    """The newest snapshot of a model of the Hugging Face hub in the process's own cache; "" where there is none."""
    home = environ.get("HF_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache/huggingface")
    cache = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(cache, "models--" + name.replace("/", "--"))
    try:
        with open(os.path.join(folder, "refs", "main")) as file:
            found = os.path.join(folder, "snapshots", file.read().strip())
    except OSError:
        return ""
    return found if os.path.isdir(found) else ""


def places(said: list[str], cwd: str, environ: dict[str, str]) -> dict[str, str]:
    """{a relative word, or what stands behind its =: the whole path of the file or folder that it names}.

    The program is looked up as its own shell did: in a virtual environment it is not what /proc/PID/exe leads to.
    """
    found = {}
    program = "" if "/" in said[0] else shutil.which(said[0], path=environ.get("PATH", os.defpath)) or ""
    for word in {part for text in said for part in (text, text.partition("=")[2])}:
        if not word or word.startswith("/") or len(word) > 4096:
            continue
        path = os.path.join(cwd, word)
        if os.path.exists(path):
            found[word] = os.path.normpath(path)
        elif HUB.fullmatch(word) and hub(word, environ):
            found[word] = hub(word, environ)
    return {**found, said[0]: program} if program else found


def serving(run: str) -> str:
    """The run that a server of ours, launched as `run`, serves now: another draft may have come into it."""
    current = os.path.realpath(os.path.join(run, "..", "..", "current"))
    same = os.path.realpath(os.path.join(current, "pid")) == os.path.realpath(os.path.join(run, "pid"))
    return current if run and same else run


def links(said: list[str], run: str) -> dict[str, str]:
    """{a whole path of the words that goes over links: where it leads}; into `run`, where it leads for what serves."""
    parts = {part for text in said for part in (text, text.partition("=")[2]) if part.startswith("/")}
    now, found = serving(run), {}
    for path in parts:
        real = os.path.realpath(now + path[len(run) :] if run and path.startswith(run + "/") else path)
        if os.path.exists(real) and real != path:
            found[path] = real
    return found


def main(pid: str) -> None:
    answer: dict[str, Any] = {"error": None}
    try:
        argv, environ = words(pid, "cmdline"), dict(w.partition("=")[::2] for w in words(pid, "environ"))
        cwd = os.readlink("/proc/" + pid + "/cwd")
    except OSError as error:
        answer["error"] = type(error).__name__
    else:
        run = environ.get("DEPLOY_SERVER", "")
        answer.update(argv=argv, environ=environ, cwd=cwd, places=places(argv, cwd, environ), links=links(argv, run))
        answer["serving"] = serving(run)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
