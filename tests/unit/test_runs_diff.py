"""How two runs differ, and whether what was measured is better, the same, or worse."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from click.testing import CliRunner

from deploy.commands.diff import diff
from deploy.measuring import statistics
from deploy.measuring.measurement import Figure
from deploy.runs import beside, comparing, kept
from deploy.runs.comparing import Change
from tests import measurements, recorded
from tests.project import EXAMPLES

A, B = "20261201-090000-0000a1", "20261201-100000-0000a2"


def compared(tmp_path, one, other, *nodes, **said):
    """Two runs, the second one with what is said."""
    first, second = recorded.run(tmp_path / A, one), recorded.run(tmp_path / B, other, *nodes, **said)
    return comparing.compare(kept.read(first), kept.read(second))


def verdicts(found):
    return {one.name: one.verdict for one in found.bench}


def test_the_same_twice_does_not_differ(tmp_path):
    found = compared(tmp_path, measurements.healthy(), measurements.healthy())
    assert (found.none, found.incomparable) == (True, "")
    assert set(verdicts(found).values()) == {"same"}


def test_each_figure_is_better_or_worse_in_its_own_sense(tmp_path):
    found = compared(tmp_path, measurements.partial(), measurements.made(3.1, 64.8, B))
    told = verdicts(found)
    better = {"accept_length@1", "tok_s@1", "tok_s@8", "itl_p50@1", "itl_p99@8", "tok_s_stream@8"}
    assert better <= {name for name, verdict in told.items() if verdict == "better"}
    assert told["ttft_p95@1"] == "same"
    assert "accept_length" not in told, "without its concurrency it is the same as one that is there"
    back = verdicts(comparing.compare(found.b, found.a))
    assert {name for name in better if back[name] != "worse"} == set()


def test_noise_is_no_difference():
    """In 5 % of repeats any figure of the same server seems to differ (300 draws: 15, give or take 7); 15 % is seen."""
    draws, wrong, seen = random.Random(7), 0, 0
    for _ in range(300):
        one, other, less = (
            measurements.made(3.0, 1.0, A, rungs=tuple(_rung(draws, n, factor) for n in (1, 8)))
            for factor in (1.0, 1.0, 0.85)
        )
        wrong += any(line.verdict != "same" for line in comparing.figures(one, other))
        seen += all(line.verdict == "worse" for line in comparing.figures(one, less) if line.name.startswith("tok_s@"))
    assert wrong <= 22
    assert seen >= 285


def _rung(draws, concurrency, factor):
    """Eight rounds with a spread of 3 %; only what is measured here."""
    rounds = [60 * concurrency * factor * draws.gauss(1, 0.03) for _ in range(8)]
    return _only(concurrency, statistics.figure(rounds))


def _only(concurrency, tok_s):
    nothing = dict.fromkeys(("tok_s_stream", "accept_length", "ttft", "itl", "goodput"))
    return measurements.rung(concurrency, 60.0, None).model_copy(update={**nothing, "tok_s": tok_s})


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (measurements.made(3.1, 64.8, B, on=measurements.on(B, max_tokens=128)), "max_tokens differ"),
        (measurements.made(3.1, 64.8, B, on=measurements.on(B, hosts=("gpu2",))), "hosts differ"),
        (measurements.made(3.1, 64.8, B, on=measurements.on(B, model_id="other")), "model differ"),
        (measurements.nothing("the clock jumped"), "the second run has no figures: the clock jumped"),
        (None, "the second run measured nothing"),
    ],
    ids=["question", "hosts", "model", "why", "none"],
)
def test_what_cannot_be_compared_is_shown_and_not_judged(tmp_path, other, why):
    found = compared(tmp_path, measurements.healthy(), other)
    assert why in found.incomparable
    assert set(verdicts(found).values()) == {"unknown"}
    assert any(one.a for one in found.bench)


def test_one_round_tells_no_noise_and_so_no_difference(tmp_path):
    one, other = (
        measurements.made(None, 1.0, name, rungs=(_only(1, statistics.figure([value])),))
        for name, value in ((A, 60.0), (B, 30.0))
    )
    found = compared(tmp_path, one, other)
    assert verdicts(found)["tok_s@1"] == "unknown"


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([60, 61, 59, 60], [30, 31, 29, 30], "worse"),
        ([60, 61, 59, 60], [60, 61, 60, 60], "same"),
        ([60, 60, 60], [60.2, 60.2, 60.2], "same"),
        ([60, 60, 60], [61, 61, 61], "better"),
        ([60, 20, 90], [60, 95, 20], "unknown"),
        ([60, 20, 90], [60, 20, 90], "unknown"),
        ([60, 61], [0, 0], "unknown"),
        ([0.001, 99], [0.001, 60], "unknown"),
    ],
    ids=str,
)
def test_a_wide_band_hides_what_differs_and_is_no_sameness(a, b, verdict):
    one, other = (
        measurements.made(None, 1.0, A, rungs=(_only(1, statistics.figure(map(float, each))),)) for each in (a, b)
    )
    assert [line.verdict for line in comparing.figures(one, other)] == [verdict]


def test_a_speed_up_without_rounds_is_not_told_to_be_of_one():
    gain = Figure(value=2.0, low=1.9, high=2.1)
    (one,) = comparing.side_by_side({"speedup@1": gain}, {"speedup@1": gain})
    assert beside.word(one, judged=True) == ""


def test_what_the_runs_were_is_compared_key_by_key(tmp_path):
    changed = recorded.node("c3d4", env={"NCCL_DEBUG": "INFO", "NEW": "1"})
    changed["profile"] = {**changed["profile"], "port": 30001, "speculative": {"num_steps": 5}}
    changed["argv"] = [*changed["argv"][:3], "--tp", "4", "--port", "30001"]
    versions = {"tool": "0.2.0", "hosts": {"gpu1": {**recorded.VERSIONS, "driver": "581.01"}}}
    found = compared(
        tmp_path, None, None, changed, versions=versions, seconds=331.5, phases={"target weights": 310.0}
    ).sections
    assert found["profile"] == (Change("port", 30000, 30001), Change("speculative.num_steps", 3, 5))
    assert found["env"] == (Change("NCCL_DEBUG", "WARN", "INFO"), Change("NEW", None, "1"))
    assert found["flags"] == (
        Change("--tp", "8", "4"), Change("--draft", "$run/draft", None), Change("--port", None, "30001"),
    )  # fmt: skip
    assert [one.key for one in found["checkpoint"]] == ["draft.path", "draft.digest", "draft.model.safetensors"]
    assert found["versions"] == (Change("tool", "0.1.0", "0.2.0"), Change("driver", "580.65", "581.01"))


def test_what_differs_on_one_host_alone_names_it(tmp_path):
    same, other = (
        recorded.node(),
        recorded.node(host={"name": "gpu2"}, env={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5"}),
    )
    recorded.run(tmp_path / A, None, same, recorded.node(host={"name": "gpu2"}))
    recorded.run(tmp_path / B, None, same, other)
    found = comparing.compare(*(kept.read(tmp_path / name) for name in (A, B)))
    assert found.sections["env"] == (Change("gpu2: NCCL_IB_HCA", None, "mlx5"),)


def invoked(tmp_path, *words):
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n")
    done = CliRunner().invoke(diff, [*words, "--project", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_tells_what_differs_and_how_sure_that_is(tmp_path):
    (tmp_path / "runs").mkdir()
    recorded.run(tmp_path / "runs" / A, measurements.healthy(), phases={"target weights": 300.0, "odd\x1b[2J": 2.0})
    recorded.run(
        tmp_path / "runs" / B, measurements.dead(), recorded.node("c3d4"), exit_code=9, text="a gate fails",
        seconds=331.5, phases={"target weights": 312.0},
    )  # fmt: skip
    text = invoked(tmp_path, A[:13], "last")
    assert "\x1b" not in text
    for words in (
        f"A  {A}  up kimi  exit 0",
        f"B  {B}  up kimi  exit 9  a gate fails",
        "draft.path               ckpt/a1b2 -> ckpt/c3d4",
        "ckpt/a1b2 is not on this machine",
        "wait                  5m20s  5m32s  +11.5s",
        "wait: target weights  5m00s  5m12s  +12.0s",
        "accept_length@1  3.10 ± 0.02             1.00 ± 0.00",
        "worse",
    ):
        assert words in text, text
    told = json.loads(invoked(tmp_path, A, B, "--json"))
    assert next(one["key"] for one in told["checkpoint"]) == "draft.path"
    assert next(one for one in told["bench"] if one["name"] == "tok_s@1")["verdict"] == "worse"
    assert (told["a"]["id"], told["b"]["exit_code"]) == (A, 9)


def test_the_drafts_are_compared_tensor_by_tensor_where_both_are_here(tmp_path):
    from deploy.checkpoint import manifest

    (tmp_path / "runs").mkdir()
    dead = tmp_path / "dead"
    shutil.copytree(EXAMPLES / "draft", dead)
    (dead / "config.json").write_text((dead / "config.json").read_text().replace('"rope_theta": ', '"rope_theta": 1'))
    for name, path in ((A, EXAMPLES / "draft"), (B, dead)):
        draft = {"path": str(path), **manifest.of(path).to_json()}
        recorded.run(tmp_path / "runs" / name, None, files={"checkpoints.json": json.dumps({"draft": draft})})
    text = invoked(tmp_path, A, B)
    assert "rope_theta" in text and "tensors are equal" in text
    (dead / "config.json").write_text("{}")
    assert "is not what it was then" in invoked(tmp_path, A, B)


def test_what_an_earlier_version_did_not_record_is_no_difference(tmp_path):
    runs = [recorded.run(tmp_path / name, measurements.healthy()) for name in (A, B)]
    for name in ("checkpoints.json", "versions.json", "project.json"):
        (runs[0] / name).unlink(missing_ok=True)
    for pair in (runs, runs[::-1]):
        found = comparing.compare(*map(kept.read, pair))
        assert {name: found.sections[name] for name in ("checkpoint", "versions", "project")} == {
            "checkpoint": (),
            "versions": (),
            "project": (),
        }
