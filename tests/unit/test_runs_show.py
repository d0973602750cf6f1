"""How a run went, for people and as a document."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.commands.history import history
from deploy.commands.show import show
from deploy.events import Event
from deploy.measuring.measurement import Witness
from tests import measurements, recorded

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"
RUN = "20261201-090000-0000a1"


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n")
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def told(runs, *words, command=show):
    done = CliRunner().invoke(command, [*words, "--project", str(runs.parent)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


FILES = {
    "project.json": json.dumps(
        {"commit": "c0ffee" * 6, "branch": "main", "changed": ["profiles/kimi.yaml"], "more": 0}
    ),
    "checkpoints.json": json.dumps(
        {
            "draft": {"path": "ckpt/a", "digest": "a1" * 32, "files": []},
            "model": {"gpu1": {"path": "/shared/kimi", "identity": "feedc0ffee"}},
        }
    ),
}


def test_the_verdict_comes_first_and_then_all_that_is_known(runs):
    finding = {"check": "gpus", "verdict": "WARN", "what": "a GPU is warm\x1b[2J", "remedy": "wait"}
    recorded.run(
        runs / RUN, measurements.healthy(), files=FILES, phases={"target weights": 300.0, "graphs": 41.0},
        events=[Event("finding", host="gpu1", step="preflight", facts=finding)],
    )  # fmt: skip
    text = told(runs)
    lines = text.splitlines()
    assert lines[0].startswith("✓ done") and "\x1b" not in text
    order = ["✓ done", "accept length 3.10", "up kimi on gpu1", "WARN gpus: a GPU is warm", "start", "measured"]
    places = [[line.strip().startswith(words) for line in lines].index(True) for words in order]
    assert places == sorted(places)
    for words in (
        "target weights 5m00s, graphs 41.0s",
        "prompts mixed, at most 64 tokens, temperature 0, load own",
        "total               64.8 ± 1.3 tok/s        337.0 ± 6.7 tok/s",
        "between tokens p95  34.0 ± 0.7 ms",
        "accept length 3.10 (3.02 to 3.18) = 1 + 5,202 accepted drafts / 2,477 verify steps, by the answers",
        "by class: arithmetic 2.80 (2.70 to 2.90), code",
        "by position: 95%, 76%, 57% of the 1st",
        "log says 3.10, which agrees",
        "speed-up over no draft (run 20261201-080000-ba5e11): 2.40 ± 0.05x with 1, 1.60 ± 0.03x with 8 at once",
        "last good run 20261130-170000-900d00: accept_length 3.05 ± 0.02, tok_s 63.0 ± 1.3 tok/s",
        "0 of 8 answers differ",
        "draft    ckpt/a, release a1a1a1a1a1a1a1a1",
        "model    /shared/kimi, feedc0ffee",
        "project  c0ffeec0ffee of main, 1 file changed since",
        "gpu1     sglang 0.5.23, driver 580.65",
        "hosts/gpu1: bench.json",
    ):
        assert words in text, text
    assert str(runs / RUN) in text
    assert told(runs, RUN[:12]) == told(runs, RUN, command=history) == text


def test_a_witness_that_disagrees_and_a_number_that_is_none_are_told(runs):
    witness = Witness(source="log", accept_length=2.0, agrees=False, note="of 3 lines")
    recorded.run(runs / RUN, measurements.healthy().model_copy(update={"witnesses": (witness,)}))
    assert "log says 2.00, which DISAGREES (of 3 lines)" in told(runs)
    later = "20261201-100000-0000a2"
    recorded.run(runs / later, measurements.nothing(), at=1_796_100_000.0)
    assert "no figures are stored: others asked meanwhile" in told(runs)


def test_the_document_has_what_was_filed_as_it_was(runs):
    recorded.run(runs / RUN, measurements.healthy(), files=FILES)
    document = json.loads(told(runs, "--json"))
    assert (document["id"], document["profile"], document["resolved"]["port"]) == (RUN, "kimi", 30000)
    assert document["measured"]["gpu1"] == json.loads(measurements.healthy().model_dump_json())
    assert document["project"]["branch"] == "main"
    assert document["files"] == {"gpu1": ["bench.json"]}


@pytest.mark.parametrize("name", ["up", "gate-failed", "fleet", "killed"])
def test_runs_of_earlier_versions_are_shown(runs, name):
    (runs / RUN).mkdir()
    shutil.copy(EVENTS / f"{name}.jsonl", runs / RUN / "events.jsonl")
    text = told(runs)
    assert text.splitlines()[0][0] in "✓✗…"
    assert str(runs / RUN) in text and "measured\n" not in text
    assert json.loads(told(runs, "--json"))["measured"] == {}
