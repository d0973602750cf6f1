import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from deploy import record
from deploy.commands.history import history, lines
from deploy.errors import ConfigError, DeployError
from deploy.events import Event
from deploy.host import hide
from deploy.record.mask import masked
from deploy.walk import filing
from tests import measurements
from tests.project import PATIENCE

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"
UP, FAILED, FLEET = "20261129-201530-a1b2c3", "20261129-202000-0badd1", "20261129-203640-f1ee70"


@pytest.fixture
def project(tmp_path):
    """A project in which four runs were recorded, the last of them cut off."""
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n", encoding="utf-8")
    names = {UP: "up", FAILED: "gate-failed", FLEET: "fleet", "20261129-201530-dead00": "killed"}
    for run, name in names.items():
        (tmp_path / "runs" / run).mkdir(parents=True)
        shutil.copy(EVENTS / f"{name}.jsonl", tmp_path / "runs" / run / "events.jsonl")
    return tmp_path


def told(project, *words, code=0):
    result = CliRunner().invoke(history, [*words, "--project", str(project)], env={"COLUMNS": "100", "TZ": "UTC"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code
    return result.stdout


def test_names_sort_by_time_wherever_they_are_given():
    digits = random.Random(1)
    names = [record.new_id(at, lambda size: digits.randbytes(size).hex()) for at in (0, 1.9, 1795983330, 1795983331)]
    assert names == sorted(names)
    assert names[0].startswith("19700101-000000-")
    assert record.new_id(1795983330, lambda _: "a1b2c3") == UP
    assert len({record.new_id() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("root", "environ", "folder"),
    [
        (Path("/p"), {}, "/p/runs"),
        (None, {"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/deploy/runs"),
        (None, {"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/deploy/runs"),
        (None, {"HOME": "/h"}, "/h/.local/state/deploy/runs"),
    ],
)
def test_runs_lie_in_the_project_or_in_the_users_state(root, environ, folder):
    assert record.runs_folder(root, environ) == Path(folder)


SECRET = "s3cret'\"\\ \n重-key-of-two-lines"


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        "'" + SECRET.replace("'", "'\"'\"'") + "'",
        "curl https://u:s3cret%27%22%5C%20%0A%E9%87%8D-key-of-two-lines@192.0.2.1/",
        "the last line alone: 重-key-of-two-lines",
        "'" + SECRET.replace("'", "'\\''") + "'",
        "q=s3cret%27%22%5C+%0A%E9%87%8D-key-of-two-lines&x=1",
    ],
)
def test_a_secret_is_masked_however_it_was_quoted(shown):
    event = Event(
        "failed", f"a {shown} b", "gpu1", "wait", {"evidence": [shown], shown: {"n": (1, shown)}, "at": Path("x")}
    )
    text = json.dumps(masked(event, ["", SECRET]).to_json(), ensure_ascii=False)
    assert "***" in text
    assert "key-of-two-lines" not in text
    assert "s3cret" not in text


LONG = "hf_ABCDEFGHIJKLMNOP/QRSTUVWX"
CUTS = [
    LONG[9:] + " is the end",
    "it begins " + LONG[:-1],
    f"first\n{LONG[4:]} and\nlast {LONG[:8]}",
    f"cut to length {LONG[:20]}…",
    f"'cut to length {LONG[:20]}...'",
    "url " + LONG.replace("/", "%2F"),
    "url " + LONG,
]


@pytest.mark.parametrize("shown", CUTS)
def test_what_is_left_of_a_secret_where_text_was_cut_is_masked_too(shown):
    text = masked(Event("failed", shown, facts={"evidence": shown}), [LONG]).text
    assert "***" in text
    assert not any(LONG[at : at + 6] in text for at in range(len(LONG) - 6))


@given(st.lists(st.sampled_from([LONG, LONG[:5], LONG[7:], "x", "\n", "hf_", "hf_A"])), st.integers(1, 40))
def test_a_secret_that_comes_in_pieces_is_masked(parts, size):
    text = "".join(parts)
    flow = hide.Flow(hide.forms([LONG]))
    shown = "".join(flow.add(text[at : at + size]) for at in range(0, len(text), size)) + flow.end()
    assert LONG not in shown
    assert LONG in text or shown.rstrip("*") == text[: len(shown.rstrip("*"))]


def test_a_secret_within_another_leaves_no_rest():
    assert masked(Event("noted", "abcdef abc"), ["abc", "abcdef"]).text == "*** ***"


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text())
def test_no_secret_survives_in_any_text(secret, before, after):
    if secret in "***":
        return
    event = masked(Event("noted", before + secret + after, facts={"n": 12}), [secret])
    assert secret not in event.text
    assert masked(event, []) == event


def test_each_event_is_on_disk_before_the_next_and_the_ends_get_files(tmp_path):
    folder = tmp_path / "runs" / UP
    recorder = record.Recorder(folder, mask=["hunter22"])
    started = Event("run_started", facts={"id": UP, "plan": {"env": "hunter22"}}, at=1.0)
    recorder.on(started)
    assert [event.facts["plan"] for event in record.read(folder)] == [{"env": "***"}]
    recorder.on(Event("run_ended", "serves", facts={"exit_code": 0, "verdict": {"accept_length": 3.9}}, at=2.0))
    recorder.close()
    recorder.close()
    recorder.on(started)  # nobody listens any more
    assert json.loads((folder / "plan.json").read_text()) == {"env": "***"}
    result = {"id": UP, "text": "serves", "exit_code": 0, "verdict": {"accept_length": 3.9}}
    assert json.loads((folder / "result.json").read_text()) == result
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "plan.json", "result.json"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_written_is_read_back_as_it_was(tmp_path):
    events = [
        Event("said", "重 \x1b[2J \ud83d \u2028 \n", "gpu1", "push", {"done": 1}, at=1.25),
        Event("noted", at=2.0),
    ]
    recorder = record.Recorder(tmp_path / "run")
    for event in events:
        recorder.on(event)
    recorder.close()
    assert events == list(record.read(tmp_path / "run"))


def test_two_runs_never_share_a_record(tmp_path):
    record.Recorder(tmp_path / UP).close()
    with pytest.raises(DeployError, match="cannot record the run"):
        record.Recorder(tmp_path / UP)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
def test_a_full_disk_ends_the_record_and_not_the_run(tmp_path):
    (tmp_path / "runs").mkdir()
    recorder = record.Recorder(tmp_path / "runs" / UP)
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        recorder.file.close()
        recorder.file = full
        recorder.on(Event("noted", "one"))
        assert "No space left" in recorder.trouble
        recorder.on(Event("noted", "two"))
        recorder.close()
    assert "is incomplete" in recorder.trouble


WRITE = """
import os, signal, sys
from pathlib import Path
from deploy import record
from deploy.walk import filing
from deploy.events import Event
recorder = record.Recorder(Path(sys.argv[1]))
recorder.on(Event("run_started", facts={"command": "up", "hosts": ["gpu1"]}))
recorder.file.write('{"kind": "said", "te')
recorder.file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_client_leaves_a_record_that_can_be_read(tmp_path):
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path / "run")], check=False, timeout=PATIENCE)
    assert [event.kind for event in record.read(tmp_path / "run")] == ["run_started"]
    assert record.summary(tmp_path / "run").exit_code is None


def test_a_broken_line_is_named_and_does_not_hide_the_other_runs(project):
    path = project / "runs" / UP / "events.jsonl"
    path.write_text("[1]\n" + path.read_text(), encoding="utf-8")
    with pytest.raises(DeployError, match=r"events\.jsonl:1 is not an event"):
        list(record.read(path.parent))
    broken = next(run for run in record.summaries(project / "runs") if run.id == UP)
    assert "is not an event" in broken.text
    assert UP in told(project)


ODD = [
    {"kind": "run_started", "facts": "x"},
    {"kind": "run_started", "facts": {"hosts": 5}},
    {"kind": "run_started", "facts": {"hosts": ["gpu1", 5]}},
    {"kind": "run_started", "facts": {"hosts": "gpu1"}},
    {"kind": "run_started", "facts": {"recipe": [[]]}},
    {"kind": "run_started", "at": "noon"},
    {"kind": "run_started", "at": float("nan")},
    {"kind": "run_started", "text": 5},
    {"kind": ["run_started"]},
    {"kind": "run_ended", "facts": {"verdict": "x"}},
    {"kind": "run_ended", "facts": {"verdict": {"gates": 5}}},
    {"kind": "run_ended", "facts": {"verdict": {"waived": 5}}},
    {"kind": "run_ended", "facts": {"exit_code": [1]}},
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_record_says_so_in_its_row_and_the_others_are_listed(project, odd):
    (project / "runs" / UP / "events.jsonl").write_text(json.dumps(odd) + "\n", encoding="utf-8")
    rows = told(project).splitlines()
    assert "is not an event" in next(row for row in rows if row.startswith(UP))
    assert len(rows) == 5
    with pytest.raises(DeployError, match="is not an event"):
        list(record.read(project / "runs" / UP))


@pytest.mark.parametrize("seconds", ["soon", float("inf"), 10**400, None, True])
def test_a_number_that_is_none_does_not_hide_a_run(project, seconds):
    path = project / "runs" / UP / "events.jsonl"
    ended = {"kind": "run_ended", "at": 1.0, "facts": {"seconds": seconds, "exit_code": 0}}
    path.write_text(path.read_text() + json.dumps(ended) + "\n", encoding="utf-8")
    assert UP in told(project)
    assert told(project, UP)


def test_a_long_command_does_not_make_every_row_wide(project):
    path = project / "runs" / UP / "events.jsonl"
    path.write_text(path.read_text().replace('"command": "up"', f'"command": "up {"k=v " * 200}"'), encoding="utf-8")
    rows = told(project).splitlines()
    assert rows[0].index("HOSTS") == len("20261129-203640-f1ee70") + 2 + 40 + 2
    assert "…  gpu1 " in next(row for row in rows if row.startswith(UP))


def test_what_a_later_version_adds_is_not_read():
    assert record.parse('{"kind": "noted", "color": 1}', "here") == Event("noted", at=0.0)


def test_summaries_are_newest_first_and_tell_how_each_run_ended(project):
    runs = record.summaries(project / "runs")
    assert [run.id for run in runs] == [FLEET, FAILED, "20261129-201530-dead00", UP]
    assert [run.exit_code for run in runs] == [6, 9, None, 0]
    assert [run.accept_length for run in runs] == [3.9, 1.0, None, 3.9]
    assert (runs[3].command, runs[3].profile, runs[3].hosts) == ("up", "kimi-eagle3", ("gpu1",))
    assert round(runs[3].seconds, 1) == 107.4
    assert record.summaries(project / "nowhere") == []


@pytest.mark.parametrize(
    ("word", "run"),
    [("last", FLEET), (UP, UP), ("20261129-2020", FAILED), ("20261129-201530-d", "20261129-201530-dead00")],
)
def test_a_run_is_found_by_the_beginning_of_its_name(project, word, run):
    assert record.find(project / "runs", word) == project / "runs" / run


@pytest.mark.parametrize(
    ("word", "what"), [("20261129-2015", "2 runs begin with"), ("../x", "there is no run"), ("", "4 runs begin with")]
)
def test_a_name_of_no_run_or_of_several_is_refused(project, word, what):
    with pytest.raises(ConfigError, match=what):
        record.find(project / "runs", word)
    with pytest.raises(ConfigError, match="there are no runs"):
        record.find(project / "nowhere", "last")


LIST = """\
RUN                     COMMAND         HOSTS      TOOK   EXIT  ACCEPT  TOK/S
20261129-203640-f1ee70  up kimi-eagle3  16 hosts   1m06s  6     3.90    120    2 of 16 hosts failed: gpu3, gpu9
20261129-202000-0badd1  up local        localhost  3.7s   9     1.00    311.2  local serves on localhost:30000, but a \
gate fails
"""


def test_the_list_is_a_table(project):
    assert told(project, "--limit", "2") == LIST
    assert [run["exit_code"] for run in json.loads(told(project, "--json"))] == [6, 9, None, 0]


def test_on_a_narrow_terminal_how_a_run_ended_has_a_line_of_its_own(project):
    runs = record.summaries(project / "runs")
    head, first, ending, *rest = lines(runs, 80)
    assert (head.split()[0], first.split()[0], len(rest)) == ("RUN", FLEET, 6)
    assert ending.startswith("    ") and runs[0].text.startswith(ending.strip(" …"))
    assert all(len(line) <= 80 for line in lines(runs, 80))
    assert len(lines(runs, 120)) == 5


def test_a_profile_that_the_command_names_is_not_told_twice():
    named, other = record.RunSummary("a", "up profile=kimi", "kimi"), record.RunSummary("b", "smoke", "kimi")
    assert [line.count("kimi") for line in lines([named, other], None)] == [0, 1, 1]


def test_a_run_shows_steps_failures_and_verdict(project):
    text = told(project, "20261129-2020")
    for words in ("✗  gate  ", "─ localhost · gate · failed ─", "│   768 tokens drafted, 0 accepted", "exit 9, 3.7s"):
        assert words in text
    assert "its client was killed, or is still at it" in told(project, "20261129-201530-d")


def test_a_run_is_one_json_document(project):
    document = json.loads(told(project, "last", "--json"))
    assert (document["id"], document["exit_code"], document["verdict"]["accept_length"]) == (FLEET, 6, 3.9)
    assert {failure["host"] for failure in document["failures"]} == {"gpu3", "gpu9"}
    dead = {"host": "gpu3", "step": "wait", "state": "failed"}
    assert any(dead.items() <= step.items() for step in document["steps"])


def test_a_replay_is_what_was_seen(project):
    lines = told(project, UP[:18], "--replay", "--jsonl").splitlines()
    assert lines == (EVENTS / "up.jsonl").read_text(encoding="utf-8").splitlines()


def test_the_command_is_light_to_import():
    heavy = "import sys, deploy.commands.history as _; print({'rich', 'yaml', 'pydantic', 'fabric'} & {*sys.modules})"
    path = {**os.environ, "PYTHONPATH": str(EVENTS.parent.parent.parent)}
    done = subprocess.run([sys.executable, "-c", heavy], check=True, capture_output=True, text=True, env=path)
    assert done.stdout == "set()\n"


@pytest.fixture
def recorder(tmp_path):
    made = record.Recorder(tmp_path / "run")
    yield made
    made.close()


def evidence(**files):
    return Event("evidence", "2 looks at it", host="gpu1", facts={"files": files})


def test_evidence_becomes_files_and_the_event_names_them(tmp_path, recorder):
    event = recorder.filed(evidence(**{"server.log": "words\n", "dmesg.txt": "a name in no encoding: \udcff"}))
    folder = tmp_path / "run" / "hosts" / "gpu1" / "evidence"
    assert event.facts == {"files": ["dmesg.txt", "server.log"], "folder": str(folder)}
    assert (folder / "server.log").read_text() == "words\n"
    assert (folder / "dmesg.txt").read_text() == "a name in no encoding: \\udcff"
    assert recorder.filed(evidence(more="x")).facts["folder"] == f"{folder}-2", "a run that goes back fails once more"
    assert recorder.trouble == ""


@pytest.mark.parametrize("host", ["../../up", ".", "", "gpu 1/x", "-rf"])
@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "", ".hidden", "a\nb", "x" * 65])
def test_evidence_is_written_nowhere_else(tmp_path, recorder, host, name):
    event = recorder.filed(Event("evidence", host=host, facts={"files": {name: "bad", "good": "good"}}))
    assert event.facts["files"] == ["good"]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "events.jsonl"]
    assert [path.relative_to(tmp_path).parts[:2] for path in written] == [("run", "hosts")]
    assert written[0].parent.name == "evidence"


def test_a_disk_that_takes_no_evidence_is_told_and_ends_no_run(tmp_path, recorder):
    (tmp_path / "run" / "hosts").write_text("in the way")
    event = recorder.filed(evidence(log="words"))
    assert ("incomplete" in recorder.trouble, event.facts["files"]) == (True, ["log"])


def filed(name="bench.json", text="{}", host="gpu1", run="20261129-201530-a1b2c3"):
    return Event("filed", "measured", host=host, facts={"files": {name: text}, "run": run})


def test_what_a_run_files_lies_with_its_host_and_a_later_one_takes_its_place(tmp_path, recorder):
    folder = tmp_path / "run" / "hosts" / "gpu1"
    assert recorder.filed(filed(text="1")).facts["folder"] == str(folder)
    recorder.filed(filed("verdict.json"))
    recorder.filed(filed(text="2"))
    recorder.filed(filed(text="3", run="20261129-201530-a1b2c3-rollback"))
    kept = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert kept == {"bench.json": "2", "verdict.json": "{}", "rollback/bench.json": "3"}
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*")} == {0o600, 0o700}


@pytest.mark.parametrize("name", ["events.jsonl", "result.json", "../project.json", ".project.json"])
def test_what_the_whole_run_files_lies_beside_its_events_and_never_in_their_place(tmp_path, recorder, name):
    event = recorder.filed(Event("filed", facts={"files": {"project.json": "{}", name: "{}"}}))
    assert event.facts == {"files": ["project.json"], "folder": str(tmp_path / "run")}
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["events.jsonl", "project.json"]
    assert (tmp_path / "run" / "events.jsonl").read_text() == ""


def files_masked(name, text, *secrets):
    return masked(Event("filed", facts={"files": {name: text}}), secrets).facts["files"][name]


SAYING = ['hf_token="abc123def"', 'api_key: \\"x9x9x9\\"', 'password = "a\nb', "-- s3cret --"]


@pytest.mark.parametrize("said", SAYING, ids=repr)
def test_json_that_is_filed_stays_json_whatever_is_hidden_in_it(said):
    first = {"text": said, "tokens": 5, "chunks": [[0.5, 1]]}
    second = {"HF_TOKEN": "tok", "first_tokens": 1, "max_tokens": "6"}
    text = files_masked("a.jsonl", f"{json.dumps(first)}\n{json.dumps(second)}", "s3cret")
    told = [json.loads(line) for line in text.splitlines()]
    assert "***" in told[0]["text"]
    assert [{**told[0], "text": said}, told[1]] == [first, {**second, "HF_TOKEN": "***"}]
    assert json.loads(files_masked("a.json", json.dumps(second))) == told[1]
    assert "***" in files_masked("cut.json", '{"x": "hf_token=abc123def"')
    line = json.dumps({"text": f"\u2028{said}\x85"}, ensure_ascii=False)
    assert "***" in json.loads(files_masked("a.jsonl", f"{line}\n", "s3cret"))["text"]


def test_what_is_measured_is_filed_as_it_is():
    whole = measurements.healthy().model_dump_json()
    assert json.loads(files_masked("bench.json", whole, "hunter22")) == json.loads(whole)


def test_a_command_and_an_environment_are_told_without_what_they_name_a_secret():
    node = {"argv": ["serve", "--api-key", "x1", {"run": "draft"}, "--port=1"], "env": {"HF_TOKEN": "x2", "A": "1"}}
    told = filing.redacted({**node, "profile": {"args": {"api-key": "x3"}, "secrets": {"SERVER_KEY": "api-key"}}})
    assert told["argv"] == ["serve", "--api-key", "***", {"run": "draft"}, "--port=1"]
    assert (told["env"], told["profile"]["args"]) == ({"HF_TOKEN": "***", "A": "1"}, {"api-key": "***"})
    assert told["profile"]["secrets"] == {"SERVER_KEY": "api-key"}
