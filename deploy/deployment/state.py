"""What a host says about its deployments: read in one round trip, derived there, stored nowhere else.

<work>/releases/<digest>/                     checkpoints, immutable; the work folder may be shared by hosts
<work>/<machine-id>/<deployment>/current      a link to the run that was launched last
<work>/<machine-id>/<deployment>/previous     a link to the last run that passed its gates before that
<work>/<machine-id>/<deployment>/runs/<id>/   manifest.json launch.sh env pid exit server.log draft -> release
    server.log.1 and server.log.cut are what `logcap` took off the log's beginning, and how much that was in all
    of a run whose draft was exchanged in the server of another one, pid, log and what else tells of the process are
    links into the folder of that run, `server`; swap.json lies there while nobody knows which draft is loaded
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deploy import host
from deploy.facts.interpreter import Interpreter
from deploy.inventory import Host
from deploy.locking import hold, lease
from deploy.locking.hold import Hold
from deploy.plan import Node
from deploy.remote import Remote

TORN = "an exchange of its draft broke off: it is paused, and which one is loaded is not known"
SWAPPING = "its draft is exchanged just now, and requests wait"


@dataclass(frozen=True)
class Run:
    """One launch of one deployment on one host, as its folder and /proc tell it."""

    id: str
    folder: str
    manifest: Mapping[str, Any] | None
    verdict: Mapping[str, Any] | None
    draft: str | None
    pid: str
    ticks: str
    alive: bool
    exit: str
    stopped: str
    left: int = 0  # living processes of the run, other than its launcher
    server: str = ""  # the folder of the run that launched its process: its own, or of one whose draft was exchanged
    torn: bool = False  # whether an exchange of its draft broke off, so that nobody knows what is loaded

    @property
    def node(self) -> Node | None:
        """What was launched; None where the manifest is missing or from a version that we cannot read."""
        try:
            return Node.from_json(self.manifest["node"]) if self.manifest else None
        except (KeyError, TypeError, ValueError):  # pydantic's error is a ValueError
            return None

    @property
    def swapped(self) -> bool:
        """Whether its draft was exchanged in the server of another run: it has had no start of its own."""
        return self.server not in ("", self.folder)

    @property
    def good(self) -> bool:
        """Whether it had passed its gates, by the last verdict that decided."""
        verdict = self.verdict or {}
        return bool(verdict.get("good", verdict.get("holds")))

    @property
    def instead(self) -> str:
        """The id of the run whose place it has, and which was to be brought back; "" where it is to stay."""
        return str((self.manifest or {}).get("instead") or "")

    @property
    def ending(self) -> str:
        """In words, how a run that is not alive ended."""
        if self.left:
            how = f"died with exit code {self.exit}" if self.exit else "has lost its launcher"
            return f"{how}, but {self.left} of its processes live"
        if self.stopped:
            return f"stopped {self.stopped}"
        if not self.pid:
            return "never launched"
        return f"died with exit code {self.exit}" if self.exit else "ended by a kill, or by a restart of the host"


@dataclass(frozen=True)
class Deployment:
    """A deployment's runs on one host."""

    name: str
    current: Run | None
    previous: Run | None
    runs: tuple[str, ...]
    source: Run | None = None  # where the current one is a rollback: the run that it went back to


@dataclass(frozen=True)
class Machine:
    """A host as seen from inside."""

    id: str
    hostname: str
    user: str
    home: str
    work: str
    root: str
    deployments: Mapping[str, Deployment]
    busy: str = ""  # who has its lock, and for what
    hold: Hold | None = None
    unread: str = ""  # why its lock's file cannot be read, so that neither is known

    @property
    def releases(self) -> str:
        return f"{self.work}/releases"

    def same(self, other: Machine) -> bool:
        """Whether it is that very machine with that very work folder, by whatever name it was reached."""
        return (self.id, self.hostname, self.root) == (other.id, other.hostname, other.root)

    def current(self, deployment: str) -> Run | None:
        """What was launched last, alive or not."""
        found = self.deployments.get(deployment)
        return found.current if found else None


