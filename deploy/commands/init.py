"""`deploy init`: a first project, or a profile of a launch script or of a server that runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.errors import ConfigError

if TYPE_CHECKING:
    from deploy.config.schema import Path as Key
    from deploy.inventory import Host
    from deploy.scaffold import Launch
    from deploy.scaffold.making import Made, Target
    from deploy.scaffold.said import Entry

PROCESS = re.compile(r"(?P<host>.+):(?P<pid>\d+)")


@click.command
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--from", "origin", metavar="SCRIPT|HOST:PID", help="A launch script, or a process of a server that runs."
)
@click.option("--line", type=int, help="Which command of the script, where it starts several.")
@click.option(
    "--more",
    multiple=True,
    metavar="WORDS",
    help="What a word of the command that cannot be known stands for; '' for nothing. Repeat it, one for each.",
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME[=USER@ADDRESS]", help="A host of a new inventory; repeat it."
)
@click.option(
    "--project", type=click.Path(path_type=Path, file_okay=False), help="The folder (default: the current one)."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask anything.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def init(
    words: tuple[str, ...],
    *,
    origin: str | None,
    line: int | None,
    more: tuple[str, ...],
    hosts: tuple[str, ...],
    project: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Write an inventory, a first profile and a hook into a folder, or the profile of a server that exists.

    Nothing that exists is overwritten. A script is read, not run; a running server is looked at, not touched. At the
    end the profile's plan is held against the original, and every difference is told.

    \b
    Examples:
      deploy init
      deploy init --host gpu1=serve@192.0.2.11 engine=sglang model=/models/llama-3.1-8b parallel.tp=2
      deploy init --from launch.sh
      deploy init --from launch.sh profile=kimi hosts=gpu[1-2] model.path=/models/kimi
      deploy init --from launch.sh --more '--tp 8 --enable-metrics'
      deploy init --from gpu1:4242
      deploy init --from serve@192.0.2.11:4242
    """
    import json

    from deploy.scaffold import starter
    from deploy.settings import sources

    name, said = sources.take("profile", words)
    asked = Asked(name, said, project, tuple(map(starter.host, hosts)))
    if more and (origin is None or _process(origin)):
        raise ConfigError("--more is for a script: of a running server every word is known")
    if origin is None:
        made = _first(asked, ask=not (yes or as_json or words or hosts))
    elif match := _process(origin):
        made = _of_process(match, asked)
    else:
        made = _of_script(origin, line, asked, more)
    click.echo(json.dumps(made.to_json(), indent=1) if as_json else _text(made))


@dataclass(frozen=True)
class Asked:
    """What the command line says: the profile's name, its `key=value` words, the folder, hosts for an inventory."""

    name: str | None
    words: list[str]
    folder: Path | None
    hosts: tuple[Host, ...]

    @property
    def says_hosts(self) -> bool:
        return bool(self.hosts) or any(word.startswith("hosts=") for word in self.words)


def _first(asked: Asked, *, ask: bool) -> Made:
    import sys

    from deploy.scaffold import making, starter
    from deploy.scaffold.making import Target

    words, hosts = asked.words, asked.hosts
    if ask and sys.stdin.isatty() and sys.stderr.isatty():
        words, named = _questions()
        hosts = tuple(starter.host(text) for text in named.split())
    root = (asked.folder or Path.cwd()).resolve()
    name = making.named(asked.name, None, "first")
    return making.first(Target(root, None, hosts), name, _starting(words), words)


def _starting(words: list[str]) -> dict[Key, Entry]:
    from deploy import engines
    from deploy.scaffold import starter

    engine = next((word.partition("=")[2] for word in words if word.startswith(("engine=", "engine.name="))), "sglang")
    engines.load(engine)
    return starter.fields(engine, "/models/my-model.gguf" if engine == "llamacpp" else "/models/my-model")


def _questions() -> tuple[list[str], str]:
    """(what a first profile is made of, its hosts), from somebody at a terminal."""
    from deploy import registry

    def prompt(text: str, default: str, **more: Any) -> str:
        return str(click.prompt(text, default=default, err=True, show_default=bool(default), **more))

    engine = prompt("Engine", "sglang", type=click.Choice(registry.names("deploy.engines")))
    model = prompt("Model, a path on the hosts", "/models/my-model")
    draft = prompt("EAGLE-3 draft, a folder here (empty: none)", "")
    hosts = prompt("Hosts, as in gpu1=serve@192.0.2.11 (empty: this machine)", "")
    return [f"engine={engine}", f"model={model}", *([f"draft={draft}"] if draft else [])], hosts


