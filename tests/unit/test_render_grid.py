import io
import json
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from deploy import record
from deploy.events import Event
from deploy.render import State, fold
from deploy.render._ending import ending
from deploy.render._grid import Grid
from deploy.render._state import left

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"


def state_of(name, seconds=1e9):
    lines = (EVENTS / name).read_text(encoding="utf-8").split("\n")[:-1]
    events = [record.parse(line, name) for line in lines]
    return reduce(fold, (event for event in events if event.at - events[0].at <= seconds), State())


def drawn(*parts, width=80):
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, markup=False, highlight=False).print(*parts)
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


LOADING = """\
up kimi-eagle3 on gpu1                             20261129-201530-a1b2c3  56.0s
nothing runs: launching
✓  preflight    0.8s  14 checks hold, 1 warns
✓  push         3.2s  1.1 GB sent, 12 files, sha256 equal
-  prepare            no prepare hooks
✓  stop         0.2s  nothing was running
✓  free         0.1s  free after 0 s
✓  launch       0.4s  pid 48213, port 8000
⠇  wait        50.9s  target weights: 40 of 64 shards  62%  28s left  ━━━━━━────
·  health
·  smoke
·  bench
·  gate
·  ready
[2026-11-29 20:16:40 TP0] Loading safetensors checkpoint shards: 62% Completed …
"""

FLEET_60 = """\
up kimi-eagle3 on 16 hosts     20261129-203640-f1ee70  40.0s
nothing runs: launching
gpu1   ✓✓✓-✓✓✓⠋·····  wait      19.9s  62%  13s left  targe…
gpu2   ✓✓✓-✓✓✓⠋·····  wait      19.9s  62%  13s left  targe…
gpu3   ✓✓✓-✓✓✓✗·····  wait      17.8s  the server died whil…
"""

GATE_FAILED = """\
FAIL ckpt: the output head is random (waived)
  → train it, or waive=[ckpt]
╭─ localhost · gate · failed ──────────────────────────────╮
│ accept length 1.00 does not hold >= 1.15: not one        │
│ drafted token is accepted                                │
│                                                          │
│   4 prompts, 256 tokens generated, 256 verify steps      │
│   768 tokens drafted, 0 accepted                         │
│                                                          │
│ → serve another draft: deploy restart --ckpt PATH        │
│   or lower the floor: gates.accept_length='>= 1.0'       │
╰──────────────────────────────────────────────────────────╯
✗ local serves on localhost:30000, but a gate fails  exit 9,
3.7s
  accept length 1.00, wanted >= 1.15: FAILS
  tokens per second 311
  waived: ckpt
"""


def test_one_host_shows_its_steps_one_under_another():
    state = state_of("up.jsonl", 56)
    assert drawn(Grid(state, state.started + 56)) == LOADING


def test_a_start_shows_its_elapsed_time_and_the_time_left_which_go_on_while_nothing_is_said():
    facts = {"phase": "graphs", "component": "target", "elapsed": 30.0, "left": 90.0, "behind": ["TP3"]}
    events = [
        Event("run_started", at=1000.0, facts={"hosts": ["gpu1"], "recipe": [["wait", "each", ""]]}),
        Event("step_started", host="gpu1", step="wait", at=1000.0),
        Event("said", "capturing", host="gpu1", step="wait", at=1010.0, facts=facts),
    ]
    state = reduce(fold, events, State())
    told = [drawn(Grid(state, 1010.0 + later), width=120) for later in (0, 60, 600)]
    assert "target graphs: capturing (behind: TP3)  for 30s  ~1m30s to ready" in told[0]
    assert "for 1m30s  ~30s to ready" in told[1]
    assert "for 10m30s" in told[2]
    assert "to ready" not in told[2], "longer than it ever took"
    assert "for 30s" in drawn(Grid(left(state), 2000.0), width=120), "where it was left, no time goes on"


def test_many_hosts_show_a_sign_for_each_step():
    state = state_of("fleet.jsonl", 40)
    assert drawn(Grid(state, state.started + 40), width=60).startswith(FLEET_60)


