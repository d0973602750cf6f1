"""What many tests stand on: a real sshd, and real hosts in namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests import fleet as hosts

# Who is started in the background has SIGINT ignored, and under nohup SIGHUP; so would have the commands that tests
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _need(reason: str) -> None:
    """Skip where the machine cannot do it; in CI a test that does not run is a failure."""
    if not reason:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the hosts that they ask for: `-m "not sshd"` leaves out all that need one."""
    for item in items:
        asked = getattr(item, "fixturenames", ())
        for fixture, marker in (("keys", "sshd"), ("fleet", "namespace")):
            if fixture in asked:
                item.add_marker(marker)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hosts.Keys]:
    """The user's key and known_hosts, and the ssh config that names them, as the whole session's configuration."""
    _need(hosts.missing())
    made = hosts.Keys(tmp_path_factory.mktemp("keys"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPLOY_SSH_CONFIG", str(made.config))
        yield made


@pytest.fixture(scope="session")
def sshd(keys: hosts.Keys) -> Iterator[hosts.TestHost]:
    """A host on loopback, reached over a real sshd."""
    with hosts.loopback(keys) as host:
        yield host


@pytest.fixture(scope="session")
def fleet(keys: hosts.Keys) -> Iterator[Callable[[int], list[hosts.TestHost]]]:
    """At least so many hosts in namespaces of their own; they stay for the whole session, so leave them clean."""
    _need("" if os.geteuid() == 0 else "hosts in namespaces need root")
    made: list[hosts.TestHost] = []
    with contextlib.ExitStack() as stack:

        def give(count: int) -> list[hosts.TestHost]:
            if len(made) < count:
                made[:] = stack.enter_context(hosts.namespaced(keys, count))
            return made[:count]

        yield give
