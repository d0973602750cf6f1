"""When a hold ends, as people say it and are told; what a lock's file may say of one; whose it is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from deploy.errors import ConfigError
from deploy.locking import hold, lease
from deploy.operations import auditing
from deploy.text import scrub, tables, when


@pytest.fixture
def zone(monkeypatch) -> Iterator[None]:
    """A zone of its own, with daylight saving until the last Sunday of October, 3:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def now(text: str = "2026-11-25T16:40:00") -> datetime:  # a Wednesday
    return datetime.fromisoformat(text).astimezone()


H, D = 3600, 86400

ENDS = [
    ("bench until 18:00", "bench", 80 * 60),
    ("bench till 18:00", "bench", 80 * 60),
    ("Bench, UNTIL 18:00", "Bench", 80 * 60),
    ("bench until today 18:00", "bench", 80 * 60),
    ("bench until tomorrow 9:00", "bench", 16 * H + 20 * 60),
    ("bench until tomorrow at 09:00", "bench", 16 * H + 20 * 60),
    ("bench until Thursday 9:00", "bench", 16 * H + 20 * 60),
    ("bench until wed 18:00", "bench", 80 * 60),
    ("bench until wed 16:00", "bench", 7 * D - 40 * 60),
    ("bench until 2026-11-25 18:00", "bench", 80 * 60),
    ("bench until 2026-11-25T18:00:30", "bench", 80 * 60 + 30),
    ("bench until 2026-11-25 18:00+02:00", "bench", 20 * 60),
    ("bench until 2026-11-26 9:00", "bench", 16 * H + 20 * 60),
    ("bench for 90m", "bench", 90 * 60),
    ("bench for 90 minutes", "bench", 90 * 60),
    ("bench for 1h30m", "bench", 90 * 60),
    ("bench for 1 h 30 min", "bench", 90 * 60),
    ("bench for 1.5h", "bench", 90 * 60),
    ("bench for 45s", "bench", 45),
    ("bench for 2 days", "bench", 2 * D),
    ("bench for 1 week", "bench", 7 * D),
    ("waiting for  Bob until 18:00", "waiting for Bob", 80 * 60),
    ("until it works for 2h", "until it works", 2 * H),
    ("kernel for Kimi for 1h", "kernel for Kimi", H),
]


@pytest.mark.parametrize(("text", "why", "seconds"), ENDS, ids=[case[0] for case in ENDS])
def test_an_end_is_understood(zone, text, why, seconds):
    assert when.parse(text, now()) == (why, seconds)


REFUSED = [
    ("bench", "has no end"),
    ("", "has no end"),
    ("forbench 18:00", "has no end"),
    ("until 18:00", "does not say why"),
    ("for 2h", "does not say why"),
    ("bench until 16:39", "is in the past, by 60 s"),
    ("bench until 2026-11-24 18:00", "is in the past"),
    ("bench for 0m", "is in the past"),
    ("bench for 8 days", "the longest is 7 days"),
    ("bench until 2027-11-24 18:00", "the longest is 7 days"),
    ("bench until 25:00", "is no time"),
    ("bench until 18:60", "is no time"),
    ("bench until 2026-11-25", "is no time"),
    ("bench until 2026-13-25 18:00", "is no time"),
    ("bench until tomorrow", "is no time"),
    ("bench until someday 9:00", "is no time"),
    ("bench until I am done", "is no time"),
    (f"bench for {'9' * 400} days", "the longest is 7 days"),
    ("bench for 99999999999 days", "the longest is 7 days"),
    ("bench until 0001-01-01 00:00", "is no time of these days"),
    ("bench until 0001-01-01 00:00+14:00", "is in the past"),
    ("bench until 9999-12-31 23:59-12:00", "the longest is 7 days"),
    ("bench for ever", "is no duration"),
    ("bench for 2", "is no duration"),
    ("bench for 2 moons", "is no duration"),
    ("bench for 2h or so", "is no duration"),
    (f"{'very ' * 50}long bench for 2h", "is too long a reason"),
]


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=[case[0][:40] or "nothing" for case in REFUSED])
def test_what_is_no_end_is_refused_with_how_to_say_one(zone, text, told):
    with pytest.raises(ConfigError) as caught:
        when.parse(text, now())
    assert told in caught.value.what
    assert caught.value.remedy


def test_an_hour_that_is_over_is_probably_tomorrow_s(zone):
    with pytest.raises(ConfigError) as caught:
        when.parse("bench until 9:00", now())
    assert caught.value.remedy == "did you mean until tomorrow 9:00?"


