"""YAML in, a tree with places out; and every mistake in plain words, with file and line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.config import documents, validation
from deploy.errors import ConfigError
from deploy.profile import Profile

FILE = "profiles/x.yaml"
GOOD = "engine: sglang\nhosts: all\nmodel: /m\n"


def parse(text: str | bytes) -> documents.Document:
    return documents.parse(text.encode() if isinstance(text, str) else text, Profile, FILE)


def complaint(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        document = parse(text)
        validation.validate(Profile, {"name": "x", **document.tree}, document.where)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.yaml:1: is empty"),
        ("# only a comment\n", "x.yaml:1: is empty"),
        ("- a\n- b\n", "x.yaml:1: should be a mapping (key: value), not a list"),
        ("just words", "x.yaml:1: should be a mapping (key: value), not one value"),
        ("port: 1\nport: 2\n", "x.yaml:2: port: stands there twice"),
        ("env:\n  A: 1\n  B: 2\n  A: 3\n", "x.yaml:4: env.A: stands there twice"),
        ("env:\n\tA: 1\n", "indent with spaces"),
        (b"port: 1\nname: \xff\n", "x.yaml:2: is not UTF-8"),
        ("gates:\n  accept_length: >= 1.15\n", "quote it"),
        ("smoke: {ask: 2+2?}\n", "x.yaml:1: is not YAML: expected ',' or '}', but got '?'"),
        ("bench: {prompts: [2+2?]}\n", "quote it: within [ ] and { }"),
        ("model: [a\n", "x.yaml:2: is not YAML"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: is not YAML"),
        ("model: !!python/name:os.system x\n", "x.yaml:1: tags such as"),
        ("? [a, b]\n: 1\n", "x.yaml:1: a key should be text"),
        ("env: &a {A: *a}\n", "its aliases make it too large"),
        ("a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
        ), "its aliases make it too large"),
        ("model: " + "[" * 5000, "nested too deeply"),
        ("model: \x01\n", "is not YAML"),
        ("env: {A: " + "x" * documents.LARGEST + "}", "are the most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_line(text, said):
    assert said in complaint(text)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True), ("False", False), ("on", "on"), ("yes", "yes"), ("no", "no"), ("'true'", "true"),
        ("17", 17), ("-3", -3), ("0.5", 0.5), ("0.80", "0.80"), ("1e5", "1e5"), ("007", "007"), ("0x1F", "0x1F"),
        ("1_000", "1_000"), ("12:30:45", "12:30:45"), ("2026-01-01", "2026-01-01"), ("[1, a, true]", [1, "a", True]),
        ('"a\\nb"', "a\nb"), ("über", "über"), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_a_server_flag_arrives_as_it_was_written(written, value):
    found = parse(f"args: {{flag: {written}}}").tree["args"]["flag"]
    assert (value, type(value)) == (found, type(found))


@pytest.mark.parametrize("written", ["1", "0.10", "true", "010", "1e5", "no", "2026-01-01"])
def test_what_is_text_stays_text_without_quotes(written):
    assert parse(f"env: {{A: {written}}}").tree == {"env": {"A": written}}


def test_a_plain_string_stands_for_the_field_that_matters_most():
    tree = parse("engine: sglang\nmodel: /m\ndraft: ckpt/x\nhooks: {prepare: [hooks/fix]}\n").tree
    assert tree == {
        "engine": {"name": "sglang"},
        "model": {"path": "/m"},
        "draft": {"path": "ckpt/x"},
        "hooks": {"prepare": [{"run": "hooks/fix"}]},
    }


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("prot: 1", "x.yaml:4: prot: there is no such key; did you mean port?"),
        ("parallel:\n  tpp: 8", "x.yaml:5: parallel.tpp: there is no such key; did you mean tp?"),
        ("nccl: {NCCL_DEBUG: INFO}", "nccl.NCCL_DEBUG: there is no such key; did you mean DEBUG?"),
        ("nccl: {NCCL_NET: IB}", "nccl.NCCL_NET: there is no such key; did you mean NET?"),
        ("nccl: {BOGUS_THING: 1}", "nccl.BOGUS_THING: there is no such key; 57 are known"),
        ("hooks: {prepare: [{rum: x}]}", "hooks.prepare.0.rum: there is no such key; did you mean run?"),
        ("hooks: {prepare: [{on: host}]}", "hooks.prepare.0.run: is missing"),
        ("hooks: {prepare: [{run: x, on: hots}]}", "hooks.prepare.0.on: should be 'controller' or 'host', not 'hots'"),
        ("port: eighty", "x.yaml:4: port: should be a whole number, not 'eighty'"),
        ("port: 80.5", "port: should be a whole number, not 80.5"),
        ("port: '80'", "port: should be a whole number, not '80'"),
        ("port: true", "port: should be a whole number, not true"),
        ("port: 70000", "port: should be less than or equal to 65535, not 70000"),
        ("port:", "port: should be a whole number, not nothing"),
        ("parallel: 8", "parallel: should be a mapping (key: value), not 8"),
        ("waive: ckpt", "waive: should be a list, not 'ckpt'"),
        ("env: [A]", "env: should be a mapping (key: value), not a list"),
        ("env: {A: [1]}", "env.A: should be text, not a list"),
        ("env: {1A: x}", "env.1A: is not a variable's name: letters, digits and _ only"),
        ('env: {A: "a\\0b"}', "env.A: has a NUL character"),
        ("args: {--tp-size: 8}", "args.--tp-size: is written without dashes: tp-size"),
        ("args: {a: {b: 1}}", "args.a: should be true or false or a whole number or a number or text or a list"),
        (
            "gates: {accept_lenght: '>= 1'}",
            "gates.accept_lenght: there is no such measure; did you mean accept_length?",
        ),
        ("gates: {speed: '>= 1'}", "gates.speed: there is no such measure; "),
        ("gates: {bogus: '>= 1'}", "gates.bogus: there is no such measure; known: accept_length, tok_s, "),
        ("gates: {tokens_per_second: '>= 1'}", "gates.tokens_per_second: is called tok_s"),
        ("gates: {tokens_per_second@8: '>= 1'}", "gates.tokens_per_second@8: is called tok_s@8"),
        ("gates: {tok_s@: '>= 1'}", "gates.tok_s@: should have a concurrency behind the @, as in tok_s@8"),
        ("gates: {tok_s@0: '>= 1'}", "gates.tok_s@0: should have a concurrency behind the @, as in tok_s@8"),
        ("gates: {tok_s: 100}", "gates.tok_s: should be an operator and a number, as in '>= 1.15', or with what it is"),
        ("gates: {tok_s: '>= 0.9 x best'}", "as in '>= 0.95 x last good' or '>= 1.3 x baseline', not '>= 0.9 x best'"),
        ("smoke: {expect: '('}", "smoke.expect: is not a regular expression"),
        (
            "engine: {name: x, version: 0.5.23}",
            "engine.version: should be a version specifier: ==0.5.23 or >=0.5.20,<0.6, not '0.5.23'",
        ),
        ("ready: {deadline: 0}", "ready.deadline: should be greater than 0, not 0"),
        ("ready: {deadline: .inf}", "ready.deadline: should be a number, not '.inf'"),
        ("hosts: []", "hosts: should not be empty"),
    ],
)
def test_what_is_wrong_is_told_in_plain_words(added, said):
    kept = [line for line in GOOD.splitlines() if line.split(":")[0] != added.split(":")[0]]
    assert said in complaint("\n".join([*kept, added]))


def test_every_mistake_is_told_at_once():
    told = complaint("engine: {nam: sglang}\nprot: 1\nport: x\nenv: {A: [1]}\n").splitlines()
    assert told == [
        "profiles/x.yaml:1: engine.name: is missing",
        "profiles/x.yaml:1: engine.nam: there is no such key; did you mean name?",
        "profiles/x.yaml:1: hosts: is missing",
        "profiles/x.yaml:1: model: is missing",
        "profiles/x.yaml:3: port: should be a whole number, not 'x'",
        "profiles/x.yaml:4: env.A: should be text, not a list",
        "profiles/x.yaml:2: prot: there is no such key; did you mean port?",
    ]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.yaml: cannot be read: No such file"):
        documents.load(tmp_path / "nothing.yaml", Profile)


def test_a_byte_order_mark_and_windows_lines_do_no_harm():
    assert parse(b"\xef\xbb\xbfport: 1\r\nmodel: /m\r\n").tree == {"port": 1, "model": {"path": "/m"}}


@given(st.text())
def test_text_of_a_command_line_stays_as_it_is_where_text_belongs(text):
    assert documents.read(text, str, "x") == text


@given(st.binary(max_size=200))
def test_no_bytes_whatever_end_in_anything_but_a_tree_or_a_config_error(content):
    try:
        parse(content)
    except ConfigError as error:
        assert FILE in error.what
