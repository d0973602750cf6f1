"""NCCL's settings, and Gloo's beside it: each variable by itself, and against the host's network and topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from deploy.checks import Case
from deploy.checks._nccl import TOPIC, Ranks, found, key, ranks
from deploy.checks._nccl_network import interfaces, rdma
from deploy.checks._nccl_topology import topology
from deploy.config import nccl_words
from deploy.config.nccl_words import PREFIX
from deploy.findings import Finding

RULES = (interfaces, rdma, topology)
# What may differ from host to host: names of the host's own, and what is written there.
OWN = tuple("SOCKET_IFNAME OOB_NET_IFNAME IB_HCA IB_GID_INDEX HOSTID TOPO_ DEBUG RAS_ADDR CONF_FILE".split())


def check(case: Case) -> Iterator[Finding]:
    """All that is wrong, or one PASS with what was looked at."""
    judged = ranks(case)
    if judged is None:
        return
    rules = RULES if judged.talking else ()
    wrong = [*_variables(judged), *chain.from_iterable(rule(judged) for rule in rules)]
    yield from wrong
    if rules and not wrong and not judged.alone:
        said = ", ".join(sorted(_own(judged))) or "nothing is set"
        yield found("PASS", f"NCCL's settings fit the host: {said}")


def _own(judged: Ranks) -> dict[str, str]:
    return {name: value for name, value in judged.env.items() if name.startswith(PREFIX)}


def _variables(judged: Ranks) -> Iterator[Finding]:
    for name, value in sorted(judged.env.items()):
        wrong = nccl_words.judge(name, value)
        if wrong:
            yield found("FAIL" if wrong.certain else "WARN", wrong.what, judged.whence(name), wrong.remedy)


def across(cases: Sequence[Case]) -> Iterator[tuple[str, Finding]]:
    """Ranks that were set otherwise than the others wait for each other for ever."""
    groups: dict[str, list[tuple[str, Ranks]]] = {}
    for case in cases:
        judged = ranks(case)
        if judged and judged.apart and not judged.alone:
            groups.setdefault(judged.node.deployment, []).append((case.host.name, judged))
    for several in groups.values():
        yield from _differing(several)


def _differing(several: Sequence[tuple[str, Ranks]]) -> Iterable[tuple[str, Finding]]:
    names = sorted({name for _, judged in several for name in _own(judged)})
    for name in (name for name in names if not name.removeprefix(PREFIX).startswith(OWN)):
        values = {host: judged.env.get(name, "") for host, judged in several}
        (usual, count), *others = Counter(values.values()).most_common()
        for host in (host for host, value in values.items() if others and value != usual):
            what = f"{name} is {values[host] or 'not set'} here, and {usual or 'not set'} on {count} other hosts"
            yield host, Finding(TOPIC, "WARN", what, remedy=f"set {key(name)} alike for all hosts of the deployment")
