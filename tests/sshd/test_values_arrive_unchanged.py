"""Whatever a user may write arrives on a host as it is, through real login shells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deploy.transport import Transport, connect
from tests.fleet import loopback

AWKWARD = " \t\n\r'\"$`\\;&|<>(){}[]*?!#~=%^-,:@é\u2028\U0001f600"
TEXT = st.text(
    st.sampled_from(AWKWARD) | st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40
)
NAMES = TEXT.map(lambda text: text.replace("/", "_")).filter(
    lambda name: name not in ("", ".", "..") and len(name.encode()) < 200
)
WORDS = "import json, os, sys; print(json.dumps([os.fsencode(word).hex() for word in sys.argv[1:]]))"

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["/bin/bash", "/bin/dash"])
def there(request, keys) -> Iterator[Transport]:
    with loopback(keys, shell=request.param, bashrc="echo 'Welcome, $USER!'; echo oh >&2\n") as host:
        transport = connect(host)
        yield transport
        transport.close()


@few
@given(st.lists(TEXT, max_size=6))
@example(["-n", "--", "", "$HOME", "a'b", 'a"b', "`id`", "$(id)", "\n", "!!", "*", "~", "\\", "-"])
def test_words(there, words):
    answer = there.run(["/usr/bin/python3", "-I", "-c", WORDS, *words])
    assert answer.stderr == b""
    assert [bytes.fromhex(word).decode() for word in json.loads(answer.stdout)] == words


@few
@given(st.binary(max_size=300))
@example(b"\0\n\r\xff")
def test_stdin_and_stdout(there, data):
    assert there.run(["cat"], stdin=data).stdout == data


@few
@given(NAMES, st.binary(max_size=300))
@example("-rf", b"")
@example("XXXXXX", b"\0")
def test_files_and_their_contents(there, tmp_path, name, data):
    path = tmp_path / name
    there.put(str(path), data)
    assert path.read_bytes() == data
    path.unlink()
    assert list(tmp_path.iterdir()) == []


@settings(few, max_examples=6)
@given(NAMES, st.dictionaries(NAMES, st.binary(max_size=50), min_size=1, max_size=5))
@example("-e sh", {"--help": b"1", "a:b": b"2", "[x]*": b"3", "\\#001": b"4", "\\": b"5"})
def test_folders(sshd, tmp_path_factory, target, files):
    there = connect(sshd)
    base: Path = tmp_path_factory.mktemp("folders")
    (base / "from").mkdir()
    for name, data in files.items():
        (base / "from" / name).write_bytes(data)
    there.push(base / "from", str(base / "to" / target), progress=lambda *_: None, timeout=60)
    there.close()
    assert {path.name: path.read_bytes() for path in (base / "to" / target).iterdir()} == files


def test_names_that_are_no_unicode(there):
    word = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert there.run(["printf", "%s", word]).stdout == b"\xff\xfe"
