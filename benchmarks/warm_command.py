"""How long a command takes on a connection that stands already: ours against Fabric's default, alternating.

    python -m benchmarks.warm_command [ROUNDS]

Prints medians and the best of each in ms, and the ratio of the medians; target 0.15 or less on an idle machine (most
of ours is the host starting four programs, most of Fabric's is waiting). Fabric connects as it does by itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import fabric
import paramiko

from deploy.transport import Transport, connect
from tests.fleet import Keys, TestHost, loopback


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def default(host: TestHost) -> fabric.Connection:
    config = fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig())
    options = {"key_filename": host.key, "look_for_keys": False, "allow_agent": False}
    return fabric.Connection(host.address, user=host.user, port=host.port, config=config, connect_kwargs=options)


def measure(ours: Transport, fabrics: fabric.Connection, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each round: ours, Fabric's."""
    mine, its = [], []
    for _ in range(rounds + 3):
        mine.append(seconds(lambda: ours.run(["true"])) * 1e3)
        its.append(seconds(lambda: fabrics.run("true", hide=True, in_stream=False)) * 1e3)
    return mine[3:], its[3:]  # the first ones warm up


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        keys = Keys(Path(folder))
        os.environ["DEPLOY_SSH_CONFIG"] = str(keys.config)
        with loopback(keys) as host, default(host) as fabrics:
            ours = connect(host)
            mine, its = measure(ours, fabrics, rounds)
            ours.close()
    print(f"ours:             median {median(mine):.1f} ms, best {min(mine):.1f} ms")
    print(f"Fabric's default: median {median(its):.1f} ms, best {min(its):.1f} ms")
    print(f"ratio:            {median(mine) / median(its):.3f} of the medians, {min(mine) / min(its):.3f} of the best")


if __name__ == "__main__":
    main()
