"""The secrets that the profile names: whether a server could be launched with them from here."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.deployment import compare, secret
from deploy.errors import ConfigError
from deploy.findings import Finding


def check(case: Case) -> Iterator[Finding]:
    """All in our environment, unless an earlier run has its own: the one gone back to, or one that is only verified."""
    node, remote = case.node, case.remote
    if node is None or not node.profile.secrets or remote.place.source:
        return
    try:
        secret.values(node)
    except ConfigError as error:
        if compare.decide([(node, remote.place)]).mode == "verify":
            yield Finding("secrets", "PASS", f"{error.what}; what serves has its own")
        else:
            yield Finding("secrets", "FAIL", error.what, error.evidence, error.remedy)
    else:
        yield Finding("secrets", "PASS", f"{', '.join(node.profile.secrets)}: in the environment")