def test_the_night_in_which_the_clocks_change_is_an_hour_longer(zone):
    assert when.parse("bench until tomorrow 9:00", now("2026-10-24T21:00")) == ("bench", 13 * H)


TOLD = [
    (20, "until 16:40:20 (in 20 s)"),
    (80 * 60, "until 18:00 (in 1 h 20 min)"),
    (80 * 60 - 0.4, "until 18:00 (in 1 h 20 min)"),  # a second on its way
    (60 * 60, "until 17:40 (in 1 h)"),
    (16 * H + 20 * 60, "until tomorrow 09:00 (in 16 h 20 min)"),
    (3 * D + 80 * 60, "until Sat 2026-11-28 18:00 (in 3 d 1 h)"),
]


@pytest.mark.parametrize(("left", "told"), TOLD)
def test_an_end_is_told_in_our_own_time(zone, left, told):
    assert when.told(left, now()) == told


# ---- what a lock's file says -------------------------------------------------------------------------------------

WRITTEN = {"user": "ann", "host": "laptop", "from": "192.0.2.7", "reason": "bench", "since": 1000.0, "until": 5600.0}


def test_a_hold_is_read_by_the_clock_that_wrote_it():
    found = hold.read(json.dumps(WRITTEN), now=800.0)
    assert found and (found.owner, found.left, found.ours) == ("ann@laptop", 4800.0, False)
    assert str(found).startswith("by ann@laptop (from 192.0.2.7): bench, until ")
    until = datetime.fromisoformat(found.to_json()["until"])
    assert abs(until - datetime.now().astimezone() - timedelta(seconds=4800)) < timedelta(seconds=5)


SPOILT = [
    "", "x", "[]", '"x"', "null", "{}", '{"until": null}', '{"until": "noon"}', '{"until": NaN}', '{"until": Infinity}',
    json.dumps({**WRITTEN, "until": 10**400}),
    json.dumps({**WRITTEN, "until": 800.0}),  # it has just ended
    json.dumps({**WRITTEN, "until": 800.0 + 8 * D}),  # of a clock that was wrong
    "[" * 100000,
]  # fmt: skip


@pytest.mark.parametrize("line", SPOILT, ids=[line[:30] for line in SPOILT])
def test_what_is_no_hold_or_has_ended_stops_nobody(line):
    assert hold.read(line, now=800.0) is None


def test_words_of_a_hold_are_not_longer_than_a_line():
    found = hold.read(json.dumps({**WRITTEN, "reason": "x" * 10000, "user": None}), now=800.0)
    assert found and (len(found.reason), found.user) == (when.WHY, "None")


@pytest.mark.parametrize("key", ["user", "host", "from", "reason"])
def test_words_of_a_hold_steer_no_terminal_and_forge_no_line(key):
    found = hold.read(json.dumps({**WRITTEN, key: "a\x1b[2J\x1b]0;x\x07\nb\u202e\u0085c"}), now=800.0)
    assert found and "a bc" in str(found)
    assert tables.lines([{"host": "h", "hold": found.to_json()}], ("host", "hold"))[1:] == [f"h     {found}"]


def test_a_hold_is_passed_by_the_letters_of_its_name():
    user, machine = hold.me()
    found = hold.read(json.dumps({**WRITTEN, "user": f"{user}\x1b[0m", "host": machine}), now=800.0)
    assert found and (found.owner, found.named, found.ours) == (
        f"{user}@{machine}", f"{user}\x1b[0m@{machine}", False
    )  # fmt: skip


def test_who_has_a_lock_is_told_in_one_clean_line():
    told = lease.who(json.dumps({"user": "a\nb", "host": "\x1b[2Jc", "pid": [1], "reason": "d\ne", "since": 1.0}))
    assert told.startswith("a b@c (pid [1]): d e, since ")


def test_our_own_words_are_clean_before_they_are_written():
    assert when.parse("a\x1b[2J\nb for 2h", now()) == ("a b", 2 * H)


def test_a_cell_of_a_table_is_one_line():
    assert tables.lines([{"host": "a\nb  up"}], ("host",)) == ["host", "a b up"]


# ---- the audit as the host tells it ------------------------------------------------------------------------------

