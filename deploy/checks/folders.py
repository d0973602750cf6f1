"""Nobody else can exchange what is launched: no folder on the way to it is writable for all."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.facts import disks
from deploy.findings import Finding


def check(case: Case) -> Iterator[Finding]:
    """Whoever may write into a folder may rename what is in it, also what belongs to others, unless it is sticky.

    The model is not ours to guard: that one lies in a folder for all is only told.
    """
    places, model = case.facts[disks.FACT], case.node.profile.model.path if case.node else None
    exposed = sorted({folder for place in places if place.path != model for folder in place.exposed})
    around = sorted({folder for place in places if place.path == model for folder in place.exposed} - {*exposed})
    if exposed:
        yield Finding(
            "folders",
            "FAIL",
            "every user of the host may exchange what is launched there, and read its secrets by it",
            "\n".join(f"{folder} is writable for all" for folder in exposed),
            f"on the host: chmod o-w {' '.join(exposed)}   (or chmod +t, as /tmp is)",
        )
    else:
        yield Finding("folders", "PASS", f"{places[0].real} cannot be exchanged by other users")
    if around:
        yield Finding(
            "folders",
            "WARN",
            "every user of the host may exchange the model",
            "\n".join(f"{folder} is writable for all" for folder in around),
            f"on the host: chmod o-w {' '.join(around)}   (or chmod +t)",
        )
