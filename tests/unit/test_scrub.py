"""What a server wrote into its log, without the keys that it wrote there."""

from __future__ import annotations

import time

import pytest

from deploy.events import Event
from deploy.record.mask import masked
from deploy.text import scrub

SECRETS = [  # (what a server said, what is told of it)
    ("ServerArgs(host='h', api_key='s3 cret', port=1)", "ServerArgs(host='h', api_key='***', port=1)"),
    ('admin_api_key="s3cret", x', 'admin_api_key="***", x'),
    ("{'api_key': ['s3cret', 'other'], 'port': 1}", "{'api_key': ***, 'port': 1}"),
    ("serve --api-key s3cret --port 1", "serve --api-key *** --port 1"),
    ("serve --admin-api-key=1234 --port 1", "serve --admin-api-key=*** --port 1"),
    ("ssl_keyfile_password='s3cret'", "ssl_keyfile_password='***'"),
    ("HF_TOKEN=s3cret python", "HF_TOKEN=*** python"),
    ('"hf_token": "s3cret"}', '"hf_token": "***"}'),
    ("api_key='s3cret that is cut", "api_key=***"),
    ("api_keys=['s3cret', 'cut", "api_keys=***"),
    ("api_key='12345'", "api_key='***'"),
    ("Authorization: Bearer s3cret", "Authorization: *** ***"),
    ("downloading with hf_abcdefghijklmnopqrst", "downloading with ***"),
    ("key sk-abcdefghijklmnop1234 refused", "key *** refused"),
    ("proxy http://user:s3cret@proxy:3128/x", "proxy http://***@proxy:3128/x"),
]
HARMLESS = [
    "Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.52, #queue-req: 0",
    "max_total_num_tokens=215040, chunked_prefill_size=8192",
    "api_key=None, admin_api_key=None, hf_token=''",
    "KeyError: 'kimi_k2'",
    "unexpected key: model.fc.weight, missing keys: ['a', 'b']",
    "eos_token='</s>', pad_token_id=0, tokenizer_mode='auto', speculative_num_draft_tokens=4",
    "Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    "store tcp://10.0.0.1:29500/?rank=0 of root@gpu1",
]


@pytest.mark.parametrize(("said", "told"), SECRETS)
def test_a_key_that_a_server_logs_is_hidden(said: str, told: str) -> None:
    assert scrub.text(said) == told


@pytest.mark.parametrize("said", HARMLESS)
def test_what_is_no_secret_stays(said: str) -> None:
    assert scrub.text(said) == said


@pytest.mark.parametrize(
    "piece", ["a", "key", "key=['", "://", "bearer ", "api_key='", "--api-key ", "a.b-", "api_key=[", "\\'"]
)
def test_no_text_makes_it_slow(piece: str) -> None:
    before = time.monotonic()
    scrub.text("token " + piece * (200_000 // len(piece)))
    assert time.monotonic() - before < 10  # each takes a second at most; a quadratic one took minutes


@pytest.mark.parametrize("fact", ["log", "evidence"])
def test_an_event_is_told_without_them(fact: str) -> None:
    said, told = SECRETS[0]
    assert masked(Event("said", said, facts={fact: said}), []).facts == {fact: told}
    assert masked(Event("noted", facts={"failures": [{fact: said}], "wanted": said}), []).facts == {
        "failures": [{fact: told}],
        "wanted": said,
    }


def test_files_of_evidence_are_told_without_them() -> None:
    said, told = SECRETS[0]
    assert masked(Event("evidence", facts={"files": {"server.log": said}}), []).facts == {"files": {"server.log": told}}
