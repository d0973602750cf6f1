"""`deploy logs`: the server's own words."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from deploy import host
from deploy.commands._options import shared
from deploy.errors import ConfigError, DeployError
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.remote import Remote
    from deploy.state import Run
    from deploy.transport import Process

LONGEST = 24 * 3600.0


@click.command
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, and with the next one after a restart.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=200, show_default=True, help="So many from its end.")
@shared
def logs(options: Options, follow: bool, lines: int) -> int:
    """Print the server's log on stdout; with several hosts, each line begins with its host.

    \b
    Examples:
      deploy logs -n 50
      deploy logs -f --hosts gpu1
    """
    from deploy import running
    from deploy.session import Session, together

    if options.output in ("json", "jsonl"):
        raise ConfigError("a log is neither a JSON document nor events", remedy="deploy logs prints it as it is")
    with Session("logs") as session:
        running.only_profile(options)
        running.ask(options, session)
        found = running.the_one(options, session)
        readers = [
            Reader(session.remotes[host], run, lines, follow, f"{host}: " if len(found.runs) > 1 else "")
            for host, run in found.runs.items()
        ]
        failed = _all(readers)
    if failed:
        raise together(failed)
    return 0


@dataclass(frozen=True)
class Reader:
    """One host's log on its way to stdout."""

    remote: Remote
    run: Run
    lines: int
    follow: bool
    prefix: str

    def read(self) -> None:
        """Print it to its end, or for as long as somebody looks. DeployError where it cannot be read."""
        following = self.follow and self.run.alive
        if self.follow and not following:
            click.echo(f"{self.remote.host.name}: run {self.run.id} does not run: {self.run.ending}", err=True)
        current = f"{self.run.folder.rpartition('/runs/')[0]}/current"
        process = self._read(current) if following else self._read()
        try:
            self._print(process)
        finally:
            process.close()

    def _read(self, *following: str) -> Process:
        words = (str(self.lines), self.run.folder, *following)
        return self.remote.spawn(*self.remote.interpreter, host.source("logs"), *words, deadline=LONGEST)

    def _print(self, process: Process) -> None:
        rest = b""
        while data := process.read(timeout=None):
            *whole, rest = (rest + data).split(b"\n")
            if not _write([f"{self.prefix}{line.decode(errors='replace')}\n" for line in whole]):
                return
        end = "\n" if self.prefix else ""
        _write([f"{self.prefix}{rest.decode(errors='replace')}{end}"] if rest else [])
        if process.poll():
            raise DeployError(
                f"{self.remote.host.name}: the log of run {self.run.id} cannot be read",
                evidence=process.read_stderr().decode(errors="replace").strip(),
                remedy="deploy status says what is deployed there",
            )


def _all(readers: list[Reader]) -> dict[str, DeployError]:
    """Read side by side; the errors of those that failed."""
    failed: dict[str, DeployError] = {}

    def attempt(reader: Reader) -> None:
        try:
            reader.read()
        except DeployError as error:
            failed[reader.remote.host.name] = error

    threads = [threading.Thread(target=attempt, args=(reader,), daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def _write(lines: list[str]) -> bool:
    """Whether somebody still reads it. A terminal is not steered by what a server said."""
    from deploy.render import clean, lost

    sys.stdout.write("".join(map(clean, lines) if sys.stdout.isatty() else lines))
    sys.stdout.flush()
    return lost(sys.stdout) is None
