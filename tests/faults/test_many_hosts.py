"""Several hosts at once, of which one fails, is slow, or is lost: the others are done, and it is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import places
from tests.faults.case import BREAKPOINTS, IMPATIENT, LEASE, fake
from tests.faults.host import look
from tests.faults.moments import MOMENTS, Breakpoints
from tests.fleet import Keys, TestHost
from tests.places import Place
from tests.project import PATIENCE, Done, Project, until

pytestmark = [pytest.mark.sshd, pytest.mark.namespace]

Fleet = Callable[[int], list[TestHost]]
UP = ("up", "profile=fake")


class Several:
    """A project on some hosts, each of which may misbehave in its own way."""

    def __init__(self, project: Project, hosts: list[TestHost], on: list[Place]) -> None:
        self.project, self.hosts, self.on = project, hosts, on
        self.names = [place.name for place in on]

    def but(self, number: int, **wrong: Any) -> None:
        """Let the server of one host misbehave from now on, and those of all others be well."""
        path = self.project.folder / "inventory.yaml"
        inventory = yaml.safe_load(path.read_text())
        for name, host in inventory["hosts"].items():
            said = fake(**wrong).partition("=")[2]
            host["set"] = {"env": {"FAKE": said}} if wrong and name == self.names[number] else {}
        path.write_text(yaml.safe_dump(inventory))

    def run(self, *words: str) -> Done:
        return self.project.run(*words)

    def good(self, *words: str) -> Done:
        """Run a command that ends well."""
        done = self.run(*words)
        assert done.code == 0, done.err
        return done

    def rows(self, key: str = "state") -> list[Any]:
        """One value of each host's row in `deploy status`."""
        return [row.get(key) for row in self.run("status", "--json").json]

    def at(self, kind: str, step: str) -> dict[str, float]:
        """When a step of the last run began or ended, host by host."""
        events = self.project.events()
        return {e["host"]: e["at"] for e in events if (e["kind"], e.get("step")) == (kind, step)}


@pytest.fixture
def several(fleet: Fleet, keys: Keys, tmp_path: Path) -> Callable[..., Any]:
    """Hosts of one project, by how many."""

    @contextmanager
    def give(count: int, **fields: Any) -> Iterator[Several]:
        hosts = fleet(count)
        on = [places.over_ssh(host, lease=LEASE) for host in hosts]
        config = tmp_path / "ssh_config"
        config.write_text(keys.config.read_text().replace("Host *", IMPATIENT))
        with places.project_on(tmp_path / "project", *on) as project:
            # HOME: what others run on this machine is no part of it
            project.environ |= {"DEPLOY_SSH_CONFIG": str(config), "HOME": str(tmp_path)}
            project.fake(**{"fake": {"breakpoints": BREAKPOINTS}, **fields})
            yield Several(project, hosts, on)

    return give


# ---- replicas side by side


def seldom(*values: Any) -> Any:
    """A case of the full matrix alone."""
    return pytest.param(*values, marks=pytest.mark.full)


def failures(done: Done) -> list[tuple[str, str]]:
    """(host, step) of each failure in the JSON document."""
    return [(failure["host"], failure["step"]) for failure in done.json["failures"]]


FAILING: list[Any] = [
    # how it misbehaves, exit code, step, words, its state afterwards
    ({"die_at": "weights"}, 6, "wait", "the GPU is full", "dead"),
    seldom({"answer": "blue"}, 8, "smoke", "does not match", "serving"),
    ({"accept_length": 1.0}, 9, "gate", "not one drafted token", "serving"),
]


