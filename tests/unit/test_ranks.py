"""Where a server is whose ranks tell of themselves one by one, in any order, and into one another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy import engines
from deploy.engines._phases import Stage
from tests.starts import BAR, D1, DIST, KV, RANKS, STARTS, SUM, W0, W1, captured, heard, said


@given(st.randoms(use_true_random=False), st.sampled_from(STARTS))
def test_however_ranks_interleave_the_server_only_goes_forward_and_is_ready_at_the_end(random, start):
    version, lines, _ = start
    launcher = [lines[0], *lines[-4:]]
    left = {rank: list(lines[1:-4]) for rank in RANKS[:3]}
    told = [said(launcher[0])]
    while waiting := [rank for rank, texts in left.items() if texts]:
        rank = random.choice(waiting)
        told.append(said(left[rank].pop(0), rank))
    startup, found = heard([*told, *map(said, launcher[1:])], version=version)
    order = [str(stage) for stage in startup.order]
    assert [order.index(stage) for stage in found] == sorted({order.index(stage) for stage in found})
    assert found[-1] == "ready"
    assert startup.standing is not None
    assert startup.standing.behind == ()


def test_the_server_is_where_its_slowest_rank_is_and_says_which_that_is():
    lines = [said(text, rank) for text in (*DIST, W0) for rank in RANKS]
    lines += [said(text, rank) for text in (W1, W0, D1, *KV) for rank in RANKS if rank != "TP2"]
    startup, _ = heard(lines, version="0.5.20")
    assert startup.standing is not None
    assert startup.standing.stage == Stage("target", "weights")
    assert startup.standing.behind == ("TP2",)
    assert startup.standing.text == "KimiK25ForConditionalGeneration loaded, 73 GB"


def test_of_ranks_in_one_phase_those_are_behind_that_have_not_ended_it():
    lines = [said(DIST[0], rank) for rank in RANKS] + [said(DIST[2], rank) for rank in RANKS if rank != "TP5"]
    startup, _ = heard(lines)
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.behind) == ("rendezvous", ("TP5",))


def test_ranks_of_several_dimensions_are_told_apart():
    ranks = [f"DP{dp} PP{pp} TP{tp}" for dp in (0, 1) for pp in (0, 1) for tp in (2, 10)]
    lines = [said(W0, rank) for rank in ranks] + [said(W1, rank) for rank in ranks if not rank.startswith("DP1 PP1")]
    startup, _ = heard(lines)
    assert startup.standing is not None
    assert startup.standing.behind == ("DP1 PP1 TP2", "DP1 PP1 TP10")


def test_a_process_that_starts_others_waits_for_them():
    def process(name: str, message: str) -> str:
        return f"({name} pid=7) INFO 11-30 08:37:23 [core.py:1] {message}"

    begun = [process(f"EngineCore_DP{dp}", "Initializing a V1 LLM engine (v0.32.0) with config") for dp in (0, 1)]
    loading = [
        process(f"Worker_DP{dp}_TP{tp}", f"Starting to load model /srv/m{end}...")
        for dp in (0, 1)
        for tp in (0, 1)
        for end in "x"
    ]
    sized = [process(f"EngineCore_DP{dp}", "GPU KV cache size: 299,520 tokens") for dp in (0, 1)]
    stages = [heard([*begun, *loading, *sized[:told]], "vllm")[1][-1] for told in (0, 1, 2)]
    assert stages == ["target weights", "target weights", "kv cache"]


def test_a_bar_counts_for_the_first_rank_that_is_in_its_phase():
    lines = [said(W0, "TP1"), said(W0, "TP0"), BAR.replace("64/64", "29/64")]
    startup, _ = heard(lines)
    assert startup.standing is not None
    assert (startup.standing.done, startup.standing.total) == (29, 64)


def test_a_bar_of_the_drafts_graphs_counts_where_one_rank_tells_of_them_for_all():
    ready = [said(text, rank) for text in (W0, W1, *captured("target verify CUDA graph")) for rank in RANKS]
    begun = said("Capture draft decode CUDA graph begin. backend=full", "TP0")
    bar = "Capturing batches (bs=8 avail_mem=7.31 GB):  4%|#  | 1/23 [00:12<00:15,  1.17s/it]"
    startup, _ = heard([*ready, begun, bar], version="0.5.20")
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.done, startup.standing.behind) == ("draft graphs", 1, ())


def test_where_one_rank_tells_that_all_are_farther_no_rank_is_behind():
    ended = captured("target verify CUDA graph")
    lines = [said(text, rank) for text in (W0, W1, *ended) for rank in ("TP0", "TP1")][:-1]
    assert heard(lines, version="0.5.20")[0].standing.behind == ("TP1",)  # type: ignore[union-attr]
    begun = said("Capture draft decode CUDA graph begin. backend=full", "TP0")
    startup, _ = heard([*lines, begun], version="0.5.20")
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.behind) == ("draft graphs", ())


def test_what_an_older_version_repeats_for_its_draft_moves_no_rank_back():
    lines = [said(text, rank) for text in (*DIST, W0, W1, *KV) for rank in ("TP0", "TP1")]
    startup, _ = heard([*lines, said(DIST[0], "TP0")], version="0.5.8")
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.behind) == ("target kv cache", ())


def test_of_vllms_workers_the_first_one_speaks_for_all():
    def worker(rank: int, message: str) -> str:
        return f"(Worker_TP{rank} pid=7) INFO 11-30 08:37:23 [core.py:1] {message}"

    lines = [worker(rank, f"world_size=2 rank={rank} local_rank={rank} backend=nccl") for rank in (0, 1)]
    told = ["Starting to load model /srv/m...", "Loading drafter model...", "Available KV cache memory: 9.13 GiB"]
    startup, found = heard([*lines, *(worker(0, text) for text in told)], "vllm")
    assert found == ["starting", "rendezvous", "target weights", "draft weights", "kv cache"]
    assert startup.standing is not None
    assert startup.standing.behind == ()


def test_the_stages_of_a_pipeline_are_not_in_step():
    ready = [said(W0, f"PP{pp} TP{tp}") for pp in (0, 1) for tp in (0, 1)]
    startup, _ = heard([*ready, said(SUM, "PP0 TP0")])
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.behind) == ("target weights", ())
    assert heard([*ready, said(SUM, "PP0 TP0"), said(SUM, "PP1 TP0")])[1][-1] == "scheduler"


def test_two_ranks_that_wrote_into_one_line_are_both_heard():
    whole = said(W1, "TP0") + said(W0, "TP1") + said(W1, "TP1")
    assert [mark.rank for mark in engines.load("sglang").marks(whole)] == ["TP0", "TP1", "TP1"]
    after_a_bar = BAR.replace("64/64", "63/64") + said(W1, "TP0")
    assert [(mark.rank, mark.edge) for mark in engines.load("sglang").marks(after_a_bar)] == [("", ""), ("TP0", "end")]
    torn = "[2026-11-29 20:31:30 TP0] " + said(W0, "TP1") + W0  # each began before the other had ended
    assert [mark.rank for mark in engines.load("sglang").marks(torn)] == ["TP1"]
