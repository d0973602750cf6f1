"""Where the engines are tried: on this machine without ssh, and on a host in namespaces over a real sshd."""

from __future__ import annotations

import pytest

from tests import places
from tests.places import Place

OVER_SSH = pytest.param("ssh", marks=[pytest.mark.sshd, pytest.mark.namespace])


@pytest.fixture(scope="module", params=["local", OVER_SSH])
def place(request: pytest.FixtureRequest) -> Place:
    """The host of a test."""
    if request.param == "local":
        return places.here()
    (host,) = request.getfixturevalue("fleet")(1)
    return places.over_ssh(host)
