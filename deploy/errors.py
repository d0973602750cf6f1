"""What can go wrong, as a tree; each error says what, shows its evidence, and tells what to do next.

DeployError              1
    ConfigError          2    a profile, an inventory, an option is wrong
    Unreachable          3    a host cannot be reached
    Locked               4    somebody else holds a host
    CheckFailed          5    a check said no; nothing was touched
        Unlike           5    a draft cannot take the place of the one that is served
    LaunchFailed         6    the server died; explained from its log
    NotReady             7    alive, but not serving
        NotSwapped       7    a draft did not come into a running server
    SmokeFailed          8    it answers, but not what was asked for
    GateFailed           9    serving, but acceptance or speed is off
    Undecided           10    a check could not tell
    Interrupted        130    Ctrl-C
"""

from __future__ import annotations


class DeployError(Exception):
    """What went wrong, the evidence for it, and what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, evidence: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.evidence = evidence
        self.remedy = remedy

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.evidence, self.remedy) if part)


class ConfigError(DeployError):
    """A profile, an inventory, an option is wrong."""

    exit_code = 2


class Unreachable(DeployError):
    """A host cannot be reached, or fell silent."""

    exit_code = 3


class Locked(DeployError):
    """Somebody else holds a host, or our own lease on it lapsed."""

    exit_code = 4


class CheckFailed(DeployError):
    """A check said no before anything was touched."""

    exit_code = 5


class Unlike(CheckFailed):
    """A draft cannot take the place of the one that a running server has."""


class LaunchFailed(DeployError):
    """The server died while starting."""

    exit_code = 6


class NotReady(DeployError):
    """The server lives but does not serve."""

    exit_code = 7


class NotSwapped(NotReady):
    """A draft did not come into a running server. It serves the old one, unless it is torn: then it serves nothing."""

    def __init__(self, what: str, *, evidence: str = "", remedy: str = "", torn: bool = False) -> None:
        super().__init__(what, evidence=evidence, remedy=remedy)
        self.torn = torn


class SmokeFailed(DeployError):
    """The server answers, but not what was asked for."""

    exit_code = 8


class GateFailed(DeployError):
    """The server serves, but acceptance or speed is off."""

    exit_code = 9


class Undecided(DeployError):
    """A check could not tell."""

    exit_code = 10


class Interrupted(DeployError):
    """Ctrl-C, or another host's failure, stopped the work."""

    exit_code = 130


class RemoteFailed(DeployError):
    """A command on a host ended with a status that was not expected."""

    def __init__(self, what: str, *, status: int, evidence: str = "", remedy: str = "") -> None:
        super().__init__(what, evidence=evidence, remedy=remedy)
        self.status = status


class NoPython(RemoteFailed):
    """A host has no Python that our programs run with, so nothing else can be said of it."""

    exit_code = 5

    @classmethod
    def seen(cls, host: str, status: int | None, words: str) -> NoPython | None:
        """The error, where that is how `python3` ended with one of our programs; None where it is something else."""
        missing = status in (126, 127) and "python" in words  # not there, or cannot be executed; or is it `timeout`?
        # one before 3.8 does not know our syntax, or the `annotations` of our first line
        if not missing and not (status == 1 and "SyntaxError" in words):
            return None
        what = "there is no python3 that can be started" if missing else "its python3 is too old"
        return cls(
            f"{host}: {what}; our programs need Python 3.8 or newer",
            status=status or 0,
            evidence=words.strip()[-1500:],
            remedy="install python3 there, where a shell without a terminal finds it: apt-get install python3, "
            "or dnf install python3",
        )


class TimedOut(RemoteFailed):
    """A command on a host passed its deadline and was ended there."""
