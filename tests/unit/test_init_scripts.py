"""Launch scripts as people write them, read without a shell: what the server's words, variables and host are."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.errors import ConfigError
from deploy.scaffold import HOME, Launch, commands, fields, shell, syntax
from deploy.scaffold.said import Fields

SERVE = "python3 -m sglang.launch_server --model-path /m"


def read(script: str, folder: Path | None = None) -> list[Launch]:
    return commands.servers(shell.read(script, "launch.sh", folder))


def only(script: str, folder: Path | None = None) -> Launch:
    (found,) = read(script, folder)
    return found


def argv(script: str) -> str:
    """The words in one line, each between bars where it has blanks in it."""
    found = only(script)
    assert not [word.unknown for word in found.argv if word.unknown]
    texts = [word.text.replace(HOME, "~") for word in found.argv]
    return " ".join(f"|{text}|" if " " in text or not text else text for text in texts)


WORDS = [
    (f"#!/bin/bash\n{SERVE} --port 1", f"{SERVE} --port 1"),
    (f"nohup {SERVE} > log 2>&1 &\necho $!", SERVE),
    (f"exec {SERVE}", SERVE),
    (f"setsid nohup {SERVE} </dev/null &>log & disown", SERVE),
    (f"time env -u A B=1 {SERVE}", SERVE),
    (f"{SERVE} \\\n  --tp 8 \\\n  --x 'a b' # said\n", f"{SERVE} --tp 8 --x |a b|"),
    (f"{SERVE} --x=\"a 'b' \\\"c\\\" \\$d\"", f"{SERVE} |--x=a 'b' \"c\" $d|"),
    (f"{SERVE} --x a\\ b'c'\"d\"$'\\n'e", f"{SERVE} --x |a bcd\ne|"),
    (f"{SERVE} `# why` \\\n --x $(# what\n) 1", f"{SERVE} --x 1"),
    (f"{SERVE} --x ''", f"{SERVE} --x ||"),
    (f"B=x\nC=$B/y\n{SERVE} --x $B/$C/z --y ${{C}}z", f"{SERVE} --x x/x/y/z --y x/yz"),
    (f"{SERVE} --port ${{PORT:-30000}} --x ${{A-b}}", f"{SERVE} --port 30000 --x b"),
    (f": ${{PORT:=7}}\n{SERVE} --port $PORT", f"{SERVE} --port 7"),
    (f"PORT=1\n{SERVE} --port ${{PORT:-2}} ${{PORT:+--more}} ${{NONE:+--less}}", f"{SERVE} --port 1 --more"),
    (f'M=/a/b/kimi-k2\n{SERVE} --x "${{M##*/}}" ${{M%/*}} ${{#M}}', f"{SERVE} --x kimi-k2 /a/b 12"),
    (f"P=30000\n{SERVE} --port $((P + 2 * 3))", f"{SERVE} --port 30006"),
    (f"A='--tp 2  --x y'\n{SERVE} $A", f"{SERVE} --tp 2 --x y"),
    (f"A='--tp 2'\n{SERVE} \"$A\"", f"{SERVE} |--tp 2|"),
    (f"A=(--tp 2 --x 'y z')\nA+=(--w)\n{SERVE} \"${{A[@]}}\"", f"{SERVE} --tp 2 --x |y z| --w"),
    (f'A=()\n{SERVE} "${{A[@]}}" "$@"', SERVE),
    (f'f() {{ {SERVE} --port "$1" "${{@}}"; }}\nf 5', f"{SERVE} --port 5 5"),
    (f"cd /srv && source venv/bin/activate\n{SERVE}", f"/srv/venv/bin/{SERVE}"),
    (f". ~/venv/bin/activate; {SERVE}", f"~/venv/bin/{SERVE}"),
    (f"source $HOME/venv/bin/activate; {SERVE}", f"~/venv/bin/{SERVE}"),
    (f"/opt/venv/bin/{SERVE}", f"/opt/venv/bin/{SERVE}"),
    (f"cd /srv; venv/bin/{SERVE}", f"/srv/venv/bin/{SERVE}"),
    ("sglang serve /m --tp 2", "sglang serve /m --tp 2"),
    ("python3 -u -X a -m sglang.launch_server --model /m", "python3 -u -X a -m sglang.launch_server --model /m"),
    ("llama-server -m /m.gguf -ngl 99", "llama-server -m /m.gguf -ngl 99"),
    ("/opt/llama.cpp/build/bin/llama-server -m /m.gguf", "/opt/llama.cpp/build/bin/llama-server -m /m.gguf"),
    ("vllm serve /m --port 1", "vllm serve /m --port 1"),
    ("python -m vllm.entrypoints.openai.api_server -tp 2", "python -m vllm.entrypoints.openai.api_server -tp 2"),
    (f"bash -c '{SERVE} --x 1'", f"{SERVE} --x 1"),
    (f'bash -lc "cd /srv && {SERVE}"', SERVE),
    (f"tmux new -d -s x '{SERVE}'", SERVE),
    (f"ssh gpu1 'nohup {SERVE} > log 2>&1 &'", SERVE),
    (f"ssh -o A=b -p 22 op@gpu1 {SERVE} --x 1", f"{SERVE} --x 1"),
    (f"ssh gpu1 <<'EOF'\nX=1\n{SERVE} --x $X\nEOF", f"{SERVE} --x 1"),
    (f"X=2\nssh gpu1 bash -s <<EOF\n{SERVE} --x $X\nEOF", f"{SERVE} --x 2"),
    (f"(cd /tmp; {SERVE}) | tee log", SERVE),
    (f"mkdir -p /x || exit 1\n[ -d /m ] || {{ echo no; exit 1; }}\n{SERVE}", SERVE),
    (f"if pgrep -f sglang; then pkill -f sglang; fi\n{SERVE}\nuntil curl localhost; do sleep 1; done", SERVE),
    (f'if [ -z "$PORT" ]; then PORT=1; else PORT=2; fi\n{SERVE} --port $PORT', f"{SERVE} --port 1"),
    (f'M=big\nif [[ $M == no ]]; then T=1; elif [[ "$M" == big ]]; then T=8; fi\n{SERVE} --tp $T', f"{SERVE} --tp 8"),
    (f"case ${{1:-start}} in stop) kill 1;; start|run) {SERVE};; esac", SERVE),
    (f'set -- --x 1\nshift\n{SERVE} "$@"', f"{SERVE} 1"),
    (f"numactl --cpunodebind=0 taskset -c 0-3 {SERVE}", SERVE),
    (f"sudo -E -u serve A=b {SERVE}", SERVE),
    (f"echo {SERVE}\n{SERVE}", SERVE),
    (f"# {SERVE} --old\n{SERVE}", SERVE),
]  # fmt: skip


@pytest.mark.parametrize(("script", "wanted"), WORDS)
def test_the_servers_words(script, wanted):
    assert argv(script) == wanted


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        (f"export A=1 B='x y'\nC=3\n{SERVE}", {"A": "1", "B": "x y"}),
        (f"A=1\nexport A\nB=2 {SERVE}", {"A": "1", "B": "2"}),
        (f"declare -x A=1; typeset B=2; {SERVE}", {"A": "1"}),
        (f"set -a\nA=1\nset +a\nB=2\n{SERVE}", {"A": "1"}),
        (f"export A=1\nunset A\n{SERVE}", {}),
        (f"export A=1\n(export B=2)\n{SERVE}", {"A": "1"}),
        (f"export A=1\nenv B=2 nohup {SERVE}", {"A": "1", "B": "2"}),
        (f"export A=1\nbash -c 'export B=2; {SERVE}'", {"A": "1", "B": "2"}),
        (f"export A=1\nssh gpu1 'export B=2; {SERVE}'", {"B": "2"}),
        (f"export A=${{A:-x}}\nexport A=$A:y\n{SERVE}", {"A": "x:y"}),
    ],
)
def test_the_servers_environment(script, wanted):
    assert {name: word.text for name, word in only(script).env.items()} == wanted


@pytest.mark.parametrize(
    ("script", "host"),
    [
        (f"ssh gpu1 '{SERVE}'", "gpu1"),
        (f"ssh -p 2222 -l op gpu1 '{SERVE}'", "op@gpu1:2222"),
        (f'H=op@192.0.2.1\nssh -tt $H "{SERVE}"', "op@192.0.2.1"),
        (SERVE, ""),
    ],
)
def test_where_it_runs(script, host):
    assert only(script).host == host


@pytest.mark.parametrize(
    ("script", "line", "why"),
    [
        (f"{SERVE} --x $X", 1, "$X is not set"),
        (f"\n{SERVE} \\\n --x $(hostname)", 3, "$( ) is known only where it runs"),
        (f"X=`date`\n{SERVE} --x $X", 2, "$( ) is known only where it runs"),
        (f"{SERVE} --x *.json", 1, "an unquoted pattern"),
        (f"{SERVE} --x {{a,b}}", 1, "an unquoted pattern"),
        (f"{SERVE} --x $1", 1, "$1 is not set"),
        (f"{SERVE} --x ${{X:?say it}}", 1, "$X is not set"),
        (f"if curl x; then X=1; fi\n{SERVE} --x $X", 2, "$X depends on the if in launch.sh:1"),
        (f"for X in 1 2; do :; X=3; done\n{SERVE} --x $X", 2, "$X depends on the loop in launch.sh:1"),
        (f"nvidia-smi && X=1\n{SERVE} --x $X", 2, "$X depends on the && in launch.sh:1"),
        (f"X=1\n[ -f /x ] && unset X\n{SERVE} --x $X", 3, "$X depends on the && in launch.sh:2"),
        (f"if [ -f v/bin/activate ]; then . /v/bin/activate; fi\n{SERVE}", 2, "which interpreter is meant depends"),
        (f"A[0]=1\n{SERVE} --x ${{A[0]}}", 2, "$A[...] is not read"),
        (f"X=abc\n{SERVE} --x ${{X/b/c}}", 2, "with this operator is not read"),
        (f"ssh gpu1 '\ntrue\n{SERVE} --x $X'", 3, "$X is not set"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_told_with_its_line(script, line, why):
    (word,) = [word for word in only(script).argv if word.unknown]
    assert (word.where, why in word.unknown) == (f"launch.sh:{line}", True), word


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"for i in 0 1; do {SERVE} --port 3000$i & done", "the loop in launch.sh:1"),
        (f"if nvidia-smi; then {SERVE}; fi", "the if in launch.sh:1"),
        (f"curl x || {SERVE}", "the || in launch.sh:1"),
        (f"curl x && {SERVE}", "the && in launch.sh:1"),
        (f"[ -d /m ] && {SERVE}", "the && in launch.sh:1"),
        (f"case $(uname) in Linux) {SERVE};; esac", "the case in launch.sh:1"),
    ],
)
def test_a_server_under_a_condition_says_which(script, why):
    assert only(script).condition == why


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"docker run --gpus all image {SERVE}", "`docker` starts it"),
        (f"srun -N 2 {SERVE}", "`srun` starts it"),
        (f"nohup docker run image {SERVE}", "`docker` starts it"),
        ("python3 -m torch.distributed.run -m sglang.launch_server --model-path /m", "`python3` starts it"),
        (f"ssh $H '{SERVE}'", "$H is not set"),
        (f'ssh gpu1 "{SERVE} --x $X"', "$X is not set"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_says_why(script, why):
    assert why in only(script).blocked


def test_a_folder_that_depends_is_not_known():
    found = only(f"cd /a\nif x; then cd /b; fi\n{SERVE} --x ./y")
    assert found.whole("./y", False) is None


def test_wrappers_that_tune_are_left_out_aloud():
    assert "numactl --cpunodebind=0" in only(f"numactl --cpunodebind=0 {SERVE}").notes[0]


def test_a_file_that_the_script_reads_is_read_too(tmp_path):
    (tmp_path / "env.sh").write_text("\nexport A=1\nPORT=9\n")
    found = only(f"source ./env.sh\n. other.sh\n{SERVE} --port $PORT", tmp_path)
    assert ({n: w.text for n, w in found.env.items()}, found.argv[-1].text) == ({"A": "1"}, "9")
    assert found.env["A"].where == "env.sh:2"
    assert found.notes == ("launch.sh:2: the variables of a file that is read there are not known here",)


def test_a_script_that_is_none_is_told_with_its_line():
    with pytest.raises(ConfigError, match=r"launch.sh:2: is not a shell script: "):
        read("A=1\necho 'x\n")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"f() {{ f; f; }}; f\n{SERVE}", "launch.sh:1: reading the script takes more than"),
        ("true\nf() { eval 'f; f'; }; f; f; f\n" + "bash -c 'true'\n" * 200, "reading the script takes more than"),
        ("A=x\n" + "A=$A$A$A$A\n" * 15, "launch.sh:10: a value grows beyond 128 KiB"),
        ("A=x\n" + "A+=$A\n" * 40, "launch.sh:19: a value grows beyond 128 KiB"),
        ("A=(x y)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40, "reading the script takes more than"),
        ("A=" + "ab" * 60_000 + "\nB=${A##*x*y}", "launch.sh:2: reading the script takes more than"),
        (f"{SERVE} {'${a:-' * 500}{'}' * 500}", "launch.sh:1: is nested too deeply"),
        (f"{SERVE} $(({'(' * 2000}1{')' * 2000}))", "launch.sh:1: is nested too deeply"),
        (f"{SERVE} {'$(' * 3000}x{')' * 3000}", "launch.sh:1: is not a shell script: exceeded max depth"),
    ],
    ids=["calls", "scripts", "value", "appended", "array", "pattern", "defaults", "numbers", "substitutions"],
)  # fmt: skip
def test_a_script_that_asks_for_too_much_is_told_with_its_line(script, why):
    with pytest.raises(ConfigError) as told:
        read(script)
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (SERVE.encode("utf-16"), "launch.sh: is not a shell script: UTF-16"),
        (SERVE.encode("utf-16-le"), "launch.sh: is not a shell script: a NUL byte in line 1"),
        (f"{SERVE}\n\0".encode(), "launch.sh: is not a shell script: a NUL byte in line 2"),
        (b"\x1f\x8b\x08", "launch.sh: is not a shell script: gzip"),
        (b"\x7fELF\x02", "launch.sh: is not a shell script: a program"),
        (b"echo x\n" * 100_000, "launch.sh: is longer than 128 KiB"),
        (None, "launch.sh: cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_no_script_says_what_it_is(tmp_path, content, why):
    file = tmp_path / "launch.sh"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(ConfigError) as told:
        syntax.load(file, "launch.sh")
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("content", "last"),
    [
        (f"# caf\xe9\n{SERVE}".encode("latin-1"), "/m"),
        (f"\ufeff#!/bin/sh\n{SERVE}".encode(), "/m"),
        (f"A=1\r\n{SERVE} \\\r\n --x $A\r\n".encode(), "1"),
        (f"time\n{SERVE}".encode(), "/m"),
        (f"{SERVE} --x caf\xe9".encode("latin-1"), "bytes that are not UTF-8"),
        (f"A=\xb2\n{SERVE} --x $((A+1))".encode(), "$(( ))"),
        (f"A=999999999\nA=$((A*A))\n{SERVE} --x $((A*A))".encode(), "$(( ))"),
        (f"{SERVE} --x $((010))".encode(), "$(( ))"),
        (f"shift {'9' * 5000}\n{SERVE}".encode(), "/m"),
        (b"echo " + b"{," * 60_000 + f"\n{SERVE}".encode(), "/m"),
        (b"echo " + b"[" * 120_000 + f"\n{SERVE}".encode(), "/m"),
    ],
    ids=["latin-1", "mark", "crlf", "time", "latin-1 word", "digit", "big", "octal", "shift", "braces", "brackets"],
)  # fmt: skip
def test_bytes_as_they_come(tmp_path, content, last):
    (tmp_path / "launch.sh").write_bytes(content)
    word = only(syntax.load(tmp_path / "launch.sh", "launch.sh")).argv[-1]
    assert (word.unknown or word.text) == last


def test_nothing_is_run(tmp_path):
    mark = tmp_path / "mark"
    read(f"touch {mark}\nX=$(touch {mark})\n`touch {mark}`\n{SERVE} --x <(touch {mark})")
    assert not mark.exists()


# ---- words that cannot be known and belong to no flag ----------------------------------------------------------------

KEYED = f"{SERVE} --port 8000 --api-key canary"
CHANGED = "EXTRA=(--mem-fraction-static 0.85)\nif curl x; then EXTRA+=(--disable-custom-all-reduce); fi\n"
RUNS = "$( ), which is known only where it runs"
WHICH = "which depends on the if in launch.sh:2"


def taken(script: str, *more: str) -> Fields:
    return fields.of(only(script), local=True, more=more)


LOOSE = [
    (f"{KEYED} $(cat flags)", [f"1: {RUNS}"]),
    (f"{KEYED} $EXTRA_ARGS", ["1: $EXTRA_ARGS, which is not set"]),
    (f'{KEYED} "$EXTRA_ARGS"', ["1: $EXTRA_ARGS, which is not set"]),
    (f"{KEYED} ${{EXTRA:-$(cat flags)}}", [f"1: {RUNS}"]),
    (f'{CHANGED}{KEYED} "${{EXTRA[@]}}"', [f"3: $EXTRA, {WHICH}"]),
    (f'{CHANGED}{KEYED} \\\n "${{EXTRA[@]}}"', [f"4: $EXTRA, {WHICH}"]),
    (f'{CHANGED}ALL=(--x 1 "${{EXTRA[@]}}")\n{KEYED} ${{ALL[@]}}', [f"3: $EXTRA, {WHICH}"]),
    (f'{CHANGED}{SERVE} --port 8000 "${{EXTRA[@]}}"', [f"3: $EXTRA, {WHICH}"]),
    (f'{CHANGED}{SERVE} --port "${{EXTRA[@]}}"', [f"3: $EXTRA, {WHICH}"]),
    (f'f() {{ {KEYED} "$@"; }}\nf $(cat x)', [f"2: {RUNS}"]),
    (f'if curl x; then set -- --tp 2; fi\n{KEYED} "$@"', ["2: $@, which depends on the if in launch.sh:1"]),
    (f'set -- a --tp 2\ncurl x && shift\n{KEYED} "$@"', ["3: $@, which depends on the && in launch.sh:2"]),
    (f'set -- $(cat x)\n{KEYED} "$@"', [f"1: {RUNS}"]),
    (f"{SERVE} --enable-metrics $X", ["1: $X, which is not set"]),
    (f"{SERVE} --x $VLLM_ARGS", ["1: $VLLM_ARGS, which is not set"]),
    (f"{SERVE} --x a $X", ["1: $X, which is not set"]),
    (f"{SERVE} --$X", ["1: $X, which is not set"]),
    (f"{SERVE} --port 1 --x$X", ["1: $X, which is not set"]),
    (
        f"{SERVE} --port 1 $A --x 1 $B",
        [f"1: ${name}, which is not set" for name in "AB"],
    ),
    ("python3 -m sglang.launch_server $A --model-path /m", ["1: $A, which is not set"]),
    ("sglang serve /m $A --port 1", ["1: $A, which is not set"]),
    ("vllm serve /m --api-key canary $A", ["1: $A, which is not set"]),
    ("llama-server -m /m -c 4096 $A", ["1: $A, which is not set"]),
    ("trtllm-serve /m --port 1 $A", ["1: $A, which is not set"]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "told"), LOOSE)
def test_unknown_words_of_no_flag_are_told_as_such(script, told):
    made = taken(script)
    lines = [line.replace("more words come from ", "").removeprefix("launch.sh:") for line in made.loose]
    assert (lines, made.unknown) == (told, {})
    error = fields.unknown(made, [])
    assert error is not None
    assert error.remedy.count("--more '--flag") == len(told)


@pytest.mark.parametrize("value", ["$X", '"$X"', "a$X", "$(cat x)"])
@pytest.mark.parametrize("flag", ["port", "x", "model-path"])
def test_an_unknown_value_of_a_flag_is_of_its_key(flag, value):
    made = taken(f"{SERVE} --{flag} {value} --api-key $(cat key)")
    keys = {"port": ("port",), "x": ("args", "x"), "model-path": ("model", "path")}
    assert (made.loose, list(made.unknown)) == ([], [keys[flag]])
    assert made.said["secrets", "API_KEY"].value == "api-key"


@pytest.mark.parametrize(
    ("script", "more", "wanted"),
    [
        (f"{KEYED} $(cat x)", ["--tp 2 --x 'a b'"], "--port 8000 --api-key canary --tp 2 --x |a b|"),
        (f"{KEYED} $(cat x) --y", [""], "--port 8000 --api-key canary --y"),
        (f"{SERVE} --port 1 $A 0.9 $B --y", ["--x", ""], "--port 1 --x 0.9 --y"),
        (f'{SERVE} --port 1 "$@"', ["--x 2"], "--port 1 --x 2"),
        ("trtllm-serve /m --port 1 $A --y", ["--x 2"], "--port 1 --x 2 --y"),
    ],
)
def test_unknown_words_can_be_said(script, more, wanted):
    made = taken(script, *more)
    assert (made.loose, made.unknown) == ([], {})
    texts = [f"|{word.text}|" if " " in word.text else word.text for word in made.launch.argv]
    assert " ".join(texts).endswith(f"/m {wanted}")
    assert [note.partition(", are ")[2] for note in made.notes] == [
        "as --more says them" if text else "left out, as --more says" for text in more if '"$@"' not in script
    ]


@pytest.mark.parametrize(
    ("script", "more", "why"),
    [
        (f"{SERVE} --port 1 $A --x 1 $B", ["--y"], "more words come from $A"),
        (f"{SERVE} --port 1 $A", ["--y '"], "--more: a quotation is not closed"),
    ],
)
def test_more_that_does_not_fit_is_told(script, more, why):
    with pytest.raises(ConfigError) as caught:
        taken(script, *more)
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (f'E=(--mem-fraction-static 0.85 --api-key canary)\n{SERVE} "${{E[@]}}"', "API_KEY"),
        (f'E=(--api-key=canary)\n{SERVE} "${{E[@]}}"', "API_KEY"),
        (f'K=canary\nE=(--x 1 --api-key "$K")\n{SERVE} "${{E[@]}}"', "K"),
        (f"E='--x 1 --api-key canary'\n{SERVE} $E", "API_KEY"),
        (f"E=--api-key=canary\n{SERVE} $E", "API_KEY"),
        (f'K=canary\nE="--x 1 --api-key $K"\n{SERVE} $E', "K"),
        (f"{SERVE} --api-key=$K", "K"),
        (f"B='--api-key canary'\nE=--x\nE+=\" $B\"\n{SERVE} $E", "API_KEY"),
        (f'f() {{ {SERVE} "$@"; }}\nf --api-key canary', "API_KEY"),
    ],
)
def test_a_secret_is_named_by_its_own_variable_or_its_flag(script, name):
    made = taken(script)
    assert {key[1]: entry.value for key, entry in made.said.items() if key[0] == "secrets"} == {name: "api-key"}
