"""`deploy plan`: what `up` would do, word for word."""

from __future__ import annotations

import click

from deploy.commands._options import looking
from deploy.options import Options


@click.command
@click.option("--offline", is_flag=True, help="Do not ask the hosts what runs now.")
@looking()
def plan(options: Options, offline: bool) -> int:
    """Print steps, hosts, and the exact launch script and environment of each node; secrets are names only.

    \b
    Examples:
      deploy plan profile=kimi-eagle3
      deploy plan profile=kimi-eagle3 parallel.tp=4 --offline --json
    """
    import json

    from deploy import wish
    from deploy.operations import planning
    from deploy.walk.session import Session

    wished = wish.load(None, options)
    with Session("plan") as session:
        document = planning.document(wished, session, offline=offline)
    click.echo(json.dumps(document, indent=1) if options.json else planning.text(document))
    unknown = not offline and any(node["now"]["mode"] == "unknown" for node in document["nodes"])
    return 3 if unknown else 0
