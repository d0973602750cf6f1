"""`deploy bench`: measure what runs, or what it would do without a draft."""

from __future__ import annotations

import click

from deploy.commands._options import later, shared
from deploy.options import Options


@click.command
@click.option(
    "--baseline",
    is_flag=True,
    help="Restart it once without draft and speculation, measure that, keep it on the host, and bring back what ran.",
)
@click.option("--concurrency", metavar="N,...", help="Requests at once, one rung after another: bench.concurrency.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds at each concurrency: bench.rounds.")
@click.option("--prompts", metavar="SET", shell_complete=later("files"), help="A set, or a .jsonl file: bench.prompts.")
@click.option("--load", metavar="NAME", shell_complete=later("loads"), help="The load generator: bench.load.")
@shared
def bench(options: Options, *, baseline: bool, **said: str | int | None) -> int:
    """Measure what runs: acceptance and speed, in rounds, held against its gates.

    Whose it is and what it answers is looked at before; what runs goes on. With --baseline it is away for the time of
    two starts, and comes back as it was, whatever happens; from then on every measurement tells what the draft gains.

    \b
    Examples:
      deploy bench
      deploy bench --concurrency 1,8,32 --rounds 7
      deploy bench profile=kimi-eagle3 --prompts mine.jsonl bench.max_tokens=256 --json
      deploy bench --baseline
    """
    from deploy.operations import benchmarking
    from deploy.walk.session import Session

    options = benchmarking.worded(options, said)
    with Session(options.command("bench", *(["--baseline"] if baseline else []))) as session:
        return benchmarking.bench(options, session, baseline=baseline)
