"""The same look at many hosts, by the tool and by what one would take instead: wall time, and the controller's CPU.

    python -m benchmarks.fanout [--hosts 64] [--rounds 5] [--pyinfra PROGRAM]

Each host is an sshd on a loopback address of this machine, so hosts and controller share its cores: what a host does is
the same for all, and only ratios and the controller's CPU mean something elsewhere. `deploy status` and `deploy check`
are whole commands. The others run the very program that the tool runs there, and do nothing with its answer: a bare
Fabric thread pool, `xargs -P ssh`, and pyinfra (its own program, in an environment of its own). Ways alternate; ratios
are medians over rounds. Connections and channels are counted from the hosts' own logs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from deploy import looking
from deploy.facts import About
from deploy.status import standing
from tests import fleet
from tests.fleet import TestHost
from tests.project import ROOT, Project

PORT = 2222  # one for all, as real fleets have

POOL = """
import sys
from concurrent.futures import ThreadPoolExecutor
from fabric import Config, Connection
command, key, *places = sys.argv[1:]
script = open(command).read()
def one(place):
    address, port = place.split(":")
    with Connection(address, user="root", port=int(port), connect_kwargs={"key_filename": key}) as connection:
        return connection.run(script, hide=True, in_stream=False).stdout
with ThreadPoolExecutor(len(places)) as pool:
    assert all(pool.map(one, places))
"""


@dataclass
class Cost:
    """Seconds of each round: on the clock, and of the controller's CPU with all that it started."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Fleet:
    """Hosts, and the files with which others reach them."""

    project: Project
    hosts: list[TestHost]
    config: Path
    key: Path


@contextlib.contextmanager
def fleet_of(count: int, folder: Path) -> Iterator[Fleet]:
    keys = fleet.Keys(folder)
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(fleet.loopback(keys, "LogLevel VERBOSE", port=PORT)) for _ in range(count)]
        described = {
            f"h{number}": {"address": one.address, "port": one.port, "key": one.key, "user": one.user}
            for number, one in enumerate(hosts)
        }
        project = Project(folder / "project", described)
        project.environ["DEPLOY_SSH_CONFIG"] = str(keys.config)
        yield Fleet(project, hosts, keys.config, keys.user)


# ---- the program that all of them run ------------------------------------------------------------------------------


class Captured(Exception):
    """What would have been sent."""


class Asked:
    """A remote that only hears the question."""

    class host:  # noqa: N801
        name, work, lock = "h", "~/.deploy", "/tmp/lock"

    def python(self, source: str, *args: str, stdin: bytes = b"", **_: Any) -> Any:
        raise Captured(source, args, stdin)


def script(look: Callable[[Any], object]) -> str:
    """A look of the tool's as a script that needs no stdin."""
    try:
        look(Asked())
    except Captured as captured:
        source, args, stdin = captured.args
    words = shlex.join(["python3", "-I", "-c", source, *args])
    return f"{words} <<'END-OF-QUESTIONS'\n{stdin.decode()}\nEND-OF-QUESTIONS\n"


LOOKS: Mapping[str, Callable[[Any], object]] = {
    "status": lambda remote: standing.Look().at(remote),
    "check": lambda remote: looking.look(remote, About()),
}


# ---- ways ----------------------------------------------------------------------------------------------------------


def ways(command: str, at: Fleet, folder: Path, pyinfra: str) -> dict[str, list[str]]:
    """{way: argv}."""
    file = folder / f"{command}.sh"
    file.write_text(script(LOOKS[command]))
    places = [f"{one.address}:{one.port}" for one in at.hosts]
    (folder / "places").write_text("\n".join(places))
    (folder / "pool.py").write_text(POOL)
    ssh = f"ssh -F {at.config} -i {at.key} -o BatchMode=yes -p ${{1#*:}} root@${{1%:*}} sh <{file} >/dev/null"
    found = {
        "deploy": [sys.executable, "-m", "deploy", command, "--json"],
        "fabric pool": [sys.executable, str(folder / "pool.py"), str(file), str(at.key), *places],
        "xargs ssh": ["xargs", "-a", str(folder / "places"), "-P", str(len(places)), "-n1", "sh", "-c", ssh, "sh"],
    }
    if pyinfra:
        data = {
            "ssh_user": "root",
            "ssh_key": str(at.key),
            "ssh_known_hosts_file": str(at.config.with_name("known_hosts")),
        }
        hosts = [
            (f"h{i}", {**data, "ssh_hostname": one.address, "ssh_port": one.port}) for i, one in enumerate(at.hosts)
        ]
        (folder / "inventory.py").write_text(f"hosts = {hosts!r}\n")
        own = ["--parallel", str(len(places)), "-y"]
        found["pyinfra"] = [pyinfra, *own, str(folder / "inventory.py"), "exec", "--", file.read_text()]
    return found


def measured(argv: list[str], at: Fleet, cost: Cost) -> None:
    """Run it once; its children are counted with it. The hosts' sshds are no children of it."""
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=at.project.folder, env=at.project.environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cost.wall.append(time.perf_counter() - began)
    cost.cpu.append(usage.ru_utime + usage.ru_stime)
    assert process.returncode in (0, 5, 10), (argv[:3], process.returncode, told[-2000:])


def logged(at: Fleet, word: str) -> int:
    """How often a word stands in the hosts' logs."""
    return sum(log.read_text(errors="replace").count(word) for log in at.config.parent.glob("loopback-*/log"))


def compare(command: str, at: Fleet, folder: Path, options: argparse.Namespace) -> None:
    argvs = ways(command, at, folder, options.pyinfra)
    costs = {way: Cost() for way in argvs}
    counted = [logged(at, "Accepted publickey"), logged(at, "Starting session")]
    measured(argvs["deploy"], at, Cost())  # warm, and counted
    made = [logged(at, "Accepted publickey") - counted[0], logged(at, "Starting session") - counted[1]]
    for _ in range(options.rounds):
        for way, argv in argvs.items():
            measured(argv, at, costs[way])
    count = len(at.hosts)
    print(f"deploy {command}, {count} hosts: {made[0] / count:g} connections and {made[1] / count:g} channels a host")
    own = costs["deploy"]
    for way, cost in costs.items():
        walls = median(ours / theirs for ours, theirs in zip(own.wall, cost.wall, strict=True))
        cpus = median(ours / theirs for ours, theirs in zip(own.cpu, cost.cpu, strict=True))
        each = median(cost.cpu) / count * 1000
        told = f"  {way:<12} wall {median(cost.wall):6.2f} s   controller CPU {each:6.1f} ms a host"
        print(f"{told}   deploy is {walls:.2f} x its wall, {cpus:.2f} x its CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pyinfra", default="", help="the program of an environment that has it")
    parser.add_argument("--only", choices=LOOKS, help="this command alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fanout-") as name, fleet_of(options.hosts, Path(name)) as at:
        for command in [options.only] if options.only else LOOKS:
            compare(command, at, Path(name), options)


if __name__ == "__main__":
    assert ROOT
    main()