def _process(origin: str) -> re.Match[str] | None:
    return None if Path(origin).exists() else PROCESS.fullmatch(origin)


def _target(asked: Asked, *found: Host) -> Target:
    """The nearest project, or the folder for a new one with the hosts that are named, or were `found`."""
    from deploy import project
    from deploy.scaffold.making import Target

    nearest = project.find(start=asked.folder)
    if nearest and asked.hosts:
        raise ConfigError("--host is for a new inventory; this project has one", remedy="hosts=NAME")
    root = nearest.root if nearest else (asked.folder or Path.cwd()).resolve()
    return Target(root, nearest, asked.hosts or found)


def _of_script(origin: str, line: int | None, asked: Asked, more: tuple[str, ...]) -> Made:
    from deploy.scaffold import ahead, fields, making, shell, starter, syntax

    file = Path(origin)
    launch = _chosen(shell.read(syntax.load(file, origin), file.name, file.resolve().parent), file.name, line)
    target = _target(asked)
    host = _on(target, starter.host(launch.host)) if launch.host and not asked.says_hosts else None
    if host:
        target = _target(asked, host)
    inventory, _ = target.inventory()
    local = not (host or asked.says_hosts) and list(inventory.hosts) == ["localhost"]
    made = fields.of(launch, local=local, more=more)
    written = making.from_launch(target, making.named(asked.name, None, file.stem), made, asked.words, host)
    return ahead.tell(written, made, here=not (host or asked.says_hosts))


def _chosen(launches: list[Launch], source: str, line: int | None) -> Launch:
    """The one server that the script starts, or the one of `--line`."""
    from deploy.scaffold import commands

    if line is not None:
        at = [one for one in launches if one.where.endswith(f":{line}")]
        if not at:
            raise ConfigError(f"{source}:{line}: no command begins there", evidence=_listed(launches))
        if at[0].blocked:
            raise ConfigError(f"{at[0].where}: {at[0].blocked}")
        return at[0]
    servers = commands.servers(launches)
    if not servers:
        raise ConfigError(
            f"{source}: starts no server that is known here",
            evidence=_listed(launches),
            remedy="name its line: --line N",
        )
    if len(servers) > 1:
        raise ConfigError(
            f"{source}: starts {len(servers)} servers", evidence=_listed(servers), remedy="name one: --line N"
        )
    if servers[0].blocked:
        raise ConfigError(f"{servers[0].where}: {servers[0].blocked}")
    if servers[0].condition:
        raise ConfigError(
            f"{servers[0].where}: whether this server starts depends on {servers[0].condition}",
            remedy=f"take it all the same: --line {servers[0].where.rpartition(':')[2]}",
        )
    return servers[0]


def _listed(launches: list[Launch]) -> str:
    """Where each command begins, by its program alone: any other word may be a secret."""
    return "\n".join(f"{one.where}: {one.argv[0].text} ..." for one in launches if one.argv and not one.argv[0].names)


def _of_process(found: re.Match[str], asked: Asked) -> Made:
    import threading

    from deploy import remote
    from deploy.scaffold import ahead, fields, making, process, starter

    host = _on(_target(asked), starter.host(found["host"]))
    reached = remote.reach(host, lambda _: None, threading.Event())
    try:
        server = process.read(reached, int(found["pid"]))
    finally:
        reached.transport.close()
    made = fields.of(server.launch, local=host.transport == "local", environ=server.environ)
    name = making.named(asked.name, made, made.engine)
    return ahead.tell(making.from_launch(_target(asked, host), name, made, asked.words, host), made)


def _on(target: Target, host: Host) -> Host:
    """The host of the inventory that is meant by its name or its address; in a new project, itself."""
    if target.project is None:
        return next((one for one in target.hosts if one.name == host.name), host)
    inventory, _ = target.inventory()
    known = {**inventory.hosts, "localhost": inventory.select("localhost")[0]}
    if host.name in known and not host.user:
        return inventory.host(host.name)
    same = [one for one in known.values() if one.address == host.address and (not host.user or host.user == one.user)]
    return inventory.host(same[0].name) if same else host


def _text(made: Made) -> str:
    """For people: the files, the differences, what was left out, what comes next."""
    lines = [f"wrote {made.root / name}" for name in made.files]
    if made.differences:
        lines += ["", "It plans the same command but for:", *(f"  {one}" for one in made.differences)]
    elif "hooks/announce" not in made.files:
        lines += ["", "It plans the same command and the same environment."]
    if made.notes:
        lines += ["", "To know:", *(f"  {note}" for note in made.notes)]
    return "\n".join([*lines, "", f"next: deploy plan profile={made.name}"])
