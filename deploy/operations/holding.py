"""`deploy hold` and `deploy release`: all hosts in hand, or none."""

from __future__ import annotations

from deploy.abreast import together
from deploy.errors import DeployError
from deploy.locking.lease import Lease
from deploy.remote import Remote
from deploy.walk.session import Session


def hold(session: Session, reason: str, seconds: float) -> None:
    """Hold every host in hand, which are locked; where one cannot be, the others get back what stood there."""
    done: list[Remote] = []

    def one(remote: Remote) -> None:
        _lease(remote).hold(reason, seconds)
        done.append(remote)

    failed = session.each(one)
    if not failed:
        return
    session.keep(remote.host.name for remote in done)
    still = session.each(_put_back)
    error = together(failed)
    left = f"; still held: {', '.join(still)}" if still else "; no host is held"
    raise type(error)(f"{error.what}{left}", evidence=error.evidence, remedy=error.remedy)


def release(session: Session) -> None:
    """End what stands on every host in hand, which are locked."""
    failed = session.each(lambda remote: _lease(remote).free())
    if failed:
        raise together(failed)


def notes(session: Session) -> list[str]:
    """What the user should know of the audits of the hosts in hand."""
    return [remote.lease.note for remote in session.remotes.values() if remote.lease and remote.lease.note]


def _put_back(remote: Remote) -> None:
    lease = _lease(remote)
    if lease.before:
        lease.hold(lease.before.reason, lease.before.left)
    else:
        lease.free()


def _lease(remote: Remote) -> Lease:
    if remote.lease is None:
        raise DeployError(f"{remote.host.name}: nothing may be changed without its lock")
    return remote.lease
