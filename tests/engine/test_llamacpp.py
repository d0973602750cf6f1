"""The main job on the real llama.cpp, on this machine and over a real sshd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.installed import proven
from tests.places import Place
from tests.project import EXAMPLES, Done, Project, free_port, until

pytestmark = pytest.mark.engine

HEALTHY = EXAMPLES / "draft.gguf"


class Deployment:
    """A project with the profile `tiny`: that of `local`, on one place and a free port."""

    def __init__(self, project: Project, place: Place) -> None:
        self.project, self.place, self.port = project, place, free_port()
        project.profile("tiny", extends="local", hosts=place.name, port=self.port)

    def run(self, *words: str) -> Done:
        return self.project.run(*words)

    def up(self) -> Done:
        return self.run("up", "profile=tiny", "--json")

    def left(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return self.place.left(row, str(self.place.host.get("lock", self.project.folder / "lock")))


@pytest.fixture
def tiny(place: Place, tmp_path: Path) -> Iterator[Deployment]:
    with places.project_on(tmp_path / "project", place) as project:
        yield Deployment(project, place)


def accept_length(done: Done) -> float:
    return float(done.json["verdict"].get("accept_length", 0.0))


def test_it_comes_up_is_verified_answers_and_goes_without_a_trace(tiny: Deployment) -> None:
    done = tiny.up()
    assert (done.code, done.json["verdict"]["mode"]) == (0, "replace"), done.err
    assert accept_length(done) > 3
    first = tiny.project.status()
    assert (first["state"], first["accept_length"]) == ("serving", accept_length(done))

    again = tiny.up()
    assert (again.code, again.json["verdict"]["mode"]) == (0, "verify"), again.err
    assert accept_length(again) > 3
    assert tiny.project.status()["pid"] == first["pid"]

    smoke = tiny.run("smoke")
    assert (smoke.code, "Paris" in smoke.err) == (0, True), smoke.err
    proven(tiny.project, draft_told=False)
    asked = tiny.run("ask", "capital of France?", "--max-tokens", "40", "--json")
    assert ("Paris" in asked.json["answer"], asked.json["tokens"], asked.json["accept_length"] > 3) == (True, 40, True)

    assert len(tiny.left(first)["pids"]) == 2, "the launcher and the server"
    down = tiny.run("down")
    assert down.code == 0, down.err
    until(lambda: tiny.left(first) == places.NOTHING, what="no process, no port, no lock")
    assert tiny.project.status()["state"] == "stopped"


def test_dead_drafts_fail_the_gate_and_the_healthy_one_passes_it(tiny: Deployment, tmp_path: Path) -> None:
    assert tiny.up().code == 0
    served = tiny.project.status()["pid"]
    zero = str(places.broken("zero-head.gguf", tmp_path / "dead"))
    refused = tiny.run("restart", "--ckpt", zero)
    assert (refused.code, "output.weight: all 8,192" in refused.err) == (5, True), refused.err
    other = tiny.run("restart", "--ckpt", str(HEALTHY.parent / "draft"))
    assert (other.code, "takes a draft as one .gguf file" in other.err) == (5, True), other.err
    assert tiny.project.status()["pid"] == served
    random = str(places.broken("random-head.gguf", tmp_path / "dead"))
    for draft, words, most, said in (
        (random, [], 1.01, "not one drafted token is accepted"),
        (zero, ["waive=[ckpt]"], 1.1, "not one drafted token is accepted, but by chance"),
    ):
        done = tiny.run("restart", "--ckpt", draft, *words, "--json")
        assert (done.code, said in done.err) == (9, True), done.err
        assert 1.0 <= accept_length(done) < most
        row = tiny.project.status()
        assert (row["state"], row["gates_hold"]) == ("serving", False), "what fails its gate is left to be looked at"
    done = tiny.run("restart", "--ckpt", str(HEALTHY), "--json")
    assert (done.code, accept_length(done) > 3) == (0, True), done.err


def test_a_draft_that_does_not_load_is_explained(tiny: Deployment, tmp_path: Path) -> None:
    assert tiny.up().code == 0
    cut = places.broken("truncated.gguf", tmp_path / "dead")
    refused = tiny.run("restart", "--ckpt", str(cut))
    assert (refused.code, "truncated.gguf is truncated" in refused.err) == (5, True), refused.err
    assert tiny.project.status()["state"] == "serving"
    done = tiny.run("restart", "--ckpt", str(cut), "waive=[ckpt]")
    assert (done.code, "the GGUF file is cut short" in done.err) == (6, True), done.err
    assert tiny.project.status()["state"] == "dead"


def test_a_draft_that_lies_on_the_host_is_served_from_there(tiny: Deployment, tmp_path: Path) -> None:
    assert tiny.up().code == 0
    lying = f"{tmp_path}/on the host/step 7.gguf"
    tiny.place.inside("sh", "-c", 'mkdir -p "${2%/*}" && cp "$1" "$2"', "sh", str(HEALTHY), lying)
    done = tiny.run("restart", "--ckpt", f"{tiny.place.name}:{lying}", "--json")
    assert (done.code, accept_length(done) > 3) == (0, True), done.err
    assert tiny.project.status()["draft_from"] == f"{tiny.place.name}:{lying}"


def test_a_draft_is_held_against_the_same_server_without_it(tiny: Deployment) -> None:
    assert tiny.up().code == 0
    before = tiny.project.status()
    made = tiny.run("bench", "--baseline", "--json")
    assert (made.code, made.json["measured"][tiny.place.name]["acceptance"]) == (0, None), made.err
    assert tiny.project.status()["draft"] == before["draft"]
    done = tiny.run("bench", "gates.differences=<= 0", "--json")
    measured = done.json["measured"][tiny.place.name]
    assert (done.code, measured["quality"]["compared"], measured["quality"]["differ"]) == (0, 3, 0), done.err
    assert measured["baseline"]["run"] == made.json["run"]
    assert measured["speedup"]["1"]["value"] > 0
