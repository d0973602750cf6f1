"""What `deploy try` tries, by its words; and which of them is the best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.errors import ConfigError
from deploy.measuring.measurement import Measurement
from deploy.trial import candidates, tried
from deploy.trial.candidates import Candidate
from deploy.trial.tried import Left, Past, Tried
from tests import measurements


@pytest.mark.parametrize(
    ("words", "common", "wanted"),
    [
        ("a/ b/", "", ["a/", "b/"]),
        ("a/ a/", "", ["a/"]),
        ("a/ bench.rounds=3", "bench.rounds=3", ["a/"]),
        ("n=3,4", "", ["n=3", "n=4"]),
        ("a/ b/ n=3,4 k=1,2", "", [f"{c} n={n} k={k}" for c in ("a/", "b/") for n in "34" for k in "12"]),
        ("a/ ~hooks +env.A=1", "~hooks +env.A=1", ["a/"]),
        ("bench.concurrency=[1,8],[1,32]", "", ["bench.concurrency=[1,8]", "bench.concurrency=[1,32]"]),
        ('env.F={"a":[1,2],"b":2},{}', "", ['env.F={"a":[1,2],"b":2}', "env.F={}"]),
        ("a/ env.A='1,2'", "env.A=1,2", ["a/"]),
        ("n='1,2',3", "", ["n='1,2'", "n=3"]),
        ("n=3, a/", "n=3", ["a/"]),
        ("a/ env.A=", "env.A=", ["a/"]),
        ("gpu1:/data/lr=0.1,x", "", ["gpu1:/data/lr=0.1,x"]),
        ("~/ckpt ~draft", "~draft", ["~/ckpt"]),
        ("a(1,2)=3,4", "", ["a(1,2)=3,4"]),
    ],
    ids=str,
)
def test_checkpoints_and_values_each_with_each(words: str, common: str, wanted: list[str]) -> None:
    found, tried_ = candidates.of(words.split())
    assert (" ".join(found), [one.name for one in tried_]) == (common, wanted)


def test_a_folder_with_an_equals_sign_in_its_name_is_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lr=0.1,0.2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert candidates.of(["lr=0.1,0.2"]) == ((), [Candidate("lr=0.1,0.2", ())])


def test_a_secret_by_its_name_is_tried_and_not_told() -> None:
    _, (one, other) = candidates.of(["env.SOME_TOKEN=plugh,xyzzy"])
    assert [one.words, other.words] == [("env.SOME_TOKEN=plugh",), ("env.SOME_TOKEN=xyzzy",)]
    assert [one.name, other.name, one.told] == ["env.SOME_TOKEN=***", "env.SOME_TOKEN=***", ["env.SOME_TOKEN=***"]]


@pytest.mark.parametrize("words", ["", "bench.rounds=3", "profile=x ~draft"])
def test_nothing_to_try_is_told(words: str) -> None:
    with pytest.raises(ConfigError, match="nothing to try"):
        candidates.of(words.split())


def one(name: str, code: int = 0, measured: Measurement | None = None, **more: Any) -> Tried:
    return Tried(Candidate(name, ()), code, run=f"run-{name}", measured=measured, **more)


def fast(tok_s: float, length: float = 3.0) -> Measurement:
    return measurements.made(length, tok_s, "r")


@pytest.mark.parametrize(
    ("held", "name"),
    [
        ([one("a", 0, fast(50)), one("b", 0, fast(60)), one("c", 9, fast(90))], "b"),
        ([one("a", 0, fast(60)), one("b", 0, fast(60))], "a"),
        ([one("a", 9, fast(60)), one("b", 6)], None),
        ([one("a", 10, fast(60)), one("b", 0)], "b"),
        ([one("a", 0), one("b", 0, fast(60))], "b"),
    ],
)
def test_the_best_holds_its_gates_and_is_the_fastest_of_those(held: list[Tried], name: str | None) -> None:
    found = tried.best(held)
    assert (found.candidate.name if found else None) == name


@pytest.mark.parametrize(
    ("codes", "code"), [((6, 0, 9), 0), ((6, 9, 5), 9), ((6, 10), 10), ((5, 6), 6), ((2, 2), 2), ((130,), 130)]
)
def test_the_exit_code_is_that_of_the_one_that_came_furthest(codes: tuple[int, ...], code: int) -> None:
    assert tried.code([one(str(n), found) for n, found in enumerate(codes)]) == code


def test_the_table_tells_candidates_apart_and_what_they_are_held_against() -> None:
    held = [one("a", 0, measurements.healthy()), one("b", 6, why="it died"), one("c", 9, measurements.dead())]
    rows = tried.rows(held, Left("best", "run-a", "run-a-again"), Past("old", holds=True, measured=fast(40)))
    assert [(row["candidate"], row.get("verdict", "")) for row in rows] == [
        ("a", "holds"),
        ("b", "died"),
        ("c", "fails its gates"),
        ("(what ran before)", "holds"),
        ("(without a draft)", ""),
    ]
    assert [row.get("left", "") for row in rows] == ["runs", "", "", "", ""]
    assert (rows[0]["accept length"], rows[0]["speed-up"], rows[1]["tok/s"]) == ("3.10 ± 0.02", "2.40 ± 0.05", "")
    assert rows[4]["tok/s"] == "27.0 ± 0.5"
    document = tried.document(held, Left("best", "run-a", "x"), None, 0)
    assert [(row["exit_code"], "tok_s@8" in row) for row in document["candidates"]] == [
        (0, True),
        (6, False),
        (9, True),
    ]


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ([60.0, 60.5, 40.0], ["within the noise of b: a", "-> bench.rounds=31 may tell them apart"]),
        (
            [60.5, 60.0, 60.4],
            ["within the noise of a: b, c", "-> bench.rounds=31 may tell b from it; take c for equally fast"],
        ),
        ([60.0, 60.0], ["within the noise of a: b", "-> take them for equally fast"]),
        ([60.0, 40.0], []),
        ([60.0], []),
    ],
)
def test_what_chance_chose_between_is_told_with_what_would_tell(speeds: list[float], said: list[str]) -> None:
    failed = one("d", 9, fast(60.4))
    assert tried.beside([*(one("abc"[n], 0, fast(speed)) for n, speed in enumerate(speeds)), failed]) == said


def test_a_refused_candidate_is_told_with_the_checks_that_refused_it():
    failure = {
        "error": "CheckFailed",
        "what": "1 check failed on here; nothing was touched",
        "evidence": "ckpt: weights are all zero\n  output.weight\nports: taken",
    }
    assert tried.reasons(failure) == ["ckpt: weights are all zero", "ports: taken"]
    assert tried.reasons({**failure, "error": "GateFailed"}) == [failure["what"]]


def test_what_ran_before_has_no_figures_beside_candidates_that_were_asked_otherwise():
    now = measurements.healthy()
    other = now.model_copy(update={"on": now.on.model_copy(update={"prompts_digest": "another"})})
    one = Tried(Candidate("a/", ()), 0, run="run-a", measured=now)
    told = [
        tried.rows([one], Left("before", "old"), Past("old", holds=True, measured=past))[1]["tok/s"]
        for past in (now, other)
    ]
    assert [bool(words) for words in told] == [True, False]