@pytest.mark.parametrize(("wrong", "code", "step", "words", "state"), FAILING)
def test_of_three_hosts_one_fails_and_two_are_done(
    several: Callable[..., Any], wrong: dict[str, Any], code: int, step: str, words: str, state: str
) -> None:
    with several(3) as three:
        one, two, last = three.names
        three.but(1, **wrong)
        done = three.run(*UP, "--json")
        assert (done.code, failures(done)) == (code, [(two, step)]), done.err
        assert three.at("step_ended", "ready").keys() == {one, last}
        assert three.rows() == ["serving", state, "serving"]
        plain = three.run(*UP)
        summary = plain.err.splitlines()[-1]
        assert (plain.code, two in summary, words in summary, one in summary) == (code, True, True, False), plain.err
        three.but(1)
        done = three.good(*UP)
        launched = three.at("step_started", "launch").keys()
        assert (launched, three.rows()) == ({two}, ["serving"] * 3), "the others are verified, not started again"
        three.good("down")


AFTER = {"leave": ("serving", False), "stop": ("stopped", False), "rollback": ("serving", True)}


@pytest.mark.parametrize("wish", [*map(seldom, ["leave", "stop"]), "rollback"])
def test_what_becomes_of_the_one_that_fails(several: Callable[..., Any], wish: str) -> None:
    with several(3, on_failure=wish) as three:
        three.good(*UP)
        before = three.rows("run")
        three.but(1, accept_length=1.0)
        done = three.run(*UP, "env.X=1", "--json")
        assert (done.code, failures(done)) == (9, [(three.names[1], "gate")]), done.err
        state, holds = AFTER[wish]
        assert three.rows() == ["serving", state, "serving"]
        assert three.rows("gates_hold") == [True, holds, True]
        now = three.rows("run")
        assert all(run not in before for run in now), now
        assert three.rows("command")[::2] == [f"{' '.join(UP)} env.X=1"] * 2
        three.good("down")


def test_two_that_fail_are_both_named_and_the_code_is_the_first_one_s(several: Callable[..., Any]) -> None:
    with several(3) as three:
        three.but(0, answer="blue")
        done = three.run(*UP, "gates.accept_length=>= 9", "--json")
        assert failures(done) == [(three.names[0], "smoke"), (three.names[1], "gate"), (three.names[2], "gate")]
        assert done.code == 8
        three.good("down")


def test_a_slow_host_delays_nobody_else(several: Callable[..., Any]) -> None:
    with several(3) as three, three.hosts[1].slowed("2mbit"):
        one, two, last = three.names
        three.good(*UP)
        slow = three.at("step_ended", "push")[two]
        ready = three.at("step_ended", "ready")
        assert max(ready[one], ready[last]) < slow
        three.good("down")


def test_a_host_that_is_lost_while_it_loads_delays_nobody_else(several: Callable[..., Any]) -> None:
    with several(3, ready={"deadline": 60, "stall": 40}) as three:
        one, two, last = three.names
        three.but(1, phase_seconds={"weights": 30})
        with three.project.started(*UP, "--json") as client:
            until(
                lambda: look(three.on[1]).runs and two in three.at("step_started", "wait"), what="a server that loads"
            )
            three.hosts[1].cut()
            try:
                out, err = client.communicate(timeout=PATIENCE)
            finally:
                three.hosts[1].mend()
        done = Done(client.returncode, out, err)
        assert (done.code, failures(done)) == (3, [(two, "wait")]), err
        assert three.at("step_ended", "ready").keys() == {one, last}
        three.but(1)
        until(lambda: three.run(*UP).code == 0, what="all of them to serve once it is back")
        three.good("down")


def test_a_host_that_answers_nothing_is_named_and_the_others_are_shown(several: Callable[..., Any]) -> None:
    with several(3) as three:
        three.hosts[1].cut()
        try:
            done = three.run(*UP)
            assert (done.code, three.names[1] in done.err, "nothing deployed" in done.err) == (3, True, False), done.err
            rows = three.run("status", "--json")
            states = {row["host"]: row["state"] for row in rows.json}
            expected = dict(zip(three.names, ["nothing deployed", "unreachable", "nothing deployed"], strict=True))
            assert (rows.code, states) == (3, expected), "nobody was touched"
            done = three.run(*UP, "--hosts", f"{three.names[0]},{three.names[2]}")
            assert done.code == 0, done.err
        finally:
            three.hosts[1].mend()
        until(lambda: three.run("status").code == 0, what="the host to answer again")
        three.good("down")


