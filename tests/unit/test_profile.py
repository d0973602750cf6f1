"""The profile's model: what stands where nothing is said, what contradicts itself, and the grammar of gates."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from deploy import environments, registry
from deploy.config import gates, size, validation
from deploy.config.gates import Gate
from deploy.config.schema import LABEL
from deploy.errors import ConfigError
from deploy.inventory import Host
from deploy.profile import Hook, Profile
from deploy.settings import editor

LEAST = {"name": "x", "engine": {"name": "sglang"}, "hosts": "all", "model": {"path": "/m"}}
DRAFTED = {**LEAST, "draft": {"path": "/d"}, "speculative": {}}


def make(tree: dict[str, Any]) -> Profile:
    return validation.validate(Profile, tree, lambda _: "here")


def test_what_is_not_said_has_the_documented_default():
    profile = make(LEAST)
    assert (profile.nodes, profile.gpus, profile.port, profile.parallel.tp) == (1, None, 30000, 1)
    assert (profile.ready.deadline, profile.ready.stall, profile.ready.patience) == (1200, 300, 120)
    assert (profile.smoke.ask, profile.smoke.expect) == ("Hello, what is 2+2?", "4|four")
    assert (profile.on_failure, profile.evict, profile.waive, profile.gates) == ("leave", False, [], {})
    assert profile.nccl.variables() == {}


def test_acceptance_is_judged_where_there_is_a_draft():
    assert make(DRAFTED).gates == {"accept_length": Gate(">=", 1.15)}
    assert make({**DRAFTED, "gates": {}}).gates == {}


def test_nothing_in_a_profile_changes_after_it_was_loaded():
    with pytest.raises(ValidationError, match="frozen"):
        make(LEAST).port = 1


@pytest.mark.parametrize("tree", [LEAST, DRAFTED, {**DRAFTED, "gates": {}, "args": {"a": 1, "b": [True, "x", 1.5]}}])
def test_a_profile_survives_being_written_as_json(tree):
    profile = make(tree)
    assert Profile.model_validate(json.loads(json.dumps(profile.model_dump(mode="json")))) == profile


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"draft": {"path": "/d"}}, "draft: needs `speculative`"),
        ({"speculative": {}}, "speculative.algorithm: EAGLE3 needs a draft"),
        ({"speculative": {"algorithm": "NGRAM"}}, None),
        ({"draft": {"path": "/d"}, "speculative": {"algorithm": "EAGLE"}}, None),  # a check warns of it
        ({"gates": {"accept_length": ">= 2"}}, "gates.accept_length: needs `speculative`"),
        ({"gates": {"tok_s": ">= 2"}}, None),
        ({"gates": {"tok_s": ">= 0.95 x last good"}}, None),
        ({"gates": {"tok_s": ">= 1.3 x baseline"}}, "gates.tok_s: needs `speculative`"),
        ({"gates": {"speedup": ">= 1.3"}}, "gates.speedup: needs `speculative`"),
        ({"gates": {"differences": "<= 0"}}, "gates.differences: needs `speculative`"),
        ({"gates": {"tok_s@8": ">= 2"}, "bench": {"concurrency": [1, 8]}}, None),
        ({"gates": {"tok_s@8": ">= 2"}}, "gates.tok_s@8: is not measured: bench.concurrency is 1"),
        ({"gates": {"goodput": ">= 2"}}, "gates.goodput: needs `bench.slo`"),
        ({"gates": {"goodput": ">= 2"}, "bench": {"slo": {"ttft": 0.5}}}, None),
        ({**DRAFTED, "gates": {"tok_s@1": ">= 1.3 x baseline"}}, None),
        ({**DRAFTED, "gates": {"speedup": ">= 1.3 x baseline"}}, "gates.speedup: has no baseline"),
        ({**DRAFTED, "gates": {"speedup": ">= 0.9 x last good"}}, None),
        ({**DRAFTED, "gates": {"differences": "<= 1 x last good"}}, "gates.differences: is a count: '<= 0'"),
        ({**DRAFTED, "speculative": {"num_draft_tokens": 4}}, None),
        ({**DRAFTED, "speculative": {"num_draft_tokens": 8}}, "is 8, but a chain (eagle_topk 1) of 3 steps verifies 4"),
        ({**DRAFTED, "speculative": {"num_draft_tokens": 8, "eagle_topk": 4}}, None),
        ({"gpus": 8, "parallel": {"tp": 4}}, "parallel: tp 4 x pp 1 = 4 GPUs, but 1 x 8 are taken"),
        ({"gpus": 8, "parallel": {"tp": 4, "pp": 2}}, None),
        ({"gpus": 8, "nodes": 2, "parallel": {"tp": 16}}, None),
        ({"gpus": 8, "parallel": {"tp": 4, "dp": 2}}, None),
        ({"gpus": 8, "parallel": {"tp": 8, "dp": 8}}, None),
        ({"gpus": 8, "engine": {"name": "llamacpp"}}, None),
        ({"parallel": {"tp": 4}}, None),
        ({"engine": {"name": "llamacpp"}, "parallel": {"tp": 4}}, "parallel.tp: is 4, but llamacpp spreads a model"),
        ({"engine": {"name": "command"}, "parallel": {"dp": 2}}, "parallel.dp: is 2, but command is started as"),
        ({"parallel": {"tp": 4, "ep": 3}}, "parallel.ep: is 3, which does not divide tp 4"),
        ({"nodes": 0}, "nodes: should be greater than or equal to 1"),
        ({"secrets": ["TOKEN"], "env": {"TOKEN": "x"}}, "env.TOKEN: is also a secret"),
        ({"secrets": {"KEY": "api-key"}, "args": {"api-key": "x"}}, "args.api-key: is also given by the secret KEY"),
        (
            {"engine": {"name": "vllm"}, "secrets": ["VLLM_API_KEY"]},
            "secrets.VLLM_API_KEY: is a key that the tool would",
        ),
        ({"engine": {"name": "vllm"}, "env": {"VLLM_API_KEY": "x"}}, "env.VLLM_API_KEY: is a key that the tool would"),
        ({"engine": {"name": "llamacpp"}, "secrets": ["LLAMA_API_KEY"]}, "secrets.LLAMA_API_KEY: is a key that"),
        ({"engine": {"name": "vllm"}, "secrets": {"VLLM_API_KEY": "api-key"}}, None),
        ({"engine": {"name": "vllm"}, "gpus": 8, "parallel": {"tp": 4, "dp": 2}}, None),
        (
            {"engine": {"name": "vllm"}, "gpus": 8, "parallel": {"tp": 8, "dp": 8}},
            "tp 8 x pp 1 x dp 8 = 64 GPUs, but 1 x",
        ),
        ({"engine": {"name": "vllm"}, "gpus": 8, "nodes": 2, "parallel": {"tp": 8, "pp": 2}}, None),
        ({"engine": {"name": "vllm"}, "parallel": {"tp": 4, "dp": 2, "ep": 8}}, None),
        ({"engine": {"name": "vllm"}, "parallel": {"tp": 4, "ep": 2}}, "parallel.ep: is 2; vLLM shares experts among"),
        ({**DRAFTED, "engine": {"name": "vllm"}, "speculative": {"eagle_topk": 4}}, "vLLM drafts a chain: 1"),
        ({**DRAFTED, "engine": {"name": "vllm"}, "args": {"speculative-config": "{}"}}, "is said by `speculative`"),
        ({**DRAFTED, "engine": {"name": "vllm"}, "args": {"speculative-config.quantization": "fp8"}}, None),
        ({"secrets": {"KEY": "--api-key"}}, "secrets.KEY: should be a flag's name without dashes"),
        ({"nccl": {"DEBUG": "INFO"}, "env": {"NCCL_DEBUG": "WARN"}}, "env.NCCL_DEBUG: is also said by nccl.DEBUG"),
        ({"nccl": {"DEBUG": "LOUD"}}, "nccl.DEBUG: should be 'VERSION', 'WARN'"),
        ({"nccl": {"MIN_NCHANNELS": "few"}}, "nccl.MIN_NCHANNELS: should be a whole number, not 'few'"),
        ({"name": "../x"}, "name: should be a name"),
    ],
)
def test_what_no_single_field_shows_is_checked_across_them(changed, said):
    tree = {**LEAST, **changed}
    if said is None:
        make(tree)
        return
    with pytest.raises(ConfigError, match=re.escape(said)):
        make(tree)


def test_all_contradictions_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        make({**LEAST, "draft": {"path": "/d"}, "secrets": ["A"], "env": {"A": "x"}})
    assert len(caught.value.what.splitlines()) == 2


def test_secrets_as_a_list_are_environment():
    assert make({**LEAST, "secrets": ["A", "B"]}).secrets == {"A": "env", "B": "env"}


def test_nothing_takes_away_what_was_said_in_a_mapping():
    profile = make({**LEAST, "env": {"A": None, "B": "x"}, "args": {"a": None}, "gates": {"accept_length": None}})
    assert (profile.env, profile.args, profile.gates) == ({"B": "x"}, {}, {})


def test_nccl_variables_are_named_without_the_prefix():
    assert make({**LEAST, "nccl": {"DEBUG": "INFO", "IB_DISABLE": "1"}}).nccl.variables() == {
        "DEBUG": "INFO",
        "IB_DISABLE": "1",
    }


@pytest.mark.parametrize(
    ("text", "passes", "fails"),
    [
        (">= 1.15", [1.15, 4], [1.149, 0, float("nan")]),
        (">1.15", [1.16], [1.15]),
        ("<= 2", [2, -1], [2.01]),
        ("< 2", [1.9], [2]),
        ("== 3", [3.0], [3.1]),
        ("  >=  100  ", [100], [99]),
    ],
)
def test_a_gate_holds_or_does_not(text, passes, fails):
    gate = gates.parse(text)
    assert all(gate.holds(value) for value in passes)
    assert not any(gate.holds(value) for value in fails)


@pytest.mark.parametrize("text", ["", "1.15", ">=", "=> 1", "!= 1", ">= 1e3", ">= one", ">= 1.15 or so", ">= nan"])
def test_what_is_no_gate_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=re.escape("as in '>= 1.15'")):
        gates.parse(text)


@given(st.sampled_from([">=", "<=", "==", ">", "<"]), st.decimals(-1000, 1000, places=3))
def test_a_gate_is_written_as_it_is_read(op, bound):
    gate = gates.parse(f"{op} {bound}")
    assert gates.parse(str(gate)) == gate


def test_the_schema_for_editors_knows_what_there_is_by_file_and_what_a_switch_takes():
    schema = editor.schema()
    engine = schema["$defs"]["Engine"]["anyOf"][1]["properties"]
    assert engine["name"]["examples"] == registry.names("deploy.engines")
    assert engine["environment"]["examples"] == environments.names()
    assert schema["properties"]["waive"]["items"]["examples"] == registry.names("deploy.checks")
    assert schema["properties"]["evict"]["enum"] == [True, False, "yes", "no", "on", "off"]
    assert schema["properties"]["env"]["additionalProperties"] is False


def test_the_schema_of_the_inventory_has_what_a_file_may_say():
    schema = editor.inventory()
    host = schema["$defs"]["Host"]
    assert list(host["properties"]) == [name for name in Host.model_fields if name not in Host.made]
    assert all(field.get("description") for field in host["properties"].values())
    assert ("required" in host, host["additionalProperties"]) == (False, False)
    assert {"type": "null"} in schema["properties"]["hosts"]["patternProperties"][LABEL]["anyOf"]


def test_the_schema_for_editors_knows_every_key_with_its_description():
    schema = editor.schema()
    assert list(schema["properties"]) == ["extends", *(name for name in Profile.model_fields if name != "name")]
    assert all(field.get("description") for field in schema["properties"].values())
    assert "required" not in schema
    assert schema["additionalProperties"] is False


def models(value: Any) -> Iterator[type[BaseModel]]:
    if isinstance(value, BaseModel):
        yield type(value)
        for _, inner in value:
            yield from models(inner)


def test_every_field_says_what_it_is_for():
    found: set[type[BaseModel]] = {*models(make(DRAFTED)), Hook}
    fields = [(model.__name__, name, field) for model in found for name, field in model.model_fields.items()]
    assert len(fields) > 100
    assert [(model, name) for model, name, field in fields if not str(field.description).endswith((".", "no."))] == []


SIZES: list[tuple[Any, int, str]] = [
    ("1G", 1 << 30, "1G"),
    ("1 GiB", 1 << 30, "1G"),
    ("64K", 1 << 16, "64K"),
    ("200k", 200 << 10, "200K"),
    ("1 gib", 1 << 30, "1G"),
    ("500mb", 500_000_000, "488281.25K"),
    ("1.5M", 3 << 19, "1536K"),
    ("2T", 2 << 40, "2T"),
    ("500MB", 500_000_000, "488281.25K"),
    ("100000", 100_000, "100000"),
    ("100000B", 100_000, "100000"),
    (1 << 20, 1 << 20, "1M"),
]


@pytest.mark.parametrize(("written", "size_in_bytes", "shown"), SIZES)
def test_amounts_of_memory_are_read_and_shown(written, size_in_bytes, shown):
    made = make({**LEAST, "log": {"cap": written}})
    assert made.log.cap == size_in_bytes
    again = made.model_dump(mode="json")["log"]["cap"]
    assert size.parse(again) == size_in_bytes
    assert again == (shown if "." not in shown else str(size_in_bytes))


@pytest.mark.parametrize("written", ["1X", "G", "-1G", "1 G G", "", "1e9", 1000, "10K", 1.5, True, []])
def test_what_is_no_amount_or_too_small_a_cap_is_told(written):
    with pytest.raises(ConfigError, match=r"log\.cap"):
        make({**LEAST, "log": {"cap": written}})


def test_the_least_cap_is_told_as_it_would_be_written():
    with pytest.raises(ConfigError, match=r"log\.cap: should be at least 64K, not 20K"):
        make({**LEAST, "log": {"cap": "20k"}})


def test_a_log_without_a_cap_is_never_cut_off():
    assert make({**LEAST, "log": {"cap": None}}).model_dump(mode="json")["log"] == {"cap": None}
