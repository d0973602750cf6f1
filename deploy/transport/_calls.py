"""What every transport does alike, on nothing but `spawn`: run a program to its end, write a small file."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from deploy.errors import RemoteFailed, TimedOut, Unreachable
from deploy.transport import Result
from deploy.transport._process import Running
from deploy.transport._wrapper import KILL_AFTER, KILLED

SLACK = 10.0  # seconds past the deadline after which a host counts as silent: its own `timeout` should have spoken
PUT_TIMEOUT = 60.0
ENDED = (124, KILLED)  # what `timeout` says, and what is seen when it was killed with its group
NO_FOLDER, CUT_SHORT = 81, 82

# mktemp makes the file 0600, so the mode is never wider than asked for; a cut connection leaves it short, and unused.
PUT = f"""path=$1 mode=$2 size=$3
folder=$(dirname -- "$path"); [ -d "$folder" ] || exit {NO_FOLDER}
new=$(mktemp -- "$path.XXXXXX") || exit
trap 'rm -f -- "$new"' EXIT
cat >"$new" || exit
[ "$(wc -c <"$new")" -eq "$size" ] || exit {CUT_SHORT}
chmod -- "$mode" "$new" && sync -- "$new" && mv -fT -- "$new" "$path" && sync -- "$folder" """


class Calls(ABC):
    """The part of a transport that is built on `spawn`."""

    name: str
    noise: Mapping[str, bytes] = MappingProxyType({})

    @abstractmethod
    def _start(self, argv: Sequence[str], deadline: float, keep: int | None) -> Running: ...

    def spawn(self, argv: Sequence[str], *, deadline: float) -> Running:
        """Start a program; after `deadline` seconds it is ended on the host itself, with its process group."""
        return self._start(argv, deadline, None)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, limit: int = 4 << 20) -> Result:
        """Run a program to its end, at most `timeout` seconds; of each stream the last `limit` bytes are kept.

        TimedOut when it had to be ended on the host; Unreachable when the host fell silent.
        """
        began = time.monotonic()
        process = self._start(argv, timeout, limit)
        try:
            with suppress(BrokenPipeError):  # it may end without reading its input
                process.write(stdin)
            process.close_stdin()
            self._await(process, timeout)
            result = self._result(process, limit)
            self.noise = process.noise
        finally:
            process.close()
        if result.status in ENDED and time.monotonic() - began >= timeout:
            raise TimedOut(
                f"{self.name}: {argv[0]} still ran after {timeout:g} s and was ended",
                status=result.status,
                evidence=result.stderr[-1500:].decode(errors="replace"),
            )
        return result

    def put(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write a small file: under a temporary name beside `path`, synced, then renamed over it."""
        plain = f"./{path}" if path.startswith("-") else path
        argv = ["sh", "-c", PUT, "sh", plain, f"{mode:04o}", str(len(content))]
        result = self.run(argv, stdin=content, timeout=PUT_TIMEOUT)
        if result.status == 0:
            return
        reasons = {NO_FOLDER: "its folder does not exist", CUT_SHORT: "it arrived cut short"}
        raise RemoteFailed(
            f"{self.name}: {path} could not be written{': ' * (result.status in reasons)}"
            f"{reasons.get(result.status, '')}",
            status=result.status,
            evidence=result.stderr.decode(errors="replace").strip(),
        )

    def _await(self, process: Running, timeout: float) -> None:
        if process.ended.wait(timeout + KILL_AFTER + SLACK):
            return
        if process.begun.is_set():
            raise Unreachable(f"{self.name}: silent {SLACK:g} s after a program's deadline of {timeout:g} s")
        raise Unreachable(
            f"{self.name}: its login shell did not come to our program within {timeout:g} s",
            remedy="its start-up files (.bashrc, .profile) must not wait for anything without a terminal",
        )

    def _result(self, process: Running, limit: int) -> Result:
        stdout = process.read(limit)
        status = process.poll()
        if status is None:
            raise process.lost or Unreachable(f"{self.name}: the program ended without a status")
        return Result(status, stdout, process.read_stderr())
