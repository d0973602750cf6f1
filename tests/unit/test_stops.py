"""What stops us is heard by who asks for it, and by nobody who was told to ignore it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from deploy.walk.stops import STOPS, heard


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOPS)
def test_what_is_done_meanwhile_is_not_broken_off(number: signal.Signals) -> None:
    calls: list[int] = []
    with heard(lambda: calls.append(1)):
        signal.raise_signal(number)
        signal.raise_signal(number)
        calls.append(2)
    assert calls == [1, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    calls: list[int] = []
    with heard(lambda: calls.append(1)):
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    assert (calls, signal.getsignal(signal.SIGHUP)) == ([], signal.SIG_IGN)