@dataclass(frozen=True)
class Asked:
    """On whose word a run was launched: the command, its `key=value` words, and a checkpoint given by a restart.

    `instead`: the run whose place it has for as long as it is tried, and which is to be brought back then.
    """

    command: str = ""
    words: tuple[str, ...] = ()
    ckpt: str | None = None
    instead: str = ""


@dataclass(frozen=True)
class Place:
    """Where one run lives on one host, and what was found there before: the model, the engine's interpreter.

    `key` is the server's API key, if it wants one.
    """

    machine: Machine
    deployment: str
    run: str
    model: Mapping[str, Any] = field(default_factory=dict)
    engine: Interpreter | None = None
    asked: Asked = Asked()
    key: str = ""
    source: Run | None = None  # the run that is gone back to
    swaps: bool = False  # whether the run takes over the current one's process, with another draft
    sent: Mapping[str, str] | None = None  # {tensor: parameter} that are handed over then; None: not compared yet
    once: bool = False  # whether it is held against other gates than its own, which says nothing of it for later

    @property
    def current(self) -> Run | None:
        """What was launched last when the host was locked."""
        return self.machine.current(self.deployment)

    @property
    def follows(self) -> bool:
        """Whether what was launched last has a rank above 0, and so ends when its head tells it to."""
        node = self.current.node if self.current else None
        return bool(node and node.rank)

    @property
    def adopted(self) -> bool:
        """Whether the run was there already when the host was locked."""
        return self.current is not None and self.current.id == self.run

    @property
    def warm(self) -> bool:
        """Whether its process was there already when the host was locked."""
        return self.adopted or self.swaps

    @property
    def server(self) -> str:
        """The folder of the run that launched its process, which names it in its environment."""
        return self.current.server if self.warm and self.current and self.current.server else self.folder

    @property
    def previous(self) -> Run | None:
        """The last run that had passed its gates before the current one."""
        known = self.machine.deployments.get(self.deployment)
        return known.previous if known else None

    @property
    def deployment_folder(self) -> str:
        return f"{self.machine.root}/{self.deployment}"

    @property
    def runs(self) -> str:
        """The folder of all of the deployment's runs."""
        return f"{self.deployment_folder}/runs"

    @property
    def folder(self) -> str:
        return f"{self.runs}/{self.run}"

    def releases(self, node: Node) -> str:
        """Where the node's checkpoints go."""
        to = node.profile.draft.to if node.profile.draft else None
        if to and to.startswith("~/"):
            return f"{self.machine.home}{to[1:]}"
        return to or self.machine.releases


def question(where: Host) -> tuple[str, ...]:
    """The host program that answers, and its words."""
    return (host.source("state"), where.work, where.lock)


def read(remote: Remote) -> Machine:
    """Ask a host."""
    return parse(remote.python(*question(remote.host)))


def one(remote: Remote, folder: str) -> Run | None:
    """The run in this folder of the host; None where there is none."""
    return _run(remote.python(host.source("one_run"), folder))


def parse(answer: Mapping[str, Any]) -> Machine:
    """From what `deploy.host.state` prints."""
    said = answer["lock"]
    owner, held = [*said.get("lines", ()), "", ""][:2]
    return Machine(
        id=answer["machine"],
        hostname=answer["hostname"],
        user=answer["user"],
        home=answer["home"],
        work=answer["work"],
        root=answer["root"],
        deployments={name: _deployment(name, found) for name, found in answer["deployments"].items()},
        busy=lease.who(owner) if said.get("taken") else "",
        hold=hold.read(held, said.get("now", 0.0)),
        unread=said.get("error", ""),
    )


def _deployment(name: str, found: Mapping[str, Any]) -> Deployment:
    current, previous, source = (_run(found[which]) for which in ("current", "previous", "source"))
    return Deployment(name, current, previous, tuple(found["runs"]), source)


def _run(found: Mapping[str, Any] | None) -> Run | None:
    return Run(**found) if found else None


def reread(remote: Remote, place: Place) -> Run:
    """One run as it is now."""
    current = read(remote).current(place.deployment)
    if current is None or current.id != place.run:
        gone = Run(place.run, place.folder, None, None, None, "", "", alive=False, exit="", stopped="")
        return replace(gone, server=place.server)
    return current
