import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.events import Event
from deploy.render import _words
from deploy.text.legible import clean, one_line

FOREIGN = st.text(st.characters() | st.sampled_from("\x1b[]\x07\r\n\t\x9b\u202e;0mHJ"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]8;;http://192.0.2.66/\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJm\x07clipboard", "clipboard"),
        ("\x1bP1$r0m\x1b\\device", "device"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("an end\x1b", "an end"),
        ("\x1b]never ended", "never ended"),
        ("bell\x07 nul\x00 back\x08", "bell nul back"),
        ("8 bit \x9b31mred", "8 bit 31mred"),
        ("\u202egnp.exe\u2066", "gnp.exe"),
        ("10%|#\r50%|##\r100%|###\r", "100%|###"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("[red]no markup[/red] :boom:", "[red]no markup[/red] :boom:"),
        ("half a \ud83d", "half a \ufffd"),
        ("重み 🚀", "重み 🚀"),
    ],
)
def test_what_steers_a_terminal_is_taken_out_and_the_words_stay(text, shown):
    assert shown == clean(text)


@given(FOREIGN)
def test_no_text_keeps_a_control_character(text):
    shown = clean(text)
    assert not [char for char in shown if char != "\n" and not char.isprintable() and ord(char) < 0xA0]
    assert "\u202e" not in shown
    shown.encode()  # nothing that a stream would refuse
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-1, "0.0s"), (0, "0.0s"), (3.24, "3.2s"), (59.94, "59.9s"), (59.96, "1m00s"), (341, "5m41s"), (3899.6, "1h05m")],
)
def test_durations_read_like_speech(value, shown):
    assert shown == _words.seconds(value)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({}, ""),
        ({"done": 29, "total": 64, "unit": "shards", "rate": 1.24}, "45%  29/64 shards  1.2/s  28s left"),
        ({"done": 366e6, "total": 1.1e9, "unit": "B", "rate": 406e6}, "33%  366.0 MB of 1.1 GB  406.0 MB/s  2s left"),
        ({"done": 63.9, "total": 64}, "99%"),
        ({"done": 1, "total": 4, "rate": 0.01}, "25%  5m00s left"),
        ({"done": 512, "unit": "B"}, "512 B"),
        ({"done": 3, "total": 0, "unit": "files"}, "3/0 files"),
        ({"done": "***", "total": None, "rate": True}, ""),
        ({"elapsed": 62.0, "left": 250.2}, "for 1m02s  ~4m10s to ready"),
        ({"done": 29, "total": 64, "rate": 1.24, "elapsed": 23.4, "left": 70}, "45%  for 23s  ~1m10s to ready"),
        ({"done": 29, "total": 64, "rate": 1.24, "elapsed": 23.4}, "45%  28s left  for 23s"),
        ({"elapsed": 0.3, "left": 0.4}, ""),
        ({"elapsed": "***", "left": None}, ""),
    ],
)
def test_progress_is_told_as_far_as_it_is_known(facts, shown):
    assert shown == _words.progress(facts)


def test_the_time_left_goes_down_and_the_elapsed_time_up_between_two_events():
    facts = {"elapsed": 10.0, "left": 30.0}
    assert _words.progress(facts, since=20.0) == "for 30s  ~10s to ready"
    assert _words.progress(facts, since=60.0) == "for 1m10s"


@pytest.mark.parametrize(
    ("text", "facts", "shown"),
    [
        ("loading", {"phase": "weights", "behind": ["TP2"]}, "weights: loading (behind: TP2)"),
        ("", {"phase": "weights", "behind": ["TP2", "TP3"]}, "weights: (behind: TP2, TP3)"),
        ("x", {"behind": [f"TP{n}" for n in range(5)]}, "x (behind: TP0, TP1, TP2 and 2 more)"),
        ("x", {"behind": "***"}, "x"),
        ("29 of 64 shards", {"component": "draft", "phase": "weights"}, "draft weights: 29 of 64 shards"),
        ("weights loaded", {"phase": "weights"}, "weights loaded"),
        ("", {"phase": "graphs", "component": None}, "graphs"),
        ("waiting: pid 1", {}, "waiting: pid 1"),
    ],
)
def test_a_step_says_its_phase_once(text, facts, shown):
    assert shown == _words.said(Event("said", text, facts=facts))