def test_a_wide_terminal_has_a_column_for_each_step():
    state = state_of("fleet.jsonl", 40)
    lines = drawn(Grid(state, state.started + 40), width=200).splitlines()
    assert lines[2].split() == ["host", *state.steps]
    words = "gpu3 ✓ 0.1s ✓ 0.8s ✓ 9.4s - ✓ 2.1s ✓ 1.2s ✓ 0.4s ✗ 17.8s · · · · · the server died while loading: exit 1"
    assert lines[5].split() == words.split()
    assert lines[11].split()[:3] == ["gpu9", "✗", "·"]


def test_a_failure_is_told_in_a_box_with_cause_evidence_and_remedy():
    assert drawn(ending(state_of("gate-failed.jsonl")), width=60) == GATE_FAILED


def test_every_failed_host_is_named_and_equal_failures_share_a_box():
    state = state_of("fleet.jsonl")
    boxes = [line for line in drawn(ending(state)).splitlines() if line.startswith("╭")]
    assert [box.split("─")[1] for box in boxes] == [" gpu9 · failed ", " gpu3 · wait · failed "]
    again = [Event("failed", "it hangs", host, "free", {"remedy": "wait"}, at=state.at) for host in ("gpu1", "gpu2")]
    boxes = [line for line in drawn(ending(reduce(fold, again, State()))).splitlines() if line.startswith("╭")]
    assert [box.split("─")[1] for box in boxes] == [" gpu1, gpu2 · free · failed "]


def test_a_run_that_was_cut_off_shows_how_far_it_came():
    state = left(state_of("killed.jsonl"))
    assert "…  wait        27.6s  target weights: 20 of 64 shards  31%" in drawn(Grid(state, state.at + 1000))


def test_a_crash_is_boxed_as_a_bug():
    state = fold(State(), Event("crashed", "Traceback\n[red]KeyError[/red]: 1"))
    assert "─ a bug in deploy ─" in drawn(ending(state))
    assert "│ [red]KeyError[/red]: 1 " in drawn(ending(state))


@pytest.mark.parametrize("name", ["up.jsonl", "gate-failed.jsonl", "fleet.jsonl", "killed.jsonl"])
@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(name, width):
    state = state_of(name)
    for seconds in (0, 3, 30, 1e9):
        part = state_of(name, seconds)
        assert max(map(cell_len, drawn(Grid(part, part.at), ending(part), width=width).splitlines())) <= width
    assert state.rows


WORDS = st.text(st.characters() | st.sampled_from("\x1b[]\r\n\t\x07重🚀"), max_size=80)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("phase", "unit", "log", "evidence", "remedy", "what", "check"), WORDS),
        **dict.fromkeys(("done", "total", "rate", "seconds"), st.integers(-5, 10**12) | st.just("***")),
    },
)
KINDS = [
    "host_connected",
    "decided",
    "step_started",
    "said",
    "finding",
    "step_ended",
    "step_skipped",
    "failed",
    "noted",
]
CHANGES = st.builds(
    Event,
    kind=st.sampled_from([*KINDS, "noted", "crashed", "run_ended"]),
    text=WORDS,
    host=st.sampled_from(["", "a", "b"]) | WORDS,
    step=st.sampled_from(["", "push", "wait"]) | WORDS,
    facts=FACTS,
    at=st.floats(1e9, 2e9),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHANGES, max_size=12), st.sampled_from([30, 60, 200]))
def test_any_events_in_any_order_can_be_shown(events, width):
    state = reduce(fold, events, State())
    text = drawn(Grid(state, state.at), ending(left(state)), width=width)
    assert not [char for char in text if char != "\n" and ord(char) < 32]


def test_steps_that_were_not_foreseen_stand_where_they_were_walked():
    recipe = [[step, "each", ""] for step in ("match", "swap", "wait")]
    events = [Event("run_started", facts={"hosts": ["a"], "recipe": recipe})]
    events += [Event("step_skipped", host="a", step="swap")]
    events += [Event("step_started", host="a", step=step) for step in ("match", "stop", "launch", "wait")]
    assert reduce(fold, events, State()).steps == ("match", "stop", "launch", "swap", "wait")


def test_folding_is_pure():
    before = state_of("up.jsonl", 30)
    kept = json.dumps(before, default=vars, sort_keys=True)
    fold(before, Event("step_ended", "ready", "gpu1", "wait", {"seconds": 1}))
    assert kept == json.dumps(before, default=vars, sort_keys=True)
