"""What `deploy ckpt check` says of a draft, and what the real SGLang makes of it: the two agree, for every fault.

The draft is the telling pair's, whose accept length falls with each fault (examples/telling-eagle3/README.md). One
server, which each case restarts with its own draft, past the check's refusal (`waive=[ckpt]`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import places
from tests.installed import Deployment, accept_length, deployment, needs
from tests.project import TELLING, Done
from tests.telling import PROMPTS, SERVED

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(900)]

ENGINE = "sglang==0.5.23"
TARGET, HEALTHY = TELLING / "target", TELLING / "draft"
DEAD = 1.15  # what the default gate takes as dead
PROFILE = {
    **SERVED,
    "draft": str(HEALTHY),
    "bench": {"prompts": PROMPTS, "max_tokens": 64},
}


@dataclass(frozen=True)
class Case:
    """A draft: what is said of it before it is launched, and the accept lengths between which it is measured.

    Lengths of None: the server does not start, or dies at the first request.
    """

    verdict: str
    lengths: tuple[float, float] | None


SERVES, DEAD_ON_ARRIVAL, REFUSED = "will serve", "will serve at accept length 1.00", "will not start"
WELL, WEAK, NOT_AT_ALL = (2.5, 4.0), (1.16, 2.4), (1.0, DEAD)
CASES = {
    "healthy": Case(SERVES, WELL),
    "layers0": Case(SERVES, WELL),
    "model-layers0": Case(SERVES, WELL),
    "unknown-prefix": Case(DEAD_ON_ARRIVAL, NOT_AT_ALL),
    "zero-layer": Case(DEAD_ON_ARRIVAL, NOT_AT_ALL),
    "no-fc": Case(DEAD_ON_ARRIVAL, NOT_AT_ALL),
    "no-d2t": Case(DEAD_ON_ARRIVAL, NOT_AT_ALL),
    "no-lm-head": Case(DEAD_ON_ARRIVAL, NOT_AT_ALL),
    "nan-norm": Case(DEAD_ON_ARRIVAL, NOT_AT_ALL),
    # What was there in training and is another now: no file says so, and no check can.
    "shifted-aux": Case(SERVES, WEAK),
    "rope-theta": Case(SERVES, WEAK),
    "swapped-norms": Case(SERVES, WEAK),
    "flat-aux": Case(SERVES, WEAK),
    "absolute-d2t": Case(REFUSED, None),
    "wrong-fc": Case(REFUSED, None),
    "null-target-hidden-size": Case(REFUSED, None),
    "no-draft-vocab-size": Case(REFUSED, None),
    "speculators": Case(REFUSED, None),
    "truncated": Case("corrupt", None),
}
REPAIRABLE = ["speculators", "absolute-d2t", "flat-aux", "null-target-hidden-size", "model-layers0", "layers0"]
IN_CI = ["healthy"]


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The healthy pair, serving on this machine."""
    needs("sglang-cpu")
    folder = tmp_path_factory.mktemp("telling") / "project"
    with deployment(folder, places.here(), "local-sglang", **PROFILE) as made:
        done = made.run("up", "profile=tiny")
        assert (done.code, accept_length(done) > WELL[0]) == (0, True), done.err
        yield made


def draft(name: str, out: Path) -> Path:
    return HEALTHY if name == "healthy" else places.broken(name, out, HEALTHY)


def judged(made: Deployment, path: Path) -> str:
    """The verdict, before anything is launched."""
    done = made.run("ckpt", "check", str(path), "--target", str(TARGET), "--engine", ENGINE)
    verdict: str = done.json["verdict"]
    return verdict


def served(made: Deployment, path: Path) -> tuple[Done, float | None]:
    """The accept length with this draft, whatever is said of it; None where it does not serve.

    The healthy one is the profile's: `up` measures it without a restart where it still runs.
    """
    words = ("up", "profile=tiny") if path == HEALTHY else ("restart", "--ckpt", str(path), "waive=[ckpt]")
    done = made.run(*words)
    return done, accept_length(done) if done.code in (0, 9) else None


def outcome(length: float | None) -> tuple[str, ...]:
    """The verdicts that were right of a draft with this measured accept length."""
    if length is None:
        return REFUSED, "corrupt"
    return (DEAD_ON_ARRIVAL,) if length <= DEAD else (SERVES,)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name not in IN_CI)) for name in CASES])
def test_the_verdict_is_what_the_server_makes_of_it(telling: Deployment, tmp_path: Path, name: str) -> None:
    case, path = CASES[name], draft(name, tmp_path)
    verdict = judged(telling, path)
    done, length = served(telling, path)
    assert verdict == case.verdict
    assert (length is None) == (case.lengths is None), done.err
    if case.lengths and length is not None:
        assert case.lengths[0] <= length <= case.lengths[1], done.err
    assert verdict in outcome(length)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name != REPAIRABLE[0])) for name in REPAIRABLE]
)
def test_what_can_be_repaired_is_as_good_as_the_healthy_one(telling: Deployment, tmp_path: Path, name: str) -> None:
    fixed = tmp_path / "fixed"
    done = telling.run("ckpt", "fix", str(draft(name, tmp_path)), "--out", str(fixed), "--target", str(TARGET))
    assert done.code == 0, done.err
    assert judged(telling, fixed) == SERVES
    done, length = served(telling, fixed)
    assert done.code == 0, done.err
    assert length is not None
    assert WELL[0] <= length <= WELL[1]
