"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from deploy.errors import ConfigError
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.render import Output

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number in a range: NaN, which is in every range, and infinities are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


def shared(function: F) -> F:
    """Give a command the shared options, as one `Options` in its first argument."""

    @click.argument("words", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=later("words"))
    @click.option("--project", type=click.Path(path_type=Path), help="The project's folder (default: the nearest one).")
    @click.option(
        "--hosts", metavar="PATTERNS", shell_complete=later("hosts"), help="Only these hosts: 'gpu[1-4],!gpu3'"
    )
    @click.option("-y", "--yes", is_flag=True, help="Do not ask, before a checkpoint is undone or `down`.")
    @click.option("--json", "output", flag_value="json", help="One JSON document on stdout.")
    @click.option("--jsonl", "output", flag_value="jsonl", help="Events as JSON lines on stdout.")
    @click.option("-q", "--quiet", count=True, help="Failures and the last line only.")
    @click.option("-v", "--verbose", count=True, help="-v: all that is said. -vv: the server's log as well.")
    def command(
        *,
        words: tuple[str, ...],
        project: Path | None,
        hosts: str | None,
        yes: bool,
        output: str | None,
        quiet: int,
        verbose: int,
        **others: Any,
    ) -> Any:
        if hosts is not None and not hosts.strip():
            raise ConfigError("--hosts names no host", remedy="leave it out for all of them, or say --hosts gpu1")
        options = Options(words, project, hosts, yes, cast("Output", output or "auto"), verbose - quiet)
        return function(options, **others)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    command.__click_params__ = [*getattr(function, "__click_params__", []), *command.__click_params__]  # type: ignore[attr-defined]
    return command  # type: ignore[return-value]


def exchange(function: F) -> F:
    """--hot and --cold, as `hot`: whether a draft may come into the running server, must, or may not."""
    hot = click.option(
        "--hot",
        "insists",
        is_flag=True,
        help="Only exchange the draft while the server runs; refuse what would be a restart.",
    )
    cold = click.option(
        "--cold", "restarts", is_flag=True, help="Restart, though the draft could be exchanged while the server runs."
    )

    @functools.wraps(function)
    def command(*words: Any, insists: bool, restarts: bool, **others: Any) -> Any:
        if insists and restarts:
            raise ConfigError("--hot refuses a restart, --cold wants one", remedy="say one of them, or neither")
        return function(*words, hot="only" if insists else "never" if restarts else "try", **others)

    return hot(cold(cast("F", command)))


def looking(words: str = "[KEY=VALUE]...") -> Callable[[F], F]:
    """The shared options, for a command that looks and makes no run. What means nothing there is not in its help, and
    events are refused, rather than a table given to who wants JSON.
    """

    def give(function: F) -> F:
        @functools.wraps(function)
        def without_events(options: Options, **others: Any) -> Any:
            if options.output == "jsonl":
                raise ConfigError(
                    f"deploy {function.__name__} has no events: --jsonl means nothing here", remedy="--json"
                )
            return function(options, **others)

        command = shared(cast("F", without_events))
        for parameter in command.__click_params__:  # type: ignore[attr-defined]
            if isinstance(parameter, click.Argument):
                parameter.metavar = words
            elif not {"--jsonl", "-q", "-v", "-y"}.isdisjoint(parameter.opts):
                parameter.hidden = True
        return command

    return give


def takes(words: str) -> Callable[[F], F]:
    """What a command calls its words, where they are no `key=value` of a profile."""

    def give(function: F) -> F:
        for parameter in function.__click_params__:  # type: ignore[attr-defined]
            if isinstance(parameter, click.Argument):
                parameter.metavar = words
        return function

    return give


def later(name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """A completion of `deploy/completion/completing.py`, which is imported only when a shell asks."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        from deploy.completion import completing

        return getattr(completing, name)(ctx, parameter, incomplete)

    return complete
