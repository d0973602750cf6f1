"""`deploy hosts`: the hosts there are, what each of them has, and whether it can be reached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.commands._options import later

if TYPE_CHECKING:
    from deploy.options import Options
    from deploy.transport.trust import Shown

EXAMPLES = """\b
Examples:
  deploy hosts
  deploy hosts --hosts 'gpu[1-4]' --json
  deploy hosts trust                     host keys that are not known yet: shown, then added
  deploy hosts trust gpu1 -y
"""

_project = click.option("--project", type=click.Path(path_type=Path), help="The project's folder.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


class Hosts(click.Group):
    """Its only commands are those below: another word was meant as a host."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The same, but that a word which is no command is told where it belongs."""
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and args[0] not in self.commands:
            raise click.UsageError(f"there is no command {args[0]!r}; did you mean --hosts {args[0]}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Hosts, invoke_without_command=True, epilog=EXAMPLES)
@click.option(
    "--hosts", "patterns", metavar="PATTERNS", shell_complete=later("hosts"), help="Only these hosts: 'gpu[1-4],!gpu3'"
)
@_project
@_json
@click.pass_context
def hosts(context: click.Context, *, patterns: str | None, project: Path | None, as_json: bool) -> int:
    """Say of each host of the inventory whether it can be reached, what it has, what is deployed, and who holds it.

    Exit 3 where one cannot be reached.
    """
    if context.invoked_subcommand:
        return 0
    import json

    from deploy.operations import surveying
    from deploy.walk.session import Session

    with Session("hosts") as session:
        rows = surveying.survey(_options(patterns, project, as_json=as_json), session)
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        surveying.show(rows)
    return 3 if any(row["state"] == "unreachable" for row in rows) else 0


@hosts.command()
@click.argument("patterns", metavar="[HOSTS]", default="all", shell_complete=later("hosts"))
@click.option("-y", "--yes", is_flag=True, help="Do not ask: what is shown now is right.")
@_project
@_json
def trust(patterns: str, *, yes: bool, project: Path | None, as_json: bool) -> None:
    """Add the host keys of HOSTS that are not known to your known_hosts, after showing them; jump hosts come first.

    A key that has changed, or is revoked, is never added.

    \b
    Examples:
      deploy hosts trust
      deploy hosts trust 'gpu[1-4]'
    """
    import json

    from deploy.abreast import together
    from deploy.operations import running, trusting

    wanted = running.hosts(_options(patterns, project, as_json=as_json))
    rows = trusting.trust_all(wanted, lambda shown: _agree(shown, yes=yes))
    if as_json:
        click.echo(json.dumps([row.to_json() for row in rows], indent=1))
    for row in [] if as_json else rows:
        if row.error is None:
            click.echo(f"{row.host}: {row.state}{f', in {row.file}' if row.file else ''}")
    failed = trusting.failures(rows)
    if failed:
        raise together(failed)


def _options(patterns: str | None, project: Path | None, *, as_json: bool) -> Options:
    from deploy.options import Options

    return Options((), project, patterns, yes=False, output="json" if as_json else "auto", verbosity=0)


def _agree(shown: Shown, *, yes: bool) -> None:
    """Show the keys, and ask; an error is a no."""
    from deploy.errors import CheckFailed, ConfigError
    from deploy.operations.trusting import COMPARE

    name = shown.stop.name
    click.echo(f"{name} ({shown.stop.where}) shows keys that are not known:", err=True)
    for kind, fingerprint in shown.fingerprints:
        click.echo(f"  {kind:<20}  {fingerprint}", err=True)
    click.echo(f"Compare with what its own console says: {COMPARE}", err=True)
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"{name}: its host key is not known; nothing was written", remedy="compare it, then say it is right by -y"
        )
    if not click.confirm(f"Are these the keys of {name}?", err=True):
        raise CheckFailed(f"{name}: its host key is not known; nothing was written")
