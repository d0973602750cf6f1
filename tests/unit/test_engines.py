"""Engines put a profile into a server's words, and read its counters; answers of llama.cpp and vLLM are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import engines, registry
from deploy.engines import Command, Counters, Request, Totals, _chat, _flags
from deploy.errors import ConfigError
from deploy.profile import Profile
from deploy.text.words import HomePath, RunPath

ANSWERS = Path(__file__).parents[1] / "fixtures" / "answers"
DRAFT = RunPath("draft")
EAGLE = {"draft": {"path": "d"}, "speculative": {"algorithm": "EAGLE3"}}


def profile(engine: str | dict[str, Any], **fields: Any) -> Profile:
    spec = engine if isinstance(engine, dict) else {"name": engine}
    return Profile.model_validate({"name": "p", "engine": spec, "hosts": "all", "model": {"path": "/m"}, **fields})


def command(wish: Profile, draft: RunPath | None = None, rank: int = 0) -> Command:
    return engines.load(wish.engine.name).command(
        Request(wish, wish.engine.python, draft, rank, "192.0.2.1", f"192.0.2.{rank + 1}")
    )


def pairs(said: Command) -> dict[str, Any]:
    """{flag: the word after it, or True}; a flag given twice is a failure."""
    found: dict[str, Any] = {}
    for at, word in enumerate(said.argv):
        if isinstance(word, str) and word.startswith("--"):
            assert word not in found, f"{word} stands there twice"
            after = said.argv[at + 1] if at + 1 < len(said.argv) else "--"
            found[word] = True if isinstance(after, str) and after.startswith("--") else after
    return found


# ---- flags -------------------------------------------------------------------------------------------------------

VALUES: list[tuple[Any, tuple[Any, ...]]] = [
    (True, ("--flag",)),
    (False, ()),
    (None, ()),
    (0, ("--flag", "0")),
    (1, ("--flag", "1")),
    (0.88, ("--flag", "0.88")),
    ("", ("--flag", "")),
    ("a b", ("--flag", "a b")),
    ("-1", ("--flag", "-1")),
    ([], ()),
    (["a", 2, True], ("--flag", "a", "2", "true")),
    (DRAFT, ("--flag", DRAFT)),
    (HomePath("m"), ("--flag", HomePath("m"))),
]


@pytest.mark.parametrize(("value", "words"), VALUES)
def test_a_value_becomes_words(value, words):
    assert _flags.words({}, {"flag": value}) == words


LAYERS: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = [
    ([{"a": 1}, {"a": 2}], ("--a", "2")),
    ([{"a": 1}, {"a": False}], ()),
    ([{"a": 1}, {"a": None}], ()),
    ([{"a-b": 1}, {"a_b": 2}], ("--a-b", "2")),
    ([{"a": 1}, {"--a": 2}], ("--a", "2")),
    ([{"a": 1, "b": 2}, {"short": 3}], ("--a", "3", "--b", "2")),
    ([{}, {"short": True, "c": 1}], ("--a", "--c", "1")),
    ([{"a-b.c_d": 1}, {"a_b.c_d": 2, "a_b.c-d": 3}], ("--a-b.c_d", "2", "--a-b.c-d", "3")),
]


@pytest.mark.parametrize(("layers", "words"), LAYERS)
def test_the_last_word_on_a_flag_counts_however_it_is_spelled(layers, words):
    assert _flags.words(_flags.spelled({"a": "short other"}), *layers) == words


# the flags that the engine sets, as SGLang 0.5.23's own parser spells them, and the prefixes that argparse takes
SGLANG = [
    ("tp", "--tp-size"),
    ("tensor-parallel-size", "--tp-size"),
    ("tp_size", "--tp-size"),
    ("dp", "--dp-size"),
    ("data-parallel-size", "--dp-size"),
    ("ep", "--ep-size"),
    ("expert-parallel-size", "--ep-size"),
    ("pp", "--pp-size"),
    ("pipeline-parallel-size", "--pp-size"),
    ("model", "--model-path"),
    ("nccl-init-addr", "--dist-init-addr"),
    ("speculative-draft-model", "--speculative-draft-model-path"),
    ("port", "--port"),
    ("host", "--host"),
    ("speculative-num-steps", "--speculative-num-steps"),
]
LLAMA = [
    ("gpu-layers", "--n-gpu-layers"),
    ("ngl", "--n-gpu-layers"),
    ("m", "--model"),
    ("md", "--model-draft"),
    ("spec-draft-model", "--model-draft"),
    ("draft", "--spec-draft-n-max"),
    ("draft-n", "--spec-draft-n-max"),
    ("a", "--alias"),
    ("host", "--host"),
]


VLLM = [
    ("tp", "--tensor-parallel-size"),
    ("tensor_parallel_size", "--tensor-parallel-size"),
    ("pp", "--pipeline-parallel-size"),
    ("dp", "--data-parallel-size"),
    ("ep", "--enable-expert-parallel"),
    ("master-port", "--master-port"),
    ("host", "--host"),
    ("spec-method", "--speculative-config.method"),
    ("speculative_config.num_speculative_tokens", "--speculative-config.num_speculative_tokens"),
]


@pytest.mark.parametrize(("given", "flag"), VLLM)
def test_what_the_profile_says_wins_over_what_vllm_is_given_by_us(given, flag):
    wish = profile("vllm", parallel={"tp": 4, "dp": 2, "ep": 8, "pp": 2}, nodes=2, **EAGLE)
    ours = pairs(command(wish, DRAFT))
    theirs = pairs(command(wish.model_copy(update={"args": {given: "x"}}), DRAFT))
    assert flag in ours
    assert theirs == {**ours, flag: "x"}


@pytest.mark.parametrize(("given", "flag"), SGLANG)
def test_what_the_profile_says_wins_over_what_sglang_is_given_by_us(given, flag):
    wish = profile("sglang", parallel={"tp": 4, "dp": 2, "ep": 2, "pp": 2}, nodes=2, **EAGLE)
    ours = pairs(command(wish, DRAFT))
    theirs = pairs(command(wish.model_copy(update={"args": {given: "x"}}), DRAFT))
    assert flag in ours
    assert theirs == {**ours, flag: "x"}


@pytest.mark.parametrize(("given", "flag"), LLAMA)
def test_what_the_profile_says_wins_over_what_llamacpp_is_given_by_us(given, flag):
    wish = profile("llamacpp", gpus=1, **EAGLE)
    ours = pairs(command(wish, DRAFT))
    theirs = pairs(command(wish.model_copy(update={"args": {given: "x"}}), DRAFT))
    assert flag in ours
    assert theirs == {**ours, flag: "x"}


def test_a_flag_of_ours_can_be_taken_away():
    assert "--metrics" not in pairs(command(profile("llamacpp", args={"metrics": False})))


def test_an_alias_is_only_one_of_flags_that_are_set_by_us():
    assert pairs(command(profile("sglang", args={"tpx": 1})))["--tpx"] == "1"


# ---- engines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("deploy.engines"))
def test_an_engine_has_all_that_the_protocol_names(name):
    engine = engines.load(name)
    for part in [*engines.Engine.__annotations__, *(n for n in vars(engines.Engine) if n[0] != "_")]:
        assert hasattr(engine, part), part


def test_an_unknown_engine_is_told_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        engines.load("sglangg")
    assert caught.value.remedy == "did you mean 'sglang'?"


def test_one_gpu_needs_no_parallel_flags_and_no_draft_no_speculative_ones():
    said = pairs(command(profile("sglang")))
    assert not [flag for flag in said if "size" in flag or "speculative" in flag or "node" in flag]


def test_vllm_takes_its_speculation_in_parts_so_that_the_host_can_place_the_draft():
    said = pairs(
        command(profile("vllm", draft={"path": "d"}, speculative={"algorithm": "EAGLE3", "num_steps": 5}), DRAFT)
    )
    assert {flag: word for flag, word in said.items() if "spec" in flag} == {
        "--speculative-config.method": "eagle3",
        "--speculative-config.model": DRAFT,
        "--speculative-config.num_speculative_tokens": "5",
    }
    assert not [flag for flag in pairs(command(profile("vllm"))) if "spec" in flag or "parallel" in flag]


def test_an_algorithm_that_vllm_does_not_have_is_refused():
    with pytest.raises(ConfigError) as caught:
        command(profile("vllm", draft={"path": "d"}, speculative={"algorithm": "EAGLE4"}), DRAFT)
    assert "EAGLE3" in caught.value.remedy


def test_vllm_over_two_hosts_serves_at_the_head_alone():
    wish = profile("vllm", nodes=2, parallel={"tp": 16})
    head, other = command(wish), command(wish, rank=1)
    assert {name: pairs(head)[f"--{name}"] for name in ("nnodes", "node-rank", "master-addr", "master-port")} == {
        "nnodes": "2",
        "node-rank": "0",
        "master-addr": "192.0.2.1",
        "master-port": "31000",
    }
    assert "--headless" not in pairs(head)
    assert pairs(other) == {**pairs(head), "--node-rank": "1", "--headless": True}
    assert (head.env["VLLM_HOST_IP"], other.env["VLLM_HOST_IP"]) == ("192.0.2.1", "192.0.2.2")
    assert "VLLM_HOST_IP" not in command(profile("vllm")).env


@pytest.mark.parametrize(("algorithm", "spec"), [("EAGLE3", "draft-eagle3"), ("STANDALONE", "draft-simple")])
def test_llamacpp_has_its_own_names_for_algorithms(algorithm, spec):
    wish = profile("llamacpp", draft={"path": "d"}, speculative={"algorithm": algorithm})
    assert pairs(command(wish, DRAFT))["--spec-type"] == spec


def test_an_algorithm_that_llamacpp_does_not_have_is_refused():
    with pytest.raises(ConfigError) as caught:
        command(profile("llamacpp", draft={"path": "d"}, speculative={"algorithm": "NGRAM"}), DRAFT)
    assert "EAGLE3" in caught.value.remedy


def test_a_binary_is_started_as_it_is_and_without_one_our_launcher_goes_along():
    assert command(profile({"name": "llamacpp", "binary": "~/bin/llama-server"})).argv[0] == HomePath(
        "bin/llama-server"
    )
    ours = command(profile("llamacpp"))
    assert ours.argv[:2] == ("python3", RunPath("llama_server.py"))
    assert "xllamacpp" in ours.files["llama_server.py"]


PLACES: list[tuple[str, Any]] = [
    ("{port}", "30000"),
    ("--port={port},{rank}", "--port=30000,1"),
    ("{name}", "the {rank} name"),  # what is put in is not looked at again
    ("{model}", "/m"),
    ("{draft}", DRAFT),
    ('{"json": "{unknown}"}', '{"json": "{unknown}"}'),
]


@pytest.mark.parametrize(("word", "becomes"), PLACES)
def test_places_in_a_plain_command_are_filled(word, becomes):
    wish = profile("command", args={"argv": ["serve", word]}, **EAGLE)
    wish = wish.model_copy(update={"model": wish.model.model_copy(update={"name": "the {rank} name"})})
    assert command(wish, DRAFT, rank=1).argv == ("serve", becomes)


BAD = [
    ({}, "needs its command line"),
    ({"argv": "serve"}, "needs its command line"),
    ({"argv": []}, "needs its command line"),
    ({"argv": ["serve"], "tp": 8}, r"no flags of its own: args\.tp"),
    ({"argv": ["serve", "{draft}"]}, r"names \{draft\}, but the profile has none"),
    ({"argv": ["serve", "--draft={draft}"]}, "a word of its own"),
]


@pytest.mark.parametrize(("args", "what"), BAD)
def test_a_plain_command_that_cannot_be_one_is_refused(args, what):
    with pytest.raises(ConfigError, match=what):
        command(profile("command", args=args))


# ---- secrets -----------------------------------------------------------------------------------------------------

VALUE = "two words\n\"quoted\" 'x' \\ $HOME é #"


def test_a_secret_flag_reaches_sglang_by_its_config_file():
    import yaml

    sglang = engines.load("sglang")
    assert sglang.secret_argv({"api-key": "KEY"}) == ("--config", RunPath("secrets.yaml"))
    name, content = sglang.secret_file({"api-key": VALUE, "admin-api-key": "x"})
    assert (name, yaml.safe_load(content)) == ("secrets.yaml", {"api-key": VALUE, "admin-api-key": "x"})
    assert sglang.secret_argv({}) == ()


def test_a_secret_flag_reaches_llamacpp_by_its_key_file_and_no_other_is_taken():
    llamacpp = engines.load("llamacpp")
    assert llamacpp.secret_argv({"api-key": "KEY"}) == ("--api-key-file", RunPath("secrets"))
    assert llamacpp.secret_file({"api-key": "x"}) == ("secrets", "x\n")
    with pytest.raises(ConfigError, match="only `api-key`"):
        llamacpp.secret_argv({"ssl-key": "KEY"})


def test_the_api_key_reaches_vllm_by_its_environment_and_no_other_flag_is_taken():
    vllm = engines.load("vllm")
    assert vllm.SECRETS == {"api-key": "VLLM_API_KEY"}
    assert vllm.secret_argv({}) == ()
    with pytest.raises(ConfigError, match="only `api-key`") as caught:
        vllm.secret_argv({"hf-token": "TOKEN"})
    assert "secrets: [HF_TOKEN]" in caught.value.remedy


def test_a_plain_command_takes_secrets_only_as_environment():
    assert engines.load("command").secret_argv({}) == ()
    with pytest.raises(ConfigError, match="only as environment"):
        engines.load("command").secret_argv({"api-key": "KEY"})


# ---- what is asked, and what comes back --------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("deploy.engines"))
def test_every_question_is_at_temperature_zero(name):
    engine = engines.load(name)
    chat = engine.chat("m", "hello", 7)
    assert chat.body["messages"] == [{"role": "user", "content": "hello"}]
    assert (chat.path, chat.body["model"], chat.body["max_tokens"], chat.body["temperature"]) == (
        "/v1/chat/completions", "m", 7, 0,
    )  # fmt: skip
    for measured in engine.measured("m", "hello", 7):
        assert measured.body.get("sampling_params", measured.body)["temperature"] == 0


def test_sglang_is_measured_by_chat_and_where_that_has_no_counters_by_its_own_route():
    chat, native = engines.load("sglang").measured("m", "hello", 7)
    assert (chat.path, chat.body["return_meta_info"]) == ("/v1/chat/completions", True)
    assert (native.path, native.body["text"]) == ("/generate", "hello")


def test_llamacpp_is_measured_without_its_prompt_cache():
    (question,) = engines.load("llamacpp").measured("m", "hello", 7)
    assert question.body["cache_prompt"] is False


NO_WORD = ("", "")
REPLIES: list[tuple[dict[str, Any], tuple[str, str]]] = [
    ({"choices": [{"message": {"content": "4"}}]}, ("", "4")),
    ({"choices": [{"message": {"content": None, "reasoning_content": "so 4"}}]}, ("so 4", "")),
    ({"choices": [{"message": {"content": "4", "reasoning_content": "hm"}}]}, ("hm", "4")),
    ({"choices": [{"message": {"content": "4", "reasoning": "hm"}}]}, ("hm", "4")),
    ({"choices": [{"message": None}]}, NO_WORD),
    ({"choices": []}, NO_WORD),
    ({}, NO_WORD),
    ({"choices": "abc"}, NO_WORD),
    ({"choices": [None]}, NO_WORD),
    ({"choices": {"a": 1}}, NO_WORD),
    ({"choices": [{"message": "a word"}]}, NO_WORD),
    ({"choices": [{"message": {"content": 4}}]}, NO_WORD),
    ({"choices": [{"message": {"content": {"text": "4"}}}]}, NO_WORD),
    (
        {"choices": [{"message": {"content": [{"type": "text", "text": "it "}, {"type": "text", "text": "is 4"}]}}]},
        ("", "it is 4"),
    ),
    ({"choices": [{"message": {"content": [None, 4, {"text": None}, {"type": "image"}]}}]}, NO_WORD),
]


@pytest.mark.parametrize(("answer", "message"), REPLIES)
def test_what_was_said_is_found(answer, message):
    assert _chat.message(answer) == message


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ANSWERS / f"{name}.json").read_text())
    return found


RECORDED = [
    ("llamacpp-good", Counters(40, 11, 29, 29), Totals(40, 10, 29, 29)),
    ("llamacpp-dead", Counters(40, 40, 111, 0), Totals(40, 38, 111, 0)),
    ("llamacpp-plain", Counters(40, None, None, None), Totals(40, 0, 0, 0)),
    ("vllm-good", Counters(64, 18, 54, 48), Totals(64, 18, 54, 48, requests=1)),
    ("vllm-dead", Counters(64, None, None, None), Totals(64, 63, 189, 0, requests=1)),  # it was not told to tell
]


@pytest.mark.parametrize(("name", "counters", "totals"), RECORDED)
def test_counters_are_read_from_an_answer_and_from_metrics(name, counters, totals):
    engine = engines.load(name.partition("-")[0])
    assert engine.counters(recorded(name)) == counters
    assert engine.totals((ANSWERS / f"{name}.metrics").read_text()) == totals
    assert any(_chat.message(recorded(name)))


OLD = {"spec_verify_ct": 20, "spec_accept_token_num": 41, "spec_draft_token_num": 60}  # 0.5.8 to 0.5.11
NEW = {"spec_verify_ct": 20, "spec_num_correct_drafts": 41, "spec_num_proposed_drafts": 60}  # since 0.5.12
SGLANG_META = [
    ({**OLD, "completion_tokens": 61}, Counters(61, 20, 60, 41)),
    ({**NEW, "completion_tokens": 61}, Counters(61, 20, 60, 41)),
    ({**NEW, "spec_num_correct_drafts": 0, "completion_tokens": 20}, Counters(20, 20, 60, 0)),
    ({"completion_tokens": 5}, Counters(5, None, None, None)),  # nothing was verified
    ({"spec_verify_ct": 3, "completion_tokens": 5}, Counters(5, 3, None, None)),
]


@pytest.mark.parametrize(("meta", "counters"), SGLANG_META)
def test_sglangs_counters_are_read_under_both_generations_of_names(meta, counters):
    assert engines.load("sglang").counters({"text": "x", "meta_info": meta}) == counters
    assert engines.load("sglang").counters({"choices": [{"message": {}, "meta_info": meta}]}) == counters


NO_COUNTS = [None, True, -1, 1.5, "7", [7], {"n": 7}, float("nan"), 10**400]


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_what_is_no_count_is_not_told(value):
    sglang, llamacpp, command, vllm = (
        engines.load(name).counters for name in ("sglang", "llamacpp", "command", "vllm")
    )
    assert sglang({"meta_info": {"completion_tokens": value}}) is None
    assert llamacpp({"timings": {"predicted_n": value}}) is None
    assert command({"usage": {"completion_tokens": value}}) is None
    spec = {"spec_verify_ct": value, "spec_num_correct_drafts": value, "spec_num_proposed_drafts": value}
    assert sglang({"meta_info": {"completion_tokens": 5, **spec}}) == Counters(5, None, None, None)
    assert vllm({"usage": {"completion_tokens": value}}) is None
    told = {"num_spec_steps": value, "num_draft_tokens": value, "num_accepted_draft_tokens": value}
    answer = {"usage": {"completion_tokens": 5}, "metrics": {"speculative_decoding": told}}
    assert vllm(answer) == Counters(5, None, None, None)
    drafts = {"draft_n": value, "draft_n_accepted": value}
    assert llamacpp({"timings": {"predicted_n": 5, **drafts}}) == Counters(5, None, None, None)


def test_more_drafts_than_tokens_are_no_steps():
    timings = {"predicted_n": 5, "draft_n": 9, "draft_n_accepted": 9}
    assert engines.load("llamacpp").counters({"timings": timings}) == Counters(5, None, 9, 9)


NOTHING: list[tuple[str, dict[str, Any]]] = [
    ("sglang", {}),
    ("sglang", {"meta_info": {}}),
    ("sglang", {"choices": []}),
    ("sglang", {"choices": [{"message": {"content": "x"}, "meta_info": None}]}),
    ("sglang", {"usage": {"completion_tokens": 3}}),
    ("llamacpp", {}),
    ("llamacpp", {"timings": {"prompt_n": 3}}),
    ("command", {}),
    ("command", {"usage": None}),
    ("command", {"usage": [3]}),
    ("vllm", {}),
    ("vllm", {"metrics": {"speculative_decoding": {"num_spec_steps": 3}}}),
    ("sglang", {"meta_info": "x", "choices": "abc"}),
    ("sglang", {"choices": [None]}),
    ("llamacpp", {"timings": "x"}),
]


@pytest.mark.parametrize(("name", "answer"), NOTHING)
def test_an_answer_without_counters_has_none(name, answer):
    assert engines.load(name).counters(answer) is None


def test_a_plain_command_counts_tokens_alone():
    assert engines.load("command").counters({"usage": {"completion_tokens": 3}}) == Counters(3, None, None, None)


METRICS = [
    "llamacpp:spec_decode_num_accepted_tokens_total 1.2.3e\n",
    "llamacpp:spec_decode_num_accepted_tokens_total 1e999\n",
    "llamacpp:spec_decode_num_accepted_tokens_total e+\n",
    "",
    "# HELP llamacpp:x y\n",
    "llamacpp:tokens_predicted_total x\n",
    'vllm:generation_tokens_total{engine="0"} NaN\n',
    "sglang:generation_tokens_total 1e999\n",
    'sglang:spec_accept_length{tp_rank="0"} 2.5\n',  # a gauge
    'vllm:spec_decode_num_accepted_tokens_total{engine="0"} NaN\n',
    "not metrics at all",
]


@pytest.mark.parametrize("metrics", METRICS)
@pytest.mark.parametrize("name", registry.names("deploy.engines"))
def test_metrics_that_count_nothing_are_none(name, metrics):
    assert engines.load(name).totals(metrics) is None


STREAMED: list[tuple[dict[str, Any], Counters]] = [  # the last chunks of SGLang 0.5.23, one laid over the other
    ({"spec_verify_ct": 11, "spec_num_correct_drafts": 31, "spec_num_proposed_drafts": 33}, Counters(40, 11, 33, 31)),
    ({"spec_verify_ct": 0, "spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 0}, Counters(40, 0, 0, 0)),
    ({}, Counters(40, None, None, None)),
]


@pytest.mark.parametrize(("details", "counters"), STREAMED)
def test_sglangs_counters_are_read_from_a_stream_too(details, counters):
    last = {"object": "chat.completion.chunk", "choices": [], "usage": {"completion_tokens": 40}}
    told = {**last, "sglext": {"spec_tokens_details": details}} if details else last
    assert engines.load("sglang").counters(told) == counters


def test_large_counters_are_read_as_prometheus_writes_them():
    text = "llamacpp:tokens_predicted_total 1.5e+06\nllamacpp:spec_decode_num_accepted_tokens_total 1e+06\n"
    assert engines.load("llamacpp").totals(text) == Totals(1_500_000, None, None, 1_000_000)


def test_vllms_totals_are_summed_over_its_engines_and_over_how_requests_ended():
    text = "".join(
        f'vllm:{name}_total{{engine="{engine}",finished_reason="{reason}",model_name="a}} 7"}} {value}\n'
        for name, value in (("spec_decode_num_accepted_tokens", "1.5e+06"), ("request_success", "2.0"))
        for engine in (0, 1)
        for reason in ("stop", "length")
    )
    assert engines.load("vllm").totals(text) == Totals(0, None, None, 6_000_000, requests=8)


READY = [
    ("sglang", "[2026-11-29 10:00:00] The server is fired up and ready to roll!", True),
    ("sglang", "Uvicorn running on http://127.0.0.1:30000", False),
    ("llamacpp", "main: server is listening on http://127.0.0.1:30080", True),
    ("llamacpp", "load_model: loading model '/m.gguf'", False),
    ("vllm", "INFO:     Application startup complete.", True),
    ("vllm", "(APIServer pid=1) INFO 11-30 08:37:33 [entry.py:140] Starting vLLM server on http://127.0.0.1:1", False),
]


@pytest.mark.parametrize(("name", "line", "is_ready"), READY)
def test_the_ready_line_is_known(name, line, is_ready):
    pattern = engines.load(name).READY
    assert pattern
    assert bool(pattern.search(line)) is is_ready
