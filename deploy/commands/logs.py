"""`deploy logs`: the server's own words."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from deploy import host
from deploy.commands._options import looking
from deploy.errors import ConfigError, DeployError
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.deployment.state import Run
    from deploy.logs.starting import Starts
    from deploy.remote import Remote
    from deploy.transport import Process

LONGEST = 24 * 3600.0


@click.command
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, and with the next one after a restart.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=200, show_default=True, help="So many from its end.")
@click.option(
    "--phase", is_flag=True, help="Not the log, but what it tells of the server's start: each phase, how long."
)
@looking()
def logs(options: Options, follow: bool, lines: int, phase: bool) -> int:
    """Print the server's log on stdout; with several hosts, each line begins with its host.

    \b
    Examples:
      deploy logs -n 50
      deploy logs -f --hosts gpu1
      deploy logs --phase
      deploy logs --phase --json | jq '.gpu1.seconds'
    """
    from deploy.abreast import together
    from deploy.operations import running
    from deploy.walk.session import Session

    if options.output == "json" and (follow or not phase):
        raise ConfigError(
            "a log is no JSON document",
            remedy="deploy logs prints it as it is; deploy logs --phase --json is a document",
        )
    with Session("logs") as session:
        running.only_profile(options)
        running.ask(options, session)
        found = running.the_one(options, session)
        readers = [
            Reader(
                session.remotes[host],
                run,
                lines,
                follow,
                f"{host}: " if len(found.runs) > 1 else "",
                _starts(host, run) if phase else None,
                quiet=options.output == "json",
            )
            for host, run in found.runs.items()
        ]
        failed = _all(readers)
    if options.output == "json":
        click.echo(json.dumps({reader.remote.host.name: reader.document() for reader in readers}, indent=2))
    if failed:
        raise together(failed)
    return 0


def _starts(host: str, run: Run) -> Starts:
    """What reads the start of a run out of its log."""
    from deploy.logs.starting import Starts

    node = run.node
    if node is None or not node.engine.WORDS:
        what = f"engine {node.profile.engine.name!r} has no known phases" if node else "its manifest cannot be read"
        raise ConfigError(f"{host}: {what}", remedy="without --phase, the log is printed as it is")
    return Starts(node.engine, (run.manifest or {}).get("engine_version"), alive=run.alive)


@dataclass(frozen=True)
class Reader:
    """One host's log on its way to stdout, or the phases of the start that it tells of (`starts`)."""

    remote: Remote
    run: Run
    lines: int
    follow: bool
    prefix: str
    starts: Starts | None = None
    quiet: bool = False

    def read(self) -> None:
        """Print it to its end, or for as long as somebody looks. DeployError where it cannot be read."""
        following = self.follow and self.run.alive
        if self.follow and not following:
            click.echo(f"{self.remote.host.name}: run {self.run.id} does not run: {self.run.ending}", err=True)
        current = f"{self.run.folder.rpartition('/runs/')[0]}/current" if following else ""
        process = self._read(current)
        try:
            self._print(process, following)
        finally:
            process.close()

    def document(self) -> dict[str, Any]:
        """The phases that were read, of the run that was launched: one whose draft was exchanged later has no start."""
        start = self.starts.start if self.starts else None
        told = start.document(time.monotonic()) if start else {}
        return {"run": self.run.server.rpartition("/")[2], "alive": self.run.alive, **told}

    def _read(self, current: str) -> Process:
        lines, words = ("-1", self.starts.words) if self.starts else (str(self.lines), ())
        argv = (*self.remote.interpreter, host.source("logs"), lines, self.run.server, current, *words)
        return self.remote.spawn(*argv, deadline=LONGEST)

    def _print(self, process: Process, following: bool) -> None:
        rest = b""
        while data := process.read(timeout=None):
            *whole, rest = (rest + data).split(b"\n")
            if not self._write(self._shown([line.decode(errors="replace") for line in whole], following)):
                return
            if self.starts and self.starts.start and self.starts.start.over and not following:
                break
        else:
            end = "\n" if self.prefix else ""
            _write([f"{self.prefix}{rest.decode(errors='replace')}{end}"] if rest else [])
            self._judge(process)
        if self.starts and self.starts.start and not following and not self.quiet:
            ending = [] if self.run.alive or self.follow else [self.run.ending]
            self._write([*self.starts.start.rows(time.monotonic()), *ending])

    def _shown(self, lines: list[str], following: bool) -> list[str]:
        if self.starts is None:
            return lines
        told = self.starts.lines(lines, time.monotonic())
        return told if following else []

    def _write(self, lines: list[str]) -> bool:
        return _write([f"{self.prefix}{line}\n" for line in lines])

    def _judge(self, process: Process) -> None:
        if process.poll():
            raise DeployError(
                f"{self.remote.host.name}: the log of run {self.run.id} cannot be read",
                evidence=process.read_stderr().decode(errors="replace").strip(),
                remedy="deploy status says what is deployed there",
            )


def _all(readers: list[Reader]) -> dict[str, DeployError]:
    """Read side by side; the errors of those that failed."""
    from deploy.abreast import joined

    failed: dict[str, DeployError] = {}

    def attempt(reader: Reader) -> None:
        try:
            reader.read()
        except DeployError as error:
            failed[reader.remote.host.name] = error

    threads = [threading.Thread(target=attempt, args=(reader,), daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    joined(threads)
    return failed


def _write(lines: list[str]) -> bool:
    """Whether somebody still reads it. A terminal is not steered by what a server said."""
    from deploy.render import clean, lost

    sys.stdout.write("".join(map(clean, lines) if sys.stdout.isatty() else lines))
    sys.stdout.flush()
    return lost(sys.stdout) is None
