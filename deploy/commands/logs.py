"""`deploy logs`: the server's own words."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import click

from deploy.commands._options import shared
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.remote import Remote
    from deploy.state import Run

LONGEST = 24 * 3600.0


@click.command
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("-n", "--lines", default=200, show_default=True, help="So many lines from its end.")
@shared
def logs(options: Options, follow: bool, lines: int) -> int:
    """Print the server's log on stdout; with several hosts, each line begins with its host.

    \b
    Examples:
      deploy logs -n 50
      deploy logs -f --hosts gpu1
    """
    from deploy import running
    from deploy.session import Session

    with Session("logs") as session:
        running.ask(options, session)
        found = running.the_one(options, session)
        several = len(found.runs) > 1
        readers = [
            threading.Thread(
                target=_print,
                args=(session.remotes[host], run, follow, lines, f"{host}: " if several else ""),
                daemon=True,
            )
            for host, run in found.runs.items()
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    return 0


def _print(remote: Remote, run: Run, follow: bool, lines: int, prefix: str) -> None:
    argv = ("tail", "-n", str(lines), *(("-F",) if follow else ()), "--", f"{run.folder}/server.log")
    process = remote.spawn(*argv, deadline=LONGEST if follow else 60.0)
    rest = b""
    while data := process.read(timeout=None):
        *whole, rest = (rest + data).split(b"\n")
        _write([prefix + line.decode(errors="replace") + "\n" for line in whole])
    _write([prefix + rest.decode(errors="replace")] if rest else [])


def _write(lines: list[str]) -> None:
    sys.stdout.write("".join(lines))
    sys.stdout.flush()
