"""`deploy tunnel`: a port of this machine that leads to the server."""

from __future__ import annotations

import click

from deploy.commands._options import looking
from deploy.options import Options


@click.command
@click.option("-p", "--port", type=click.IntRange(0, 65535), default=0, help="The port here; any free one if not said.")
@looking()
def tunnel(options: Options, port: int) -> int:
    """Open a port on this machine's loopback that leads to the head's server, which may listen on its own loopback.

    It stays open until Ctrl-C. The URL is on stdout.

    \b
    Examples:
      deploy tunnel -p 8000
      curl $(deploy tunnel --json | jq -r .url)/v1/models
    """
    import json
    import socket

    from deploy.errors import ConfigError
    from deploy.operations import running
    from deploy.server import tunnel as joining
    from deploy.walk.session import Session

    with Session("tunnel") as session:
        running.only_profile(options)
        running.ask(options, session)
        head = running.the_one(options, session).plan().replicas[0].head
        try:
            listener = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(f"port {port} cannot be opened here: {error.strerror}", remedy="another -p") from error
        with listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            told = {"url": url, "host": head.host.name, "port": head.port, "model": head.served_name}
            click.echo(json.dumps(told) if options.json else url)
            click.echo(f"leads to {head.served_name} on {head.host.name}:{head.port}; Ctrl-C ends it", err=True)
            joining.serve(listener, head.port, session.remotes[head.host.name], lambda told: click.echo(told, err=True))
    return 0
