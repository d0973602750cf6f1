"""How long a command takes on a connection that stands already: ours against Fabric's default, alternating.

    python -m benchmarks.warm_command [ROUNDS]

Prints both medians in ms and their ratio; target 0.15 or less. Fabric connects here as it does by itself.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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


def measure(ours: Transport, fabrics: fabric.Connection, rounds: int) -> tuple[float, float]:
    """Medians in ms: ours, Fabric's."""
    pairs = []
    for _ in range(rounds + 3):
        mine = seconds(lambda: ours.run(["true"]))
        pairs.append((mine, seconds(lambda: fabrics.run("true", hide=True, in_stream=False))))
    warm = pairs[3:]
    return statistics.median(mine for mine, _ in warm) * 1e3, statistics.median(its for _, its in warm) * 1e3


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        keys = Keys(Path(folder))
        os.environ["DEPLOY_SSH_CONFIG"] = str(keys.config)
        with loopback(keys) as host, default(host) as fabrics:
            ours = connect(host)
            mine, its = measure(ours, fabrics, rounds)
            ours.close()
    print(f"warm command: ours {mine:.1f} ms, Fabric's default {its:.1f} ms, ratio {mine / its:.3f}")


if __name__ == "__main__":
    main()
