"""Who holds something and is not of this deployment: told apart by the proofs by which `stop` ends what is ours."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.facts import launched
from deploy.facts.processes import Processes
from deploy.ownership import foreign
from deploy.ownership.foreign import Holder
from deploy.ownership.owned import owned
from deploy.remote import Remote


def among(held: Sequence[Holder], living: Processes, remote: Remote) -> list[Holder]:
    """Those of the holders that are somebody else's processes, and can be seen. Where one seems to be, the host is
    asked once more, for what the launchers of our runs wrote down: an orphan that wiped its environment is ours.
    """
    runs = remote.place.runs
    found = foreign.others(held, owned(runs, living))
    return foreign.others(found, owned(runs, living, launched.read(remote, runs).launches)) if found else []
