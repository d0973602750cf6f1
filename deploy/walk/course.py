"""A replica on its way through a recipe: in place, or by a restart; and where it stands, in words."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deploy import swapping
from deploy.errors import DeployError, NotSwapped, Unlike
from deploy.plan import Node, Replica
from deploy.remote import Remote
from deploy.swapping import Hot
from deploy.text import scrub
from deploy.walk.recipe import BACK, IN_PLACE, VERIFY, Recipe


@dataclass(frozen=True)
class Failure:
    """What stopped a host, and in which step."""

    host: str
    step: str
    error: DeployError


@dataclass
class Course:
    """One replica on its way: its recipe, the hosts it is on, and the switch that stops all of them.

    A `trial` is one of several walks: what becomes of a failure is decided after the last one. `otherwise` is the
    recipe that it goes on with where its draft cannot be exchanged in the running server: for a `stubborn` one only
    where the server is torn by having tried. `now` is what is true of the server that ran before, until it is stopped.
    """

    replica: Replica
    recipe: Recipe
    remotes: Mapping[str, Remote]
    abort: threading.Event
    interrupted: threading.Event
    done: list[str] = field(default_factory=list)
    trial: bool = False
    otherwise: Recipe = ()
    stubborn: bool = False
    now: str = "no server was touched"

    @property
    def begun(self) -> bool:
        """Whether what serves is what this course brought."""
        return not {"launch", "swap"}.isdisjoint(self.done)

    def remote(self, node: Node) -> Remote:
        return self.remotes[node.host.name]


def in_place(course: Course, how: Hot) -> Course:
    """The same by an exchange of the draft in the running server, where nothing is known that speaks against it; else
    as it is, and it is told why. CheckFailed where it would be a restart, and none is wanted.
    """
    if how == "never":
        return course
    why = swapping.against(course.replica.nodes, course.remotes, how)
    head = course.remote(course.replica.head)
    head.step = ""  # of several walks the last step of the one before is there yet
    if why:
        if swapping.wished(course.replica.head, head.place):
            head.emit("noted", f"it restarts: {why}")
        return course
    for remote in course.remotes.values():
        remote.place = replace(remote.place, swaps=True)
    head.emit("noted", "the draft is exchanged while the server runs, if the two match")
    return replace(course, recipe=IN_PLACE[course.recipe], otherwise=course.recipe, stubborn=how == "only")


def restarting(course: Course, failures: Sequence[Failure]) -> Course | None:
    """The course by a restart, where a draft did not come into the running server; what is done already is not done
    again. Who is interrupted goes no further than to its next step, and is told there what the exchange has left.
    """
    errors = [failure.error for failure in failures if isinstance(failure.error, NotSwapped | Unlike)]
    torn = any(isinstance(error, NotSwapped) and error.torn for error in errors)
    stopped = course.interrupted.is_set()
    if not course.otherwise or len(errors) < len(failures) or (course.stubborn and not torn and not stopped):
        return None
    now, first = course.now, "" if stopped else "it restarts: "
    for failure in failures:
        remote, error = course.remotes[failure.host], failure.error
        what, why = error.what.removeprefix(f"{failure.host}: "), "; ".join(error.evidence.splitlines())
        remote.emit("noted", f"{first}{what}{f': {why}' if why else ''}")
        now = what if isinstance(error, NotSwapped) else now
    cold = [*course.done, *(step.name for step in course.otherwise)]
    for remote in course.remotes.values():
        remote.place = replace(remote.place, swaps=False)
        for step in course.recipe:
            if step.name not in cold:  # else a record shows it as one that nobody has come back from
                remote.step = step.name
                remote.emit("step_skipped")
    course.abort.clear()
    if course.interrupted.is_set():
        course.abort.set()
    return replace(course, recipe=course.otherwise, otherwise=(), now=now)


def where(course: Course, step: str, at: str) -> str:
    """Where it was stopped (`at`: before a step, or in the middle of it), and what is true now."""
    if course.begun or course.recipe is VERIFY:
        return f"detached {at} {step}: the server goes on; {_ways_back(course)}"
    now = course.now
    if "stop" in course.done:
        now = "the old server is stopped, nothing was launched"
    elif (at, step) == ("in", "stop"):
        now = "the old server was told to end"
    return f"stopped {at} {step}; done: {', '.join(course.done) or 'nothing'}; {now}. Run the command again"


def _ways_back(course: Course) -> str:
    """How to come back to a server that was left alone: an `up` with its words adopts it; one without would undo what
    they changed, and what a rollback brought back.
    """
    head = course.replica.head
    asked, name = course.remote(head).place.asked, f"profile={head.deployment}"
    words = shlex.join([name, *scrub.words(word for word in asked.words if not word.startswith("profile="))])
    adopt = "smoke" if course.recipe in BACK else "up"
    back = f"`deploy {adopt} {name if adopt == 'smoke' else words}` takes it up again"
    return f"{back}, `deploy logs -f {name}` follows it, `deploy down {name}` ends it"
