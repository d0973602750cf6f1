"""What `deploy report` says of a record, and that it says it safely: in HTML, in Markdown, in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from deploy.report import charts, content, html, markdown, reading, words
from deploy.report.document import Document
from deploy.report.sections import origin
from deploy.runs import comparing, kept
from tests import measurements, recorded
from tests.project import Project

STYLE = html.style()
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\" ' & `` [a](http://192.0.2.9) **b** |\x1b[31m \u202e"
HELD = [recorded.gate("accept_length", ">= 2.0", 3.1, holds=True, state="holds", margin=0.02, rounds=8)]
FAILED = [recorded.gate("accept_length", ">= 1.15", 1.0, holds=False, state="fails", margin=0.01, rounds=8)]
DIAGNOSIS = {
    "title": "not one drafted token is accepted",
    "causes": [
        {"name": "d2t", "title": "the map d2t", "says": "FAIL", "what": "absolute ids", "next": "deploy ckpt fix"}
    ],
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def made(name: str, runs: Path) -> Path:
    """A record as it lies there after such a run."""
    if name == "healthy":
        return recorded.again(runs, "20261201-09-a", bench=measurements.healthy(), verdict={"gates": HELD})
    if name == "dead":
        told = {"gates": FAILED, "diagnosis": DIAGNOSIS}
        return recorded.again(
            runs, "20261201-11-c", "gate-failed", host="localhost", bench=measurements.dead(), verdict=told
        )
    if name == "nothing":
        return recorded.again(runs, "20261201-12-d", bench=measurements.nothing())
    return recorded.again(runs, f"20261129-20-{name}", name)  # of an earlier version: events alone


def document(*folders: Path) -> Document:
    first, *others = [kept.read(folder) for folder in folders]
    return reading.document([first, *others], [comparing.compare(first, other).to_json() for other in others])


def page(told: Document, draw: html.Draw = lambda _: "") -> str:
    """The page, without pictures where these are not what is looked at."""
    return html.render(content.page(told), STYLE, draw)


class Read(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.cells: list[str] = []
        self.text = ""
        self._in_cell = self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        self._in_style = tag == "style"
        if tag in ("td", "th"):
            self._in_cell = True
            self.cells.append("")
        if tag == "br" and self._in_cell:
            self.cells[-1] += "\n"

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[-1] += data
        if not self._in_style:
            self.text += data


def rendered(told: Document) -> Read:
    """The Markdown, as others show it."""
    return Read(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown.render(content.page(told))))


RECORDS = ["healthy", "dead", "nothing", "up", "gate-failed", "killed", "fleet"]


# ---- what it says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word", "says"),
    [
        ("healthy", "holds", ["3.02 to 3.18", ">= 2.0", "tok/s, 8 streams", "better", "0 of 8 differ", "reasoning"]),
        ("dead", "fails", ["not one drafted token is accepted", "absolute ids", "deploy ckpt fix", "The lamp is out."]),
        ("nothing", "holds", ["No number of gpu1 is kept: others asked meanwhile"]),
        ("up", "holds", ["accept length", "3.90", "120", "the draft has no d2t table"]),
        ("gate-failed", "fails", ["FAIL, waived", "serve another draft: deploy restart --ckpt PATH"]),
        ("killed", "not ended", ["The client did not end it.", "target weights"]),
        ("fleet", "failed", ["2 of 16 hosts failed: gpu3, gpu9", "torch.OutOfMemoryError", "slowest of 15 hosts"]),
    ],
)
def test_the_page_says_what_it_came_to_first_and_all_that_is_known(runs, name, word, says):
    told = document(made(name, runs))
    for text in (Read(page(told)).text, rendered(told).text):
        assert word in text.lower()[: text.index("Verdict")]
        assert [line for line in says if line not in text] == []
        assert "nan" not in text.split()


@pytest.mark.parametrize("name", RECORDS)
def test_markdown_has_every_table_of_the_page_with_the_same_words(runs, name):
    told = document(made(name, runs))

    def tables(read: Read) -> list[str]:
        return [" ".join(cell.split()) for cell in read.cells]

    of_page, of_markdown = tables(Read(page(told))), tables(rendered(told))
    assert [cell for cell in of_page if cell not in of_markdown] == []


@pytest.mark.parametrize("name", RECORDS)
def test_the_json_is_the_source_of_both(runs, name):
    told = document(made(name, runs))
    again = Document.model_validate_json(told.model_dump_json())
    assert content.page(again) == content.page(told)  # which both are made from


def test_several_runs_stand_side_by_side_and_then_each_for_itself(runs):
    told = document(made("healthy", runs), made("dead", runs), made("nothing", runs))
    text = rendered(told).text
    rows = rendered(told).cells
    assert {"20261201-09-a", "20261201-11-c", "20261201-12-d", "3.10 ± 0.02", "1.00 ± 0.00"} <= set(rows)
    parts = ("Side by side", "20261201-11-c against 20261201-09-a", "up kimi-eagle3 on gpu1: holds", ": fails")
    assert sorted(parts, key=text.index) == list(parts)


def test_what_is_different_is_told_with_what_it_comes_to(runs):
    first = recorded.run(runs / "20261201-09-a", measurements.healthy(), phases={"weights": 200.0})
    changed = recorded.node("b3b4", argv=["python3", "-m", "sglang.launch_server", "--tp", "4"])
    second = recorded.run(runs / "20261201-11-c", measurements.partial(), changed, phases={"weights": 280.0})
    told = document(first, second)
    read = rendered(told)
    for cell in ("--tp", "8", "4", "draft.digest", "worse", "0.56 (0.53 to 0.58)", "wait: weights", "3m20s", "4m40s"):
        assert cell in read.cells
    assert "both were the same" not in read.text.lower()
    assert "Both were the same" in rendered(document(first, recorded.run(runs / "z", None))).text


def test_each_replica_has_its_own_numbers(runs):
    folder = recorded.again(runs, "20261201-14-f", "fleet", bench=measurements.healthy(), verdict={"gates": HELD})
    (folder / "hosts/gpu2").mkdir()
    (folder / "hosts/gpu2/bench.json").write_text(measurements.partial().model_dump_json())
    (folder / "hosts/gpu2/verdict.json").write_text(json.dumps({"gates": FAILED}))
    read = rendered(document(folder))
    assert {"accept length on gpu1", "accept length on gpu2", "3.10", "1.62"} <= set(read.cells)
    gates = read.cells[read.cells.index("host") :]
    assert gates.index("gpu1") < gates.index("holds") < gates.index("gpu2") < gates.index("FAILS")


def test_a_run_without_speculation_says_so(runs):
    folder = recorded.again(runs, "20261201-08-b", bench=measurements.baseline())
    assert "No acceptance: nothing is drafted" in rendered(document(folder)).text


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("up profile=kimi", "up profile=kimi"),
        ("try ckpt/b n=3 profile=kimi ~hooks", "restart --ckpt ckpt/b n=3 profile=kimi ~hooks"),
        ("try n=3 profile=kimi", "restart n=3 profile=kimi"),
    ],
)
def test_what_does_a_run_again_is_a_command_of_its_own(command, again):
    assert origin.alone(command) == again


def test_a_file_that_is_broken_is_told_and_the_rest_is_there(runs):
    folder = made("healthy", runs)
    (folder / "hosts/gpu1/bench.json").write_text('{"version": 1')
    text = rendered(document(folder)).text
    assert "bench.json" in text
    assert "Every step on gpu1" in text


# ---- when -----------------------------------------------------------------------------------------------------


def test_steps_and_stages_stand_where_they_were(runs):
    (told,) = document(made("up", runs)).runs
    steps = {span.step: (span.begin, span.seconds) for span in told.spans}
    assert steps["push"] == (1.17, 3.2)
    assert steps["wait"] == (5.11, 94.7)
    assert [(stage.name, stage.begin, stage.seconds) for stage in told.stages] == [
        ("target weights", 9.71, 76.6),
        ("target graphs", 86.31, 11.5),
    ]


def test_stages_that_the_start_told_itself_count(runs):
    folder = made("up", runs)
    lines = (folder / "events.jsonl").read_text().splitlines()
    said = {"kind": "said", "host": "gpu1", "step": "wait", "facts": {"phases": {"weights": 80.0, "graphs": 14.0}}}
    at = next(number for number, line in enumerate(lines) if '"ready after 94 s"' in line)
    lines.insert(at, json.dumps({**said, "at": json.loads(lines[at])["at"]}))
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    (told,) = document(folder).runs
    assert [(stage.name, stage.begin, stage.seconds) for stage in told.stages] == [
        ("weights", 5.11, 80.0),
        ("graphs", 85.11, 14.0),
    ]


def test_a_draft_that_came_into_the_server_of_another_run_has_no_start(runs):
    folder = made("up", runs)
    lines = (folder / "events.jsonl").read_text().splitlines()
    end = next(number for number, line in enumerate(lines) if '"ready after 94 s"' in line)
    begun = next(number for number, line in enumerate(lines) if '"wait"' in line and '"step_started"' in line)
    at = {"at": json.loads(lines[begun])["at"], "host": "gpu1", "step": "swap"}
    exchange = {"server": "20261201-07-x", "bytes": 1, "seconds": {"paused": 0.1}}
    swap = [
        {**at, "kind": "step_started"},
        {**at, "kind": "said", "facts": {"swap": exchange}},
        {**at, "kind": "step_ended", "text": "in the server of run 20261201-07-x", "facts": {"seconds": 0.5}},
    ]
    lines[begun + 1 : end] = []  # of its `wait`, nothing is told but the end
    lines[begun:begun] = map(json.dumps, swap)
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    (told,) = document(folder).runs
    assert (told.servers, told.stages) == ({"gpu1": "20261201-07-x"}, ())
    read = rendered(document(folder))
    assert "that of run 20261201-07-x" in read.text
    assert next(span.seconds for span in told.spans if span.step == "swap") == 0.5


def test_what_was_begun_when_the_client_died_is_left(runs):
    (told,) = document(made("killed", runs)).runs
    assert told.exit_code is None
    assert told.spans[-1].step == "wait"


# ---- numbers in words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "told"),
    [
        ("accept_length", "accept length"),
        ("tok_s@8", "tok/s, 8 streams"),
        ("ttft_p95@1", "time to first token p95, 1 stream"),
        ("itl_p50", "between tokens p50"),
        ("goodput", "goodput, requests/s"),
        ("something_new", "something_new"),
    ],
)
def test_a_measure_in_words(measure, told):
    assert words.name(measure) == told


@pytest.mark.parametrize(
    ("value", "measure", "told"),
    [
        (3.1, "", "3.10"),
        (64.81, "tok_s", "64.8"),
        (337.4, "tok_s", "337"),
        (0.05, "ttft_p50", "50.0 ms"),
        (1.25, "ttft_p99@8", "1.25 s"),
        (2.0, "differences", "2"),
        (None, "tok_s", "-"),
    ],
)
def test_a_value_in_words(value, measure, told):
    assert words.value(value, measure) == told


# ---- nothing that came from elsewhere does anything ------------------------------------------------------------

ELEMENTS = set(
    "html head meta title style body header h1 h2 h3 h4 h5 p main section footer b span figure figcaption div table "
    "thead tbody tr th td details summary dl dt dd pre svg g path rect line text".split()
)


def evil_record(runs: Path) -> Path:
    """Every word that a host, a user's prompt or a log may have brought is hostile."""
    folder = recorded.again(runs, "20261201-13-e", "fleet")
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in lines:
        event["facts"] = {name: _evil(name, value) for name, value in event.get("facts", {}).items()}
        event.update({name: f"{event[name]}{EVIL}" for name in ("host", "text") if event.get(name)})
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    told = measurements.healthy().model_dump(mode="json")
    told["acceptance"]["by_class"] = {f"{kind}{EVIL}": share for kind, share in told["acceptance"]["by_class"].items()}
    told["notes"] = [EVIL]
    told["quality"]["first"] = {"prompt": EVIL, "with": EVIL, "without": EVIL, "at": EVIL}
    told["witnesses"][0].update(source=EVIL, note=EVIL)
    told["baseline"]["run"] = EVIL
    told["on"].update(model=EVIL, engine_version=EVIL, commands=[EVIL], gpus=[EVIL])
    cause = dict.fromkeys(("name", "title", "says", "what", "evidence", "seen", "looks_like", "next"), EVIL)
    gates = [recorded.gate(EVIL, EVIL, 1.0, holds=False, why=EVIL, run=EVIL, bar=1.0)]
    own = folder / "hosts" / re.sub(r"^\.|[^\w.-]", "_", f"gpu1{EVIL}")
    own.mkdir(parents=True)
    (own / "bench.json").write_text(json.dumps(told))
    (own / "verdict.json").write_text(json.dumps({"gates": gates, "diagnosis": {"title": EVIL, "causes": [cause]}}))
    (own / "launch.sh").write_text(EVIL)
    (folder / "profile.yaml").write_text(EVIL)
    (folder / "versions.json").write_text(json.dumps({EVIL: EVIL}))
    (folder / "project.json").write_text(json.dumps({"commit": EVIL, "remote": EVIL, "changed": [EVIL]}))
    return folder


