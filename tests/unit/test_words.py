"""Any text that a user can write arrives as it is: read back by the real shells."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.text import words
from deploy.text.words import HomePath, RunPath
from tests.project import PATIENCE

SHELLS = ["dash", "bash"]
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
AWKWARD = st.sampled_from(
    ["", " ", "\n", "\r\n", "-n", "--", "-e", "'", '"', "\\", "$run", '"$1"/draft', "$(id)", "`id`", "!!", "~", "*",
     "#x", "a=b", ";", "&", "a\nb\n", "\t", "é", "\x7f\x1b[0m", "\u2028", "\\n", "%s", "{}", "$'\\n'"]
)  # fmt: skip
ANY = TEXT | AWKWARD | st.builds(str.__add__, AWKWARD, TEXT)


def said(shell: str, script: str, *args: str) -> list[str]:
    done = subprocess.run([shell, "-c", script, "sh", *args], capture_output=True, timeout=PATIENCE, check=True)
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("shell", SHELLS)
@given(st.lists(ANY, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_words_are_read_back_as_they_were(shell, given_words):
    assert said(shell, f"printf '%s\\0' {words.shell(given_words)}") == given_words


@pytest.mark.parametrize("shell", SHELLS)
@given(ANY.filter(bool), ANY.filter(lambda text: bool(text) and "/" not in text))
@settings(max_examples=30, deadline=None)
def test_only_a_file_of_the_run_is_put_into_its_folder(shell, folder, name):
    script = f"printf '%s\\0' {words.shell([RunPath(name), '$1', name])}"
    assert said(shell, script, folder) == [f"{folder}/{name}", "$1", name]


@pytest.mark.parametrize("shell", SHELLS)
@given(st.dictionaries(st.from_regex(r"x_[A-Za-z0-9_]{0,9}", fullmatch=True), ANY, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_environment_is_read_back_as_it_was(shell, variables):
    read = " ".join(f'"${name}"' for name in variables)
    script = f"set -a\n{words.environment(variables.items())}set +a\nprintf '%s\\0' {read}"
    assert said(shell, script) == list(variables.values())


@pytest.mark.parametrize("shell", SHELLS)
@given(ANY.filter(lambda text: not text.startswith("/")))
@settings(max_examples=30, deadline=None)
def test_a_path_of_the_home_is_found_there(shell, name):
    script = f"HOME='/home/a b'\nprintf '%s\\0' {words.shell([words.path(f'~/{name}'), f'~/{name}'])}"
    assert said(shell, script) == [f"/home/a b/{name}", f"~/{name}"]


PATHS = [("/a", "/a"), ("python3", "python3"), ("~/a b", HomePath("a b")), ("~you/a", "~you/a"), ("~", "~")]


@pytest.mark.parametrize(("text", "word"), PATHS)
def test_only_what_begins_with_the_home_is_a_path_of_it(text, word):
    assert words.path(text) == word


def test_a_plan_shows_files_as_a_user_reads_them():
    assert (str(RunPath("draft")), str(HomePath("m"))) == ("$run/draft", "~/m")
