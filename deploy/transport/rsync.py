"""Folders between this machine and a host: rsync over the OpenSSH client, behind two functions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.errors import DeployError, RemoteFailed, TimedOut, Unreachable
from deploy.transport._calls import Calls
from deploy.transport._process import Running
from deploy.transport._wrapper import KILL_AFTER
from deploy.transport.local import LocalTransport
from deploy.transport.openssh import Route

PARTIAL = ".deploy-partial"  # what a broken transfer leaves in each folder, for the next one to go on from
SILENCE = "60"  # seconds without a byte after which rsync itself gives up
PROGRESS = re.compile(rb"^\s*(\d+)\s+(\d+)%")
FILES = ["-rLt", f"--partial-dir={PARTIAL}", f"--timeout={SILENCE}"]
MODERN = ["-s", "--no-h", "--info=progress2"]  # since rsync 3.1
PLAIN = ["--progress"]  # of each file
VERSION = re.compile(r"rsync +version (\d+)\.(\d+)")
# OpenSSH prefers chacha20, which costs half as much again
CIPHERS = ["-o", "Ciphers=^aes128-gcm@openssh.com"]

BROKEN = (10, 12, 30, 35, 255)  # rsync: socket, protocol stream, time-outs; 255 is ssh's
REASONS = [
    (r"No space left on device|Disk quota exceeded", "its disk is full", "make room, or set another work folder"),
    (r"Permission denied \((publickey|.*password)", "rsync's ssh could not log in", "try: ssh HOST true"),
    (r"Host key verification failed", "rsync's ssh does not know the host key", "try: ssh HOST true"),
    (r"Permission denied|Operation not permitted", "not permitted", "the user there must own the folder"),
    (r"Read-only file system", "its file system is read-only", "set another work folder"),
    (r"rsync: (command )?not found", "rsync is missing on the host", "install the package rsync there"),
    (r"is your shell clean", "its login shell prints something, which breaks rsync",
     "start-up files must print nothing where there is no terminal; test it with: ssh HOST true"),
    (r"no referent", "a link in the folder leads nowhere", "repair the link, or fetch the file it is for"),
]  # fmt: skip

Progress = Callable[[int, int], None]


def push(
    host: Calls,
    route: Route,
    source: Path,
    target: str,
    *,
    progress: Progress,
    timeout: float,
    guard: Sequence[str] = (),
) -> None:
    """Copy the files below the folder `source` into the folder `target` of the host; links are followed.

    The host's rsync is started by the words of `guard`, and ends there too after `timeout` seconds.

    Files of the same size and time are left alone, and one that broke off goes on where it was. RemoteFailed (disk
    full, not permitted, no rsync), Unreachable, TimedOut after `timeout` seconds.
    """
    _check(host)
    total = _size(source)
    progress(0, total)
    _make(host, target)
    modern = _modern()
    there = shlex.join(["timeout", "-k", f"{KILL_AFTER:g}", f"{timeout:.3f}", *guard, "rsync"])
    words = [
        *_words(host, route, target, modern=modern),
        f"--rsync-path={there}",
        "--",
        f"{source}/",
        _there(route, f"{target}/", modern=modern),
    ]
    _run(host, words, timeout, lambda done: progress(min(done, total), total))
    progress(total, total)


def fetch(host: Calls, route: Route, source: str, target: Path, *, timeout: float) -> None:
    """Copy the files of a folder on the host, or one file, into the local folder `target`. Errors as in `push`."""
    _check(host)
    target.mkdir(parents=True, exist_ok=True)
    folder = host.run(["test", "-d", source]).status == 0
    modern = _modern()
    there = _there(route, f"{source}/" if folder else source, modern=modern)
    _run(host, [*_words(host, route, None, modern=modern), "--", there, f"{target}/"], timeout, lambda _done: None)


def _check(host: Calls) -> None:
    if not shutil.which("rsync"):
        raise DeployError("rsync is missing on this machine", remedy="install the package rsync here")
    if host.run(["sh", "-c", "command -v rsync"]).status:
        raise RemoteFailed(
            f"{host.name}: rsync is missing on the host", status=127, remedy="install the package rsync there"
        )


def _make(host: Calls, target: str) -> None:
    made = host.run(["mkdir", "-p", "--", target])
    if made.status:
        raise _failed(host, made.status, made.stderr)


def _modern() -> bool:
    """Whether the rsync of this machine is 3.1 or newer; macOS brings an older one, or openrsync, which says it is."""
    found = VERSION.search(LocalTransport().run(["rsync", "--version"]).stdout.decode(errors="replace"))
    return found is not None and (int(found[1]), int(found[2])) >= (3, 1)


def _words(host: Calls, route: Route, target: str | None, *, modern: bool) -> list[str]:
    """Rsync and its options. A file that broke off can only go on by comparing blocks, which -W switches off."""
    look = ["sh", "-c", f'cd -- "$1" && find . -name {PARTIAL} -print -quit', "sh", target or ""]
    resumes = target is None or bool(host.run(look).stdout)
    shell = " ".join(_quote(word) for word in [*route.command(), *_ciphers(route)])
    return ["rsync", *FILES, *(MODERN if modern else PLAIN), *([] if resumes else ["-W"]), "-e", shell]


def _ciphers(route: Route) -> list[str]:
    return [] if route.chosen("ciphers") else CIPHERS


def _quote(word: str) -> str:
    """As rsync splits its -e: a quote within quotes is doubled."""
    return "'" + word.replace("'", "''") + "'"


def _there(route: Route, path: str, *, modern: bool) -> str:
    """A path on the host as rsync is told it; an old one hands it to the shell there."""
    address = f"[{route.name}]" if ":" in route.name else route.name
    return f"{address}:{path if modern else shlex.quote(path)}"


def _size(source: Path) -> int:
    folders = os.walk(source, followlinks=True)
    return sum(
        Path(path, name).stat().st_size for path, _, names in folders for name in names if Path(path, name).exists()
    )


def _run(host: Calls, words: list[str], timeout: float, progress: Callable[[int], None]) -> None:
    process = LocalTransport().spawn(words, deadline=timeout)
    try:
        _follow(process, progress, whole=MODERN[-1] in words)
        process.ended.wait()
        status, words_of_rsync = process.poll() or 0, process.read_stderr()
    finally:
        process.close()
    if status in (124, 137):
        raise TimedOut(f"{host.name}: the copy took longer than {timeout:g} s; what is there is kept", status=status)
    if status:
        raise _failed(host, status, words_of_rsync)


def _follow(process: Running, progress: Callable[[int], None], *, whole: bool) -> None:
    """Tell the bytes that are done: rsync tells them of all files (`whole`), or of one after the other."""
    rest, before = b"", 0
    while data := process.read():
        *lines, rest = re.split(rb"[\r\n]", rest + data)
        for found in filter(None, map(PROGRESS.match, lines)):
            progress(before + int(found[1]))
            if not whole and found[2] == b"100":
                before += int(found[1])


def _failed(host: Calls, status: int, stderr: bytes) -> DeployError:
    """What rsync's exit status and last words mean."""
    words = stderr.decode(errors="replace").strip()[-1500:]
    for pattern, what, remedy in REASONS:
        if re.search(pattern, words):
            return RemoteFailed(f"{host.name}: {what}", status=status, evidence=words, remedy=remedy)
    if status in BROKEN:
        return Unreachable(
            f"{host.name}: the connection broke off during a copy",
            evidence=words,
            remedy="run the command again: it resumes",
        )
    return RemoteFailed(f"{host.name}: rsync ended with status {status}", status=status, evidence=words)
