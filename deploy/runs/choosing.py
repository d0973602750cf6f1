"""Which of many runs are meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from deploy.record import RunSummary


@dataclass(frozen=True)
class Wanted:
    """What a run must be like; what is empty may be anything.

    `host` may be a pattern (gpu*), `since` is in seconds since the epoch, `ckpt` the beginning of the draft's digest,
    or its path as it was given. `failed`: it ended with another exit code than 0, or did not end at all.
    """

    profile: str | None = None
    host: str | None = None
    failed: bool = False
    since: float | None = None
    ckpt: str | None = None

    @property
    def anything(self) -> bool:
        return self == Wanted()


def chosen(runs: Iterable[RunSummary], wanted: Wanted) -> Iterator[RunSummary]:
    """Those that are like it, in their order."""
    return (run for run in runs if _fits(run, wanted))


def _fits(run: RunSummary, wanted: Wanted) -> bool:
    return (
        wanted.profile in (None, run.profile)
        and (wanted.host is None or any(fnmatchcase(host, wanted.host) for host in run.hosts))
        and (not wanted.failed or run.exit_code != 0)
        and (wanted.since is None or run.started >= wanted.since)
        and (wanted.ckpt is None or _serves(run, wanted.ckpt))
    )


def _serves(run: RunSummary, word: str) -> bool:
    return bool(run.draft) and (run.draft.startswith(word.lower()) or _path(run.ckpt).endswith(_path(word)))


def _path(said: str) -> str:
    """To be compared from its end: a relative path is the end of what was served."""
    return f"/{said.removeprefix('./').strip('/')}"
