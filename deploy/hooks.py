"""The user's own programs at four points of a run: prepare, ready, failed, stopped. `docs/hooks.md` is the contract."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy import host, project
from deploy.checkpoint import manifest
from deploy.config import guarded
from deploy.deployment import releases
from deploy.errors import ConfigError, DeployError, TimedOut
from deploy.plan import Draft, Node
from deploy.profile import Hook
from deploy.remote import Remote
from deploy.transport import Transport
from deploy.transport.local import LocalTransport

# What a hook may import from DEPLOY_LIB, and the program of deploy/host that it is, with all its parts.
LIBRARY = {"header": "rewrite", "checkpoint": "checkpoint", "remedy": "remedy", "repair": "repair"}


def run(point: str, node: Node, remote: Remote) -> str:
    """Run the hooks of a point in order; the first that fails stops the run."""
    hooks: list[Hook] = getattr(node.profile.hooks, point)
    for hook in hooks:
        _run(hook, point, node, remote)
    return f"{len(hooks)} hook{'s' * (len(hooks) != 1)} done" if hooks else "no hooks"


def prepare(hook: Hook, node: Node, remote: Remote) -> str | None:
    """Run a `prepare` hook; if it names another draft, make that a release and serve it. The release's path."""
    printed = _run(hook, "prepare", node, remote).strip()
    if not printed:
        return None
    path = _draft(hook, printed)
    if hook.on == "controller":
        draft = Draft(path, manifest.of(Path(path), manifest.cache_file()))
        release, _ = releases.bring(draft, remote.place.releases(node), remote)
    else:
        release = _adopt(path, node, remote)
    releases.link(release, remote.place, remote)
    return release


def _adopt(path: str, node: Node, remote: Remote) -> str:
    """What a hook wrote on the host becomes a release under its own digest."""
    found = releases.digest(path, remote)
    folder = remote.place.releases(node)
    target = f"{folder}/{found.short}"
    if path == target:
        return target
    incoming = f"{folder}/.{found.short}.{remote.place.machine.id}.incoming"
    remote.change('rm -rf -- "$2" && cp -RL --reflink=auto -- "$1" "$2"', path, incoming, timeout=releases.READ_BACK)
    releases.seal(found, incoming, target, remote, origin=node.draft.digest if node.draft else path)
    return target


def _draft(hook: Hook, printed: str) -> str:
    try:
        path = json.loads(printed)["draft"]
    except (ValueError, KeyError, TypeError):
        path = None
    if isinstance(path, str) and path.startswith("/"):
        return path
    raise DeployError(
        f"the hook {hook.run} printed something else than one JSON object with a draft's whole path",
        evidence=printed[-1500:],
        remedy='print {"draft": "/path"} and nothing else to stdout, or nothing; words for people go to stderr',
    )


def _run(hook: Hook, point: str, node: Node, remote: Remote) -> str:
    remote.say(f"hook {hook.run}")
    if point == "failed":  # somebody is to be told, above all where the host is lost
        return _ended(hook, point, node, remote)
    remote.change(":")  # users' traffic may follow from it: not after our lease
    said = _ended(hook, point, node, remote)
    remote.change(":")  # it may have taken longer than the lease
    return said


def _ended(hook: Hook, point: str, node: Node, remote: Remote) -> str:
    """Run it to its end; what it printed. DeployError for any end but a good one."""
    try:
        with _placed(hook, remote) as (program, where, library):
            variables = {**_environment(hook, point, node, remote), "DEPLOY_LIB": library}
            said = (f"{name}={value}" for name, value in variables.items())
            # not `env NAME=VALUE program`: a path with = in it would be one more variable
            argv = ("env", *said, "sh", "-c", 'exec "$@"', "sh", program, *hook.args)
            result = where.run(argv, stdin=json.dumps(node.to_json()).encode(), timeout=hook.timeout)
    except TimedOut as error:
        raise DeployError(
            f"the {point} hook {hook.run} still ran after {hook.timeout:g} s on {_place(hook, remote)}, and was ended",
            evidence=error.evidence,
            remedy="raise its timeout in the profile",
        ) from error
    if result.status:
        raise DeployError(
            f"the {point} hook {hook.run} ended with status {result.status} on {_place(hook, remote)}",
            evidence=result.stderr.decode(errors="replace")[-1500:],
            remedy="its stderr is above; mend it and run the command again",
        )
    return result.stdout.decode(errors="replace")


def located(hook: Hook) -> Path:
    """The hook's file: the project's own, or `hooks/NAME` of those that come with the tool. ConfigError if neither."""
    path, shipped = Path(hook.run), project.builtin() / "hooks" / Path(hook.run).name
    if not path.is_file() and path.parent.name == "hooks":
        path = shipped
    if not path.is_file():
        raise ConfigError(f"there is no hook {hook.run}", remedy="its path is relative to the project's folder")
    guarded.check(path, f"the hook {hook.run}")
    if hook.on == "controller" and not os.access(path, os.X_OK):
        raise ConfigError(f"the hook {hook.run} may not be executed", remedy=f"chmod +x {path}")
    return path


@contextmanager
def _placed(hook: Hook, remote: Remote) -> Iterator[tuple[str, Transport, str]]:
    """(the program's path where it runs, the transport to there, the folder of DEPLOY_LIB). On a host all of it is
    copied into the run's folder.
    """
    source = located(hook)
    library = {f"{name}.py": host.source(part) for name, part in LIBRARY.items()}
    if hook.on == "controller":
        with TemporaryDirectory(prefix="deploy-hook-") as folder:
            for name, text in library.items():
                Path(folder, name).write_text(text, encoding="utf-8")
            yield str(source), LocalTransport(), folder
        return
    folder = f"{remote.place.folder}/hooks"
    remote.change('umask 077; mkdir -p -- "$1"', folder)
    program = f"{folder}/{source.name}"
    remote.put(program, source.read_bytes(), mode=0o700)
    remote.write(folder, library)
    yield program, remote.transport, folder


def _environment(hook: Hook, point: str, node: Node, remote: Remote) -> dict[str, str]:
    place, here = remote.place, hook.on == "controller"
    draft = "" if node.draft is None else (node.draft.path if here else f"{place.folder}/draft")
    version = place.engine.installed if place.engine else None
    return {
        "DEPLOY_RUN": place.run,
        "DEPLOY_RUN_FOLDER": place.folder,
        "DEPLOY_DEPLOYMENT": node.deployment,
        "DEPLOY_HOST": remote.host.name,
        "DEPLOY_ADDRESS": remote.host.address,
        "DEPLOY_POINT": point,
        "DEPLOY_PORT": str(node.port),
        "DEPLOY_ENGINE": f"{node.profile.engine.name}=={version}" if version else node.profile.engine.name,
        "DEPLOY_WAIVE": ",".join(node.profile.waive),
        "DEPLOY_MODEL": node.profile.model.path,
        "DEPLOY_DRAFT": draft,
        "DEPLOY_RELEASES": str(Path.home() / ".cache/deploy/releases") if here else place.releases(node),
    }


def _place(hook: Hook, remote: Remote) -> str:
    return "the controller" if hook.on == "controller" else remote.host.name