def _evil(name: str, value: object) -> object:
    if isinstance(value, str) and name not in ("verdict", "id"):
        return f"{value}{EVIL}"
    return [f"{host}{EVIL}" for host in value] if name == "hosts" and isinstance(value, list) else value


def test_words_of_hosts_are_words_in_the_page(runs):
    text = page(document(evil_record(runs)), charts.svg)
    read = Read(text)
    assert read.elements - ELEMENTS == set()
    assert [name for name, _ in read.attributes if name.startswith("on") or name in ("src", "href", "action")] == []
    assert re.findall(r"url\(|@import|javascript:", text) == []
    assert {"\x1b", "\u202e"} & set(text) == set()
    assert read.text.count("<script>alert(1)</script>") > 40


def test_words_of_hosts_are_words_in_markdown(runs):
    told = document(evil_record(runs))
    read = rendered(told)
    assert read.elements <= set("h1 h2 h3 h4 h5 h6 p strong em pre code table thead tbody tr th td br".split())
    assert {"\x1b", "\u202e"} & set(read.text) == set()
    assert "[a](http://192.0.2.9) **b** |" in read.text


# ---- colours ----------------------------------------------------------------------------------------------------


def palettes() -> Iterator[dict[str, str]]:
    """The colours of light and of dark."""
    for block in re.findall(r":root \{([^}]*--paper[^}]*)\}", STYLE):
        yield dict(re.findall(r"--(\w+): (#\w{6})", block))


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize(
    "palette", [pytest.param(palette, id=name) for name, palette in zip(("light", "dark"), palettes(), strict=True)]
)
def test_every_colour_can_be_read_on_its_ground(palette):
    words_ = {
        name: contrast(palette[name], palette[ground])
        for name in ("ink", "soft", "good", "bad", "warn")
        for ground in ("paper", "panel")
    }
    shapes = {
        name: contrast(colour, palette["paper"]) for name, colour in palette.items() if re.fullmatch(r"c\d", name)
    }
    assert {name: ratio for name, ratio in words_.items() if ratio < 4.5} == {}
    assert {name: ratio for name, ratio in shapes.items() if ratio < 3} == {}
    assert len(shapes) == charts.SERIES


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_the_newest_run_that_measured_is_meant_and_both_files_lie_in_its_record(project):
    runs = project.folder / "runs"
    recorded.again(runs, "20261129-201530-a1b2c3")
    killed = recorded.again(runs, "20261130-000000-ffffff", "killed")
    done = project.run("report")
    assert done.out.split() == [f"{runs}/20261129-201530-a1b2c3/report.{end}" for end in ("html", "md")]
    assert not list(killed.glob("report*"))


