"""Several hosts at once: act on each in a thread of its own, wait for all, tell what failed as one error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from deploy.errors import CheckFailed, DeployError, NoPython, RemoteFailed
from deploy.inventory import Host

HEARD = 0.2  # seconds until a Ctrl-C is heard at the latest


def on_all(hosts: list[Host], act: Callable[[Host], None]) -> dict[str, DeployError]:
    """Act on all hosts side by side; the errors of those that failed, in the hosts' order."""
    failed: dict[str, DeployError] = {}
    crashed: list[BaseException] = []

    def attempt(host: Host) -> None:
        try:
            act(host)
        except DeployError as error:
            failed[host.name] = error
        except BaseException as error:  # noqa: BLE001 - raised below, where a traceback is seen
            crashed.append(error)

    # No pool: it would wait for its threads, and Ctrl-C for the slowest host's timeout.
    threads = [threading.Thread(target=attempt, args=(host,), name=f"host {host.name}", daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    joined(threads)
    if crashed:
        raise crashed[0]
    return {host.name: failed[host.name] for host in hosts if host.name in failed}


def joined(threads: Iterable[threading.Thread]) -> None:
    """Wait for threads. In slices: a signal that comes just before a wait is heard when that wait ends."""
    for thread in threads:
        while thread.is_alive():
            thread.join(HEARD)


def together(failed: Mapping[str, DeployError]) -> DeployError:
    """One error for several hosts, of the first one's kind."""
    first = next(iter(failed.values()))
    if len(failed) == 1:
        return first
    kind = (
        CheckFailed if isinstance(first, NoPython) else DeployError if isinstance(first, RemoteFailed) else type(first)
    )
    return kind(
        f"{len(failed)} hosts failed: {', '.join(failed)}",
        evidence="\n".join(f"{error.what}\n  {error.evidence}".rstrip() for error in failed.values()),
        remedy=first.remedy,
    )