def test_evidence_keeps_its_last_lines_and_says_what_is_left_out():
    text = "\n".join(f"line {number}" for number in range(100))
    assert _words.last_lines(text, count=2) == ["(98 lines before)", "line 98", "line 99"]
    assert _words.last_lines("") == []
    assert _words.last_lines("x" * 50, limit=10) == ["x" * 9 + "…"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("LaunchFailed", ["(98 lines before)", "line 98", "line 99"]),
        ("GateFailed", ["line 0", "line 1", "(98 lines more)"]),
    ],
)
def test_of_a_gate_the_first_lines_matter_and_of_a_log_the_last(error, shown):
    facts = {"evidence": "\n".join(f"line {number}" for number in range(100)), "error": error}
    assert _words.evidence_of(Event("failed", facts=facts), count=2) == shown


def test_a_verdict_names_gates_other_measures_and_waivers():
    gate = {"name": "accept_length", "wanted": ">= 1.15", "measured": 1.0, "holds": False}
    missing = {"name": "tok_s", "wanted": ">= 100", "measured": None, "holds": False}
    verdict = {"accept_length": 1.0, "gates": [gate, missing], "waived": ["ckpt"]}
    assert _words.verdict_lines(verdict) == [
        "accept length 1.00, wanted >= 1.15: FAILS",
        "tok/s not measured, wanted >= 100: FAILS",
        "waived: ckpt",
    ]
    assert _words.verdict_lines({"tokens_per_second": 311.2}) == ["tokens per second 311"], "of an earlier version"
    assert _words.verdict_lines({"tok_s": 61.234, "speedup": 2.3}) == ["tok/s 61.23", "speedup 2.30"]


NOISY = {"name": "tok_s@8", "wanted": ">= 0.95 x last good", "state": "within", "holds": None, "measured": 58.3}


@pytest.mark.parametrize(
    ("gate", "shown"),
    [
        (
            {**NOISY, "bar": 59.85, "margin": 2.21, "run": "r1", "why": "too near"},
            "tok/s@8 58.30 ± 2.21, wanted >= 0.95 x last good = 59.85, of run r1: cannot be told: too near",
        ),
        (
            {"name": "ttft_p95", "wanted": "<= 0.5", "state": "holds", "holds": True, "measured": 0.0312, "bar": 0.5},
            "ttft p95 0.031, wanted <= 0.5: holds",
        ),
        (
            {**NOISY, "state": "alone", "holds": True, "why": "no last good run to compare with"},
            "tok/s@8 58.30, wanted >= 0.95 x last good: holds: no last good run to compare with",
        ),
    ],
    ids=["within", "small", "alone"],
)
def test_a_gate_says_its_bar_and_its_noise(gate, shown):
    assert _words.verdict_lines({"gates": [gate]}) == [shown]


def test_a_waived_finding_says_so():
    facts = {"check": "ckpt", "verdict": "FAIL", "what": "the head is random", "waived": True}
    assert _words.finding(Event("finding", facts=facts)) == "FAIL ckpt: the head is random (waived)"


@pytest.mark.parametrize(
    ("hosts", "shown"),
    [
        (["gpu1"], "evidence of gpu1: 12 looks at it, in /p/runs/r1/hosts/gpu1/evidence"),
        (["gpu1", "gpu2"], "evidence of gpu1, gpu2: 12 looks at it, in /p/runs/r1/hosts"),
    ],
)
def test_where_evidence_lies_is_told_once_for_all_hosts(hosts, shown):
    folder = "/p/runs/r1/hosts/{}/evidence"
    events = [Event("evidence", "12 looks at it", host=host, facts={"folder": folder.format(host)}) for host in hosts]
    assert _words.evidence(events) == shown
