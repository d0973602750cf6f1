"""A socket to the program that ProxyCommand names: closed by whoever comes first, and by both at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.transport._socket import Program


@pytest.mark.parametrize("command", ["sleep 60", "sh -c 'exit 0'"])
def test_two_may_close_it_at_once(command: str) -> None:
    programs = [Program(command) for _ in range(25)]
    with ThreadPoolExecutor(4) as pool:
        closed = [pool.submit(program.close) for program in programs for _ in range(4)]
        assert [one.exception() for one in closed] == [None] * 100
    assert all(program._process.poll() is not None for program in programs)