def test_several_runs_and_a_name_of_ones_own(project, tmp_path):
    runs = project.folder / "runs"
    first, second = made("healthy", runs), made("dead", runs)
    assert project.run("report", first.name, second.name).out.split()[0] == str(first / "compared.html")
    project.run("report", "last", "--out", str(tmp_path / "own.html"))
    assert {path.name for path in tmp_path.iterdir()} >= {"own.html", "own.md"}


def test_json_is_one_document(project):
    folder = made("dead", project.folder / "runs")
    told = project.run("report", folder.name, "--json").json
    assert told["runs"][0]["gates"][0]["holds"] is False
    assert told["runs"][0]["measured"][0]["measurement"]["acceptance"]["accept_length"] == 1.0


def test_without_what_draws_charts_markdown_is_there_and_html_says_what_to_install(project, tmp_path):
    folder = made("healthy", project.folder / "runs")
    (tmp_path / "without").mkdir()
    (tmp_path / "without/altair.py").write_text("raise ImportError('no altair here')\n")
    without = {"PYTHONPATH": f"{tmp_path / 'without'}:{Path(__file__).parents[2]}"}
    refused = project.run("report", folder.name, env=without)
    assert refused.code == 2
    assert "pip install 'bare-deploy[report]'" in refused.err
    assert not list(folder.glob("report*"))
    assert project.run("report", folder.name, "--out", str(tmp_path / "own.md"), env=without).code == 0
    assert "accept length" in (tmp_path / "own.md").read_text()


def test_a_place_that_cannot_be_written_is_named(project, tmp_path):
    folder = made("up", project.folder / "runs")
    done = project.run("report", folder.name, "--out", str(tmp_path / "nowhere/x.html"))
    assert done.code == 2
    assert "nowhere" in done.err