ODD = [
    {"id": [1]}, {"host": "h", "id": {"a": 1}}, {"when": [1], "what": {"a": 1}, "who": None}, {"outcome": 3},
    {"event": "ended", "outcome": {"exit_code": [1], "seconds": "x", "words": ["a\nb"]}},
    {"event": [1], "when": 10**400},
]  # fmt: skip


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_a_line_that_anybody_wrote_is_a_row(line):
    (row,) = auditing.commands([{"host": "gpu1", **line}])
    assert all(isinstance(cell, str) and "\n" not in cell for cell in row.values())


def test_ours_is_what_we_wrote_from_this_machine():
    user, machine = hold.me()
    for told, ours in (({}, True), ({"user": "other"}, False), ({"host": "elsewhere"}, False)):
        found = hold.read(json.dumps({**WRITTEN, "user": user, "host": machine, **told}), now=800.0)
        assert found and found.ours == ours


# ---- what others may see of a command line -----------------------------------------------------------------------

COUNTS = (
    "max-tokens", "num_speculative_tokens", "num-speculative-tokens", "speculative-num-draft-tokens", "prompt_tokens",
    "completion_tokens", "max-total-tokens", "max-prefill-tokens", "max_num_batched_tokens", "image-max-tokens",
    "piecewise-cuda-graph-tokens", "num-reserved-decode-tokens", "max_new_tokens", "special_tokens", "stop-tokens",
    "SGLANG_MAX_TOKENS", "X_NUM_DRAFT_TOKENS", "eos_token", "sort_keys",
)  # fmt: skip
SCRUBBED = [
    ("env.HF_TOKEN=hf_abc", "env.HF_TOKEN=***"),
    ("env.AWS_SECRET_ACCESS_KEY=a b", "env.AWS_SECRET_ACCESS_KEY=***"),
    ("env.DB_PASSWORD=x=y", "env.DB_PASSWORD=***"),
    ("args.api-key=abc", "args.api-key=***"),
    ("args.ssl-keyfile-password=abc", "args.ssl-keyfile-password=***"),
    ("args={api-key: abc, tp: 4}", "args={api-key: ***, tp: 4}"),
    ('args={"api-key": "a b", "tp": 4}', 'args={"api-key": ***, "tp": 4}'),
    ("args.argv=[serve, --api-key, abc]", "args.argv=[serve, --api-key, ***]"),
    ('args.argv=["--api-key","abc",--tp,"4"]', 'args.argv=["--api-key",***,--tp,"4"]'),
    ("args.extra=--api-key abc --tp 4", "args.extra=--api-key *** --tp 4"),
    ("args.extra=--api-key=abc --tp 4", "args.extra=--api-key=*** --tp 4"),
    ("env.HTTPS_PROXY=http://me:pw@proxy:3128", "env.HTTPS_PROXY=http://***@proxy:3128"),
    ("env.X=1", "env.X=1"),
    ("+env.HF_TOKEN=a b", "+env.HF_TOKEN=***"),
    ("++args.api-key=a b", "++args.api-key=***"),
    ("~env.HF_TOKEN=a", "~env.HF_TOKEN=***"),
    ("+secrets.HF_TOKEN=env", "+secrets.HF_TOKEN=env"),
    ("env={DB_PASSWORD: a b c}", "env={DB_PASSWORD: ***}"),
    ("env={DB_PASSWORD: a b c, X: 1}", "env={DB_PASSWORD: ***, X: 1}"),
    ("env={DB_PASSWORD: a,b c}", "env={DB_PASSWORD: ***}"),
    ("env={DB_PASSWORD: a}b c, X: 1}", "env={DB_PASSWORD: ***, X: 1}"),
    (r'env={X_PASSWORD: "a\"b REST"}', "env={X_PASSWORD: ***}"),
    (r'env={X_PASSWORD: "a\"b REST", X: 1}', "env={X_PASSWORD: ***, X: 1}"),
    ('env={X_PASSWORD: "a"b REST"}', "env={X_PASSWORD: ***"),
    ("env={X_PASSWORD: 'it''s REST'}", "env={X_PASSWORD: ***}"),
    ("env={X_PASSWORD: !!str 'a, b: REST'}", "env={X_PASSWORD: ***"),
    ("env={X_PASSWORD: |-\n a\n REST}", "env={X_PASSWORD: ***}"),
    ("env={HF_TOKEN: [abc, def]}", "env={HF_TOKEN: ***}"),
    ("env={HF_TOKEN: [abc, def], X: 1}", "env={HF_TOKEN: ***, X: 1}"),
    ("env={HF_TOKEN: {a: abc, b: def}}", "env={HF_TOKEN: ***"),
    ('args={"api_key":"abc","tp":4}', 'args={"api_key":***,"tp":4}'),
    (r'args.x="{\"api_key\": \"a b\"}"', r'args.x="{\"api_key\": ***'),
    ("args={a: {api-key: abc}, b: c}", "args={a: {api-key: ***}, b: c}"),
    ("args={--api-key: a b, tp: 4}", "args={--api-key: ***, tp: 4}"),
    ("args.argv=[serve, --api-key, abc, def, --tp, 4]", "args.argv=[serve, --api-key, ***, --tp, 4]"),
    ("args.extra=--api-key 'a b' --tp 4", "args.extra=--api-key *** --tp 4"),
    (r"args.extra=--api-key 'it'\''s REST' --tp 4", "args.extra=--api-key ***"),
    ("env[HF_TOKEN]=abc", "env[HF_TOKEN]=***"),
    ("env.MYSQL_PWD=abc", "env.MYSQL_PWD=***"),
    ("env.PWD=/x", "env.PWD=/x"),
    ("env.GITHUB_PAT=abc", "env.GITHUB_PAT=***"),
    ("env.API_KEYS=abc", "env.API_KEYS=***"),
    ("env.HF_TOKENS=abc", "env.HF_TOKENS=***"),
    ("env.ACME_TOKENS=abc", "env.ACME_TOKENS=***"),
    ("args.auth-tokens=abc", "args.auth-tokens=***"),
    ("env.AUTHORIZATION=Bearer abc", "env.AUTHORIZATION=***"),
    ("Authorization: Bearer abc", "Authorization: ***"),
    ("args.header=Bearer abc", "args.header=Bearer ***"),
    ("args.header=X-Api-Key: abc", "args.header=X-Api-Key: ***"),
    ("args.url=https://abc@host/x", "args.url=https://***@host/x"),
    ("args.url=redis://:pw@h", "args.url=redis://***@h"),
    ("args.url=http://u:p/w@h", "args.url=http://***@h"),
    ("args.url=http://u:p@w@h", "args.url=http://***@h"),
    ("args.url=https://host/x?token=abc&y=1", "args.url=https://host/x?token=***"),
    ("HTTPS_PROXY=http://u:pw@proxy:3128", "HTTPS_PROXY=http://***@proxy:3128"),
    ("https_proxy=u:pw@proxy:3128", "https_proxy=***@proxy:3128"),
    ("args.url=https://host:8000/x", "args.url=https://host:8000/x"),
    ("draft.path=git@host:x", "draft.path=git@host:x"),
    *((word, word) for name in COUNTS for word in (f"args.{name}=4", f"args={{{name}: 4}}", f"args.x=--{name} 4")),
    ("secrets.HF_TOKEN=env", "secrets.HF_TOKEN=env"),
    ("smoke.max_tokens=20", "smoke.max_tokens=20"),
    ("args.tokenizer-path=/t", "args.tokenizer-path=/t"),
    ("model.path=/keys/x", "model.path=/keys/x"),
    ("--hosts", "--hosts"),
    ("my token bench until 18:00", "my token bench until 18:00"),
]


@pytest.mark.parametrize(("word", "told"), SCRUBBED)
def test_values_of_secrets_are_not_told(word, told):
    assert scrub.words([word]) == [told]


def test_the_word_after_a_secret_s_flag_is_its_value():
    said = ["--api-key", "abc", "--header", "Authorization: Bearer abc", "--max-tokens", "4"]
    assert scrub.words(said) == ["--api-key", "***", "--header", "Authorization: ***", "--max-tokens", "4"]


LONG = [
    "A" * 100000, "A_" * 50000, "_" * 100000, "-" * 100000, "a=" * 50000, "a: " * 30000, "key: " * 20000,
    "key: " + "] " * 50000 + "x", "key:" + " " * 100000 + "x", 'key: "' + '\\"' * 50000, "key: " + "a," * 50000 + '"',
    "--key " * 20000, "://" * 30000, "http://a:" * 10000, "a" + " " * 100000, "bearer " * 15000, "key: " + "'" * 100000,
]  # fmt: skip


@pytest.mark.parametrize("word", LONG, ids=range(len(LONG)))
def test_a_long_word_takes_no_longer_than_it_is(word):
    began = time.process_time()
    scrub.words([word])
    assert time.process_time() - began < 0.5
