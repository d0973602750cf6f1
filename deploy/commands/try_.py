"""`deploy try`: checkpoints or settings, each tried whole, and the best left running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.commands._options import exchange, shared, takes
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.swapping import Hot


@click.command("try")
@click.option(
    "--leave",
    type=click.Choice(["best", "before", "last"]),
    default="best",
    help="What runs at the end: the fastest whose gates hold, or where none does what ran before; what ran before in "
    "any case; or the last one, whatever became of it.",
)
@exchange
@takes("[CKPT]... [KEY=V1,V2]... [KEY=VALUE]...")
@shared
def try_(options: Options, leave: str, hot: Hot) -> int:
    """Try candidates: checkpoints, values of keys (KEY=V1,V2), or each with each.

    Each is checked, pushed, started, asked, measured and held against the gates; one that fails does not stop the
    others. A table at the end tells them apart. Exit 0 if a candidate holds.

    \b
    Examples:
      deploy try ckpt/step-2000 ckpt/step-4000 gpu1:/data/step-6000
      deploy try speculative.num_steps=3,4,5
      deploy try a/ b/ profile=kimi-eagle3 speculative.eagle_topk=1,4 --leave before --json
    """
    from deploy.text import scrub
    from deploy.trial import trying
    from deploy.walk.session import Session

    with Session(" ".join(scrub.words(("try", *options.words)))) as session:
        return trying.attempt(options, session, leave, hot)
