"""A streamed answer, as it is told."""

from __future__ import annotations

from deploy.server.answer import Answer

SECRET = "hf_ABCDEFGHIJKLMNOP"


def delta(**said: str) -> dict[str, object]:
    return {"choices": [{"delta": said}]}


def test_a_secret_in_an_answer_is_hidden_though_it_comes_in_pieces():
    told = Answer([SECRET])
    chunks = [delta(content="it is hf_ABC"), delta(content="DEFGHIJKLMNOP, or hf"), delta(reasoning_content=SECRET)]
    shown = [told.add(chunk) for chunk in chunks] + [told.end()]
    assert "".join(said for _, said in shown) == told.said == "it is ***, or hf"
    assert "".join(thought for thought, _ in shown) == told.thought == "***"
