"""An SGLang before 0.5.20, which streams its counters on its native route alone: that route knows no chat template.

What applies it is the engine's transformers; a stand-in plays them here, and the real ones in tests/engine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import DeployError
from deploy.loads import Ran, own
from tests import loads
from tests.scripted_server import CLOSE, Script, scripted

TRANSFORMERS = """
class AutoTokenizer:
    def __init__(self, chat_template):
        self.chat_template = chat_template

    @classmethod
    def from_pretrained(cls, model, trust_remote_code):
        open(model + ".asked", "a").write(f"{trust_remote_code}\\n")
        return cls(open(model).read())

    def apply_chat_template(self, chat, tokenize, add_generation_prompt, return_dict):
        assert tokenize and add_generation_prompt and not return_dict
        return [len(message["content"]) for message in chat] + [7]
"""
SPEC = {"spec_verify_ct": 2, "spec_accept_token_num": 2, "spec_draft_token_num": 6, "dp_rank": 1}
STOP = {"type": "stop", "matched": 2}


def whole(text: str, tokens: int, **more: Any) -> bytes:
    return b"data: " + json.dumps({"text": text, "meta_info": {"completion_tokens": tokens, **more}}).encode() + b"\n\n"


def native(*_: Any) -> Script:
    """As 0.5.8 to 0.5.19 stream: the text so far in each event."""
    end = whole("Paris.", 5, finish_reason=STOP, **SPEC)
    return [(0.0, CLOSE), (0.01, whole("Par", 1)), (0.01, whole("Paris", 3)), (0.01, end + b"data: [DONE]\n\n")]


class Old:
    """A server of an old version, and the engine's interpreter beside it."""

    def __init__(self, folder: Path, template: str) -> None:
        self.folder, self.model = folder, folder / "model"
        self.model.write_text(template)
        package = folder / "site" / "transformers"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(TRANSFORMERS)
        known = folder / "site" / "transformers-4.57.0.dist-info"
        known.mkdir()
        (known / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.57.0\n")

    def run(self, port: int, **fields: Any) -> Ran:
        python = {"name": "sglang", "python": sys.executable}
        env = {"PYTHONPATH": str(self.folder / "site")}
        model = {"path": str(self.model), "name": "tiny"}
        node = loads.node(port, "sglang", **{"engine": python, "model": model, "env": env, **fields})
        return own.run(loads.asked(2), node, loads.here(self.folder), lambda _done, _of: None)

    def asked(self) -> list[str]:
        """Whether its own code might run, each time that the tokenizer was loaded."""
        return Path(f"{self.model}.asked").read_text().split()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    yield Old(tmp_path, "{{ messages }}")


def test_its_native_route_is_asked_with_the_tokens_of_the_chat(old: Old) -> None:
    with scripted(native, version="0.5.19") as server:
        done = old.run(server.port)
        again = old.run(server.port, args={"trust-remote-code": True})
        old.run(server.port)
    assert [body["input_ids"] for body in server.asked[:2]] == [[10, 7], [10, 7]]
    assert all(head.startswith("POST /generate ") for head in server.heads)
    for one in done.samples + again.samples:
        assert (one.error, one.text, one.finish, one.tokens_by) == ("", "Paris.", "stop", "server")
        assert one.counters is not None
        assert (one.counters.generated, one.counters.steps, one.counters.accepted, one.counters.rank) == (5, 2, 2, 1)
    assert "POST http://127.0.0.1" in done.command
    assert old.asked() == ["False", "True"]  # remembered, by what was asked


def test_a_model_without_a_template_is_asked_in_plain_text_and_that_is_told(tmp_path: Path) -> None:
    with scripted(native, version="0.5.8") as server:
        done = Old(tmp_path, "").run(server.port)
    assert [body["text"] for body in server.asked] == ["question 0", "question 1"]
    assert "the model has no chat template" in done.command


def test_what_keeps_the_tokenizer_from_loading_is_told(old: Old) -> None:
    (old.folder / "site" / "transformers" / "__init__.py").write_text("raise RuntimeError('no torchvision')")
    with scripted(native, version="0.5.8") as server, pytest.raises(DeployError, match="chat template") as caught:
        old.run(server.port)
    assert "no torchvision" in caught.value.evidence
    assert "bench.load=bench_serving" in caught.value.remedy
    assert server.asked == []
