"""The files of a new project: small, commented, valid at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from deploy.config.schema import Path as Key
from deploy.errors import ConfigError
from deploy.inventory import JUMP, LOCAL, Host
from deploy.scaffold import yaml
from deploy.scaffold.said import Entry

TITLE = """\
What to serve, where, and what to expect of it. `deploy plan profile={name}` shows what comes of it.
`deploy profile schema` and docs/profiles.md know every key."""

WHY: Mapping[Key, str] = {
    ("engine", "python"): "the interpreter on the hosts in which the engine is installed: ~/venv/bin/python, say",
    ("engine", "binary"): "on the hosts, found by PATH or written whole",
    ("hosts",): "hosts, groups, patterns of inventory.yaml",
    ("model", "path"): "lies on the hosts already; it is never pushed",
    ("draft", "path"): "a folder or a .gguf here; pushed to the hosts and verified there",
    ("speculative", "algorithm"): "every start ends in a measured accept length, held against `gates`",
}
HINTS = {
    "gpus": "# gpus: 8 # taken on each host",
    "draft": "# draft: ckpt/my-eagle3 # a folder here; pushed to the hosts and verified there",
    "speculative": "# speculative: {algorithm: EAGLE3, num_steps: 3} # with a draft",
    "parallel": "# parallel: {tp: 8} # GPUs that share each layer",
    "nccl": "# nccl: {DEBUG: WARN, SOCKET_IFNAME: eth0}",
    "env": "# env: {OMP_NUM_THREADS: 8}",
    "smoke": '# smoke: {ask: "Hello, what is 2+2?", expect: "4|four"}',
    "gates": "# gates: {accept_length: '>= 2.0', tok_s: '>= 100'}",
    "secrets": "# secrets: [HF_TOKEN] # taken from your own environment, and written nowhere",
}
ARGS: Mapping[str, Mapping[str, object]] = {
    "sglang": {"mem-fraction-static": "0.85", "enable-metrics": True},
    "vllm": {"gpu-memory-utilization": "0.85"},
    "llamacpp": {"ctx-size": "8192"},
    "command": {"argv": ["my-server", "--model", "{model}", "--port", "{port}"]},
}
HOOK = """\
#!/bin/sh
# Runs on this machine after a start has passed its gates: the place to let users in (docs/hooks.md).
set -eu
echo "$DEPLOY_DEPLOYMENT serves $DEPLOY_MODEL on $DEPLOY_ADDRESS, port $DEPLOY_PORT" >&2
"""
EXAMPLES = """\
# hosts:
#   gpu1: {address: 192.0.2.11, user: serve, gpus: 8}
#   gpu2: {address: 192.0.2.12, user: serve, gpus: 8}
#   gpu3: # as `ssh gpu3` reaches it
#
# groups:
#   blackwell: ["gpu[1-2]"]
"""


def fields(engine: str, model: str) -> dict[Key, Entry]:
    """What the first profile says where nothing was asked for."""
    program = {"llamacpp": ("binary", "llama-server"), "command": ("name", "command")}.get(
        engine, ("python", "python3")
    )
    said: dict[Key, object] = {
        ("engine", "name"): engine,
        ("engine", program[0]): program[1],
        ("hosts",): LOCAL,
        ("model", "path"): model,
        ("port",): "30000",
        **{("args", flag): value for flag, value in ARGS.get(engine, {}).items()},
        ("hooks", "ready"): ["hooks/announce"],
    }
    return {key: Entry(value, WHY.get(key, "")) for key, value in said.items()}


def profile(name: str, said: Mapping[Key, Entry]) -> str:
    """The first profile's text."""
    return yaml.profile(said, TITLE.format(name=name), hints=HINTS)


def inventory(hosts: Sequence[Host]) -> str:
    """The inventory's text: these hosts, or this machine alone."""
    title = "# The hosts there are, and how each is reached: docs/inventory.md.\n\nhosts:\n"
    named = [host for host in hosts if host.name != LOCAL]
    if not named:
        return f"{title}  localhost:\n    transport: local # this machine, without ssh\n\n{EXAMPLES}"
    lines = [f"  {host.name}: {entry(host)}" for host in named]
    return (
        title
        + "\n".join(lines)
        + "\n\n# Every key of a host is optional: gpus: 8, jump: gate, work: /raid/deploy, env: {NAME: x}\n"
    )


def entry(host: Host) -> str:
    """What stands behind a host's name."""
    told = {"address": host.address, "user": host.user, "port": host.port, "key": host.key, "transport": host.transport}
    known = {key: value for key, value in told.items() if value is not None and value not in (host.name, "ssh")}
    return yaml.value(known) if known else f"# as `ssh {host.name}` reaches it"


def host(text: str) -> Host:
    """A host from `NAME`, `NAME=user@address:port` or `user@address:port`, which is its own name then."""
    name, equals, where = text.partition("=")
    found = JUMP.fullmatch(where if equals else text)
    if not found or (equals and not name):
        raise ConfigError(f"--host {text} is no host", remedy="gpu1, or gpu1=serve@192.0.2.11")
    address = found["host"].strip("[]")
    named = name if equals else re.sub(r"[^A-Za-z0-9_.-]", "-", address).lstrip(".-") or "host"
    port = int(found["port"]) if found["port"] else None
    local = address == LOCAL and not found["user"] and not port
    return Host(name=named, address=address, user=found["user"], port=port, transport="local" if local else "ssh")