# ---- one server over two hosts


@pytest.mark.parametrize("phase", [*map(seldom, ["args", "weights", "kv"]), "warmup"])
def test_a_follower_that_dies_stops_the_group_and_is_the_one_that_is_named(
    several: Callable[..., Any], phase: str
) -> None:
    with several(2, nodes=2, fake={"phase_seconds": {"graphs": 20}}) as two:
        _, follower = two.names
        two.but(1, die_at=phase)
        done = two.run(*UP, "--json")
        assert (done.code, failures(done)) == (6, [(follower, "wait")]), done.err
        assert follower in done.err.splitlines()[-1]
        assert two.rows()[1] == "dead"
        two.but(1)
        two.project.fake(nodes=2)
        done = two.good(*UP)
        assert two.at("step_started", "launch").keys() == set(two.names), "a group is replaced whole"
        assert two.rows() == ["serving"] * 2
        two.good("down")


ASKED = [  # where the follower dies, and what the head makes of it
    seldom("smoke", {"drop": "/v1/chat"}),
    ("gate", {}),
]


@pytest.mark.parametrize(("moment", "head"), ASKED)
def test_a_follower_that_dies_while_the_head_is_asked_is_named_and_not_the_head(
    several: Callable[..., Any], moment: str, head: dict[str, Any]
) -> None:
    with several(2, nodes=2) as two:
        _, follower = two.names
        two.but(0, **head)
        breakpoints, wanted = Breakpoints(two.hosts[0], BREAKPOINTS), MOMENTS[moment]
        breakpoints.set(wanted)
        with two.project.started(*UP, "--json") as client:
            try:
                breakpoints.reach(wanted, client)
                pids = [pid for pid, (_, run) in look(two.on[1]).processes.items() if run]
                two.on[1].inside("kill", "-9", *pids)
            finally:
                breakpoints.release()
            out, err = client.communicate(timeout=PATIENCE)
        done = Done(client.returncode, out, err)
        assert (done.code, [host for host, _ in failures(done)]) == (6, [follower]), done.err
        two.but(0)
        two.good(*UP)
        two.good("down")


def test_a_group_goes_back_together(several: Callable[..., Any]) -> None:
    with several(2, nodes=2) as two:
        two.good(*UP)
        before = two.rows("run")
        two.but(1, die_at="kv")
        assert two.run(*UP, "env.X=1").code == 6
        two.good("rollback")
        manifests = [
            json.loads(place.inside("cat", f"{folder}/manifest.json"))
            for place, folder in zip(two.on, two.rows("folder"), strict=True)
        ]
        assert [manifest["source"] for manifest in manifests] == before
        assert two.rows() == ["serving"] * 2
        two.good("down")
        head, follower = two.names
        ended, begun = two.at("step_ended", "stop")[head], two.at("step_started", "stop")[follower]
        assert ended <= begun, "a follower ends when its head says so, and not before"


@pytest.mark.full
def test_a_group_is_tried_and_measured_without_its_draft_and_is_back_together(several: Callable[..., Any]) -> None:
    with several(2, nodes=2) as two:
        two.good(*UP)
        before = two.rows("draft")
        two.good("bench", "--baseline")
        assert (two.rows(), two.rows("draft"), two.rows("gates_hold")) == (["serving"] * 2, before, [True] * 2)
        measured = two.good("bench", "bench.rounds=2", "--json").json["measured"]
        assert [one["baseline"]["run"].endswith("-baseline") for one in measured.values()] == [True]
        two.good("try", "speculative.num_steps=2,4", "--leave", "before")
        assert (two.rows(), two.rows("draft"), two.rows("gates_hold")) == (["serving"] * 2, before, [True] * 2)
        two.good("down")
