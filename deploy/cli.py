"""argv -> a command -> an exit code; the one place that catches DeployError."""

from __future__ import annotations

import errno
import gc
import importlib
import keyword
import os
import sys

import click

from deploy import __version__, commands
from deploy.errors import ConfigError, DeployError, Interrupted

COMMANDS = commands.__path__[0]
# In the order in which a user meets them; a command that is not named here stands at the end.
ORDER = (
    "init",
    "up",
    "restart",
    "try",
    "smoke",
    "bench",
    "ask",
    "status",
    "logs",
    "explain",
    "tunnel",
    "down",
    "rollback",
    "plan",
    "check",
    "ckpt",
    "history",
    "show",
    "diff",
    "report",
    "hosts",
    "hold",
    "release",
    "profile",
    "engine",
    "completion",
)


class Commands(click.Group):
    """Finds commands by their files, and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        files = os.listdir(COMMANDS)
        names = [file[:-3].rstrip("_") for file in files if file.endswith(".py") and not file.startswith("_")]
        return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `deploy --help`, from the first line of each file: importing them all takes longer than click."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _line(name)) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The same, but that a command that does not exist is told with the nearest one."""
        known = ctx.resilient_parsing or not args or args[0].startswith("-")  # a shell only wants to know what is there
        if not known and self.get_command(ctx, args[0]) is None:
            from deploy.registry import nearest

            raise click.UsageError(f"there is no command {args[0]!r}; {nearest(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name.replace("-", "_") not in self.list_commands(ctx):
            return None
        name = _module(cmd_name)
        module = importlib.import_module(f"deploy.commands.{name}")
        command: click.Command = getattr(module, name)
        return command


def _module(command: str) -> str:
    """The module of a command, and its function: `try` is a word of Python's."""
    name = command.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def _line(name: str) -> str:
    """What follows the colon in the first line of a command's file."""
    with open(os.path.join(COMMANDS, f"{_module(name)}.py"), encoding="utf-8") as file:
        return file.readline().strip().strip('"').partition(": ")[2]


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def deploy() -> None:
    """Put a model and its draft on bare GPU hosts, and prove that they serve.

    \b
    Examples:
      deploy up profile=kimi-eagle3
      deploy restart --ckpt fixed/
      deploy smoke

    Any value of a profile can be said on the command line: parallel.tp=4 nccl.DEBUG=INFO.
    """


# Their exit code is the run's, whether or not anybody reads what they print; that of the others is the reader's too.
RUNS = frozenset({"up", "restart", "try", "smoke", "bench", "down", "rollback", "hold", "release"})


def main() -> None:
    """Run the command line, and leave with its exit code."""
    if os.environ.get("_DEPLOY_COMPLETE"):
        from deploy.completion import shells

        sys.exit(shells.answer(deploy))
    # hundreds of modules are made, and nothing of them is garbage: looking for it is a tenth of a short command
    gc.set_threshold(100_000)
    try:
        from deploy.render import guard

        guard()
        code = deploy.main(standalone_mode=False, color=_colour())
    except (click.exceptions.Abort, KeyboardInterrupt):  # click's word for it, from where it does not look yet
        code = _failed(Interrupted("stopped"))
    except click.ClickException as error:
        error.show()
        code = _failed(ConfigError(error.format_message()))
    except DeployError as error:
        tell(error)
        code = _failed(error)
    except Exception as error:
        _failed(DeployError(f"this is a bug of deploy: {error!r}"))
        raise
    gc.freeze()  # nor need it be looked for at the end
    sys.exit(_received(code if isinstance(code, int) else 0))


def _failed(error: DeployError) -> int:
    """The error for a program that asked for one JSON document and has got none so far; the exit code."""
    from deploy.render import written

    sys.stdout.flush()
    options = sys.argv[1:][: sys.argv[1:].index("--")] if "--" in sys.argv[1:] else sys.argv[1:]
    if "--json" in options and not written(sys.stdout):
        import json

        told = {"what": error.what, "evidence": error.evidence, "remedy": error.remedy, "error": type(error).__name__}
        click.echo(json.dumps({"exit_code": error.exit_code, "error": told}, indent=1))
    return error.exit_code


def _received(code: int) -> int:
    """The exit code of a command whose output may not have arrived."""
    from deploy.render import lost

    sys.stdout.flush()
    refused = lost(sys.stdout)
    if refused is None or RUNS.intersection(sys.argv[1:2]):
        return code
    if refused.errno != errno.EPIPE:  # `deploy ... | head` has seen enough
        click.echo(f"stdout: {refused.strerror}", err=True)
    return code or 1


def _colour() -> bool | None:
    """None: where there is a terminal. Click does not know NO_COLOR."""
    return False if os.environ.get("NO_COLOR") else None


def tell(error: DeployError) -> None:
    """One error, for people: what, evidence, remedy."""
    from deploy.render import clean  # a host's words must not steer the terminal

    click.secho(f"error: {clean(error.what)}", err=True, fg="red", color=_colour())
    for line in error.evidence.splitlines():
        click.echo(f"  {clean(line)}", err=True)
    if error.remedy:
        click.echo(f"-> {clean(error.remedy)}", err=True)
