"""`deploy restart`: the same again, or the same with another checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.commands._options import exchange, later, shared
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.swapping import Hot


@click.command
@click.option(
    "--ckpt",
    metavar="PATH",
    shell_complete=later("files"),
    help="Another draft (another model where there is no draft): a folder, a "
    ".gguf, a weights file beside its config, or host:path.",
)
@exchange
@shared
def restart(options: Options, ckpt: str | None, hot: Hot) -> int:
    """Replace a running deployment, with its overrides kept and, if given, another checkpoint.

    Where only the draft differs, and the engine can, it is exchanged while the server runs; else it is told why not,
    and the server is started anew.

    \b
    Examples:
      deploy restart --ckpt fixed/
      deploy restart --ckpt fixed/ --hot
      deploy restart --ckpt gpu1:/data/drafts/step-4000
      deploy restart profile=kimi-eagle3 speculative.num_steps=5
    """
    from deploy import wish
    from deploy.operations import deploying, running
    from deploy.operations.deploying import How
    from deploy.text import scrub
    from deploy.walk.session import Session

    words = tuple(word for word in options.words if not word.startswith("profile="))
    told = ("restart", *(("--ckpt", ckpt) if ckpt else ()), *words)
    with Session(" ".join(scrub.words(told))) as session:
        running.ask(options, session, all_must_answer=True)
        found = running.the_one(options, session)
        wish.load(found.name, options, words=found.words(), ckpt=ckpt)  # what is wrong is told before any lock
        found = running.locked(found, session)
        wished = wish.load(found.name, options, words=found.words(), ckpt=ckpt, kept=found.ckpt())
        wished = wish.where(wished, found.hosts.values())  # to add a host is `up`'s business
        return deploying.bring_up(wished, options, session, How(fresh=True, hot=hot))
