from __future__ import annotations

import json
import secrets

from deploy import host
from deploy.deployment import described, secret
from deploy.deployment.compare import fingerprint
from deploy.deployment.releases import LINK
from deploy.deployment.state import reread
from deploy.plan import Node
from deploy.remote import Remote
from deploy.text import words

# All three streams are redirected, or the channel would wait for the server to end. The launcher itself writes
# its pid, so that a client that dies here leaves a run that can be found. Where no pid comes, a copy tells a full disk.
START = """\
cd -- "$1" || exit 1
umask 077
DEPLOY_SERVER=$1 setsid nohup sh launch.sh >>server.log 2>&1 </dev/null &
tries=0
until [ -s pid ]; do
    tries=$((tries + 1)); [ "$tries" -lt 100 ] || { cat server.log; cp launch.sh pid.tmp; rm -f pid.tmp; exit 1; } >&2
    sleep 0.05
done
"""


def launch(node: Node, remote: Remote) -> str:
    """Write down what is to run, then start it"""
    place = remote.place
    files = _recalled(node, remote) if place.source else _fresh(node, remote)
    remote.write(place.folder, {**files, "logcap.py": host.source("logcap")})
    for target, link in described.switch(place):
        remote.change(LINK, target, link)
    with remote.aside() as beside:
        beside.change(START, place.folder)
    # Seen over the main connection: what lives now outlived the one it was started over.
    run = reread(remote, place)
    if not run.alive:
        return f"it has {run.ending} already; the next step tells why"
    return f"pid {run.pid}, log {place.folder}/server.log"


def _fresh(node: Node, remote: Remote) -> dict[str, str]:
    values, salt = secret.values(node), secrets.token_hex(8)
    fingerprints = {"salt": salt, **{name: fingerprint(salt, value) for name, value in values.items()}}
    return {**_files(node, values), "manifest.json": described.manifest(node, remote, fingerprints)}


def _recalled(node: Node, remote: Remote) -> dict[str, str]:
    """The files are there already, copied by `recall`: our own environment may not have the secrets of that time."""
    source = remote.place.source
    fingerprints = (source.manifest or {}).get("secrets") if source else None
    return {"manifest.json": described.manifest(node, remote, fingerprints or {})}


def _files(node: Node, values: dict[str, str]) -> dict[str, str]:
    by_flag = {flag: values[name] for flag, name in node.secret_flags.items()}
    by_name = [(variable, values[name]) for variable, name in node.secret_variables.items()]
    files = {**dict(node.files), "env": words.environment([*node.env, *by_name]), "launch.sh": node.launch_script}
    if values:
        files[secret.FILE] = json.dumps(values) + "\n"
    if by_flag:
        files |= [node.engine.secret_file(by_flag)]
    return files
