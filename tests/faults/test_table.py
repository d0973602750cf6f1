"""Every row of the fault table, on hosts in namespaces over a real sshd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests import fleet
from tests.faults.case import UP, Case, case
from tests.faults.table import TABLE, Row
from tests.fleet import Keys, TestHost
from tests.project import until

pytestmark = [pytest.mark.sshd, pytest.mark.namespace]

SIDE_BY_SIDE = 3  # hosts: half of a row is waiting, and another file runs beside this one


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, keys: Keys, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[None]]]:
    """The selected rows on their way side by side, each on a host that it has for itself."""
    wanted = {item.name for item in request.session.items}
    rows = [row for row in TABLE if f"{test_row.__name__}[{row.id}]" in wanted]
    folder, free = tmp_path_factory.mktemp("rows"), SimpleQueue[TestHost]()

    def take(number: int, row: Row) -> None:
        host = free.get()
        try:
            walk(row, host, keys, folder / str(number))
        finally:
            free.put(host)

    with fleet.namespaced(keys, min(SIDE_BY_SIDE, len(rows))) as hosts:
        for host in hosts:
            free.put(host)
        pool = ThreadPoolExecutor(len(hosts))
        try:
            yield {row.id: pool.submit(take, number, row) for number, row in enumerate(rows)}
        finally:
            pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id, marks=row.marks) for row in TABLE])
def test_row(row: Row, outcomes: Mapping[str, Future[None]]) -> None:
    outcomes[row.id].result()


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.id for row in TABLE}) == len(TABLE)


def walk(row: Row, host: TestHost, keys: Keys, folder: Path) -> None:
    """One row, from a clean host to a clean host."""
    with case(host, keys, folder, row.engine, row.id) as it:
        good = serve(it, row)
        (old,) = it.look().runs
        suffer(it, row)
        assert it.done
        told = f"{it.done.out}{it.done.err}"
        assert (it.done.code, row.words in told) == (row.code, True), f"not {row.code} and {row.words!r}:\n{told}"
        assert not row.kept or it.look().runs == {old}, "the earlier server was touched"
        again(it, row)
        whole(it, serves=(row.command, row.again) != ("down", "repeat"))
        assert (row.command, row.again) != ("rollback", "repeat") or it.look().served == good
        down = it.project.run("down", "profile=fake")
        assert down.code == 0, f"down at the end: {down.err}"
        whole(it, serves=False)


def serve(it: Case, row: Row) -> str:
    """What is there before: a server that passed its gates, and for a rollback another one after it; its release."""
    it.up(*UP[:2], *row.old)
    good = it.look().served
    if row.command == "rollback":
        it.up(*UP)
    return good


def suffer(it: Case, row: Row) -> None:
    """The command, and what happens to it."""
    strike = contextmanager(row.fault)
    if not row.moment:
        with strike(it):
            it.done = it.project.run(*row.argv)
        return
    with it.held(row.moment, *row.argv), strike(it):
        it.end()


def again(it: Case, row: Row) -> None:
    """The same once more; where somebody else has done it meanwhile, or a checkpoint is to stay, it is verified."""
    words = row.argv if row.again == "repeat" else (*UP, *row.still)
    done = it.project.run(*words, "--json")
    assert done.code == 0, f"again: {done.err}"
    if row.again != "repeat":
        assert done.json["verdict"]["mode"] == row.again, f"again: {done.err}"


def whole(it: Case, *, serves: bool) -> None:
    """Nothing is there but the server, if there shall be one, and what a finished run leaves."""
    until(lambda: not it.look().others(it.before, serves=serves), what="no process but the server's")
    seen = it.look()
    assert (bool(seen.runs), seen.stale, seen.held) == (serves, [], False)
    assert set(seen.ports) - set(it.before.ports) == ({it.port} if serves else set())
    assert len(seen.releases) <= 2, f"releases that are not whole: {seen.releases}"
    until(lambda: not it.left_here(), what="nothing of the clients to live here")
