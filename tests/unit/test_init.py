"""`deploy init`: a first project, profiles of launch scripts, secrets that stay out, nothing written over."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy import engines, inventory, registry, settings
from deploy.commands.init import init as command
from deploy.errors import ConfigError
from deploy.profile import Profile
from deploy.project import Project
from deploy.scaffold import proof
from tests import project
from tests.project import PATIENCE

SERVE = "python3 -m sglang.launch_server --model-path /m"
DRAFT = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d"
LLAMA = "llama-server -m /m.gguf -c 4096 -ngl 99 -fa on"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and we are in it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def init(*words: str) -> dict[str, Any]:
    """What `deploy init ... --json` tells."""
    import io
    from contextlib import redirect_stdout

    told = io.StringIO()
    with redirect_stdout(told):
        command.main([*words, "--json"], standalone_mode=False)
    answer: dict[str, Any] = json.loads(told.getvalue())
    return answer


def profile(folder: Path, name: str) -> Profile:
    return settings.load(name, [], Project(folder), {}, folder).profile()


def of(folder: Path, script: str, *words: str) -> tuple[Profile, dict[str, Any]]:
    """The profile of a script, and what was told."""
    (folder / "launch.sh").write_text(script)
    told = init("--from", "launch.sh", *words)
    return profile(folder, told["profile"]), told


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- a first project ---------------------------------------------------------------------------------------------


def test_an_empty_folder_becomes_a_project_that_plans_at_once(tmp_path):
    here = project.Project(tmp_path / "elsewhere")
    here.folder = tmp_path / "here"
    here.folder.mkdir()
    done = here.run("init")
    assert (done.code, done.err) == (0, ""), done.err
    assert set(files(here.folder)) == {"inventory.yaml", "profiles/first.yaml", "hooks/announce"}
    assert os.access(here.folder / "hooks/announce", os.X_OK)
    plan = here.run("plan", "profile=first")
    assert (plan.code, plan.err) == (0, "")


@pytest.mark.parametrize("engine", registry.names("deploy.engines"))
def test_every_engine_has_a_first_profile(here, engine):
    told = init(f"engine={engine}", "profile=one")
    made = profile(here, "one")
    host = inventory.load(here / "inventory.yaml").select("localhost")[0]
    assert engines.recognise([str(word) for word in proof.node(made, host).argv]) is not None or engine == "command"
    assert told["files"] == ["profiles/one.yaml", "hooks/announce", "inventory.yaml"]


def test_what_is_asked_for_stands_in_the_files(here):
    (here / "draft").mkdir()
    init("--host", "a=op@192.0.2.1:2222", "--host", "b", "model=/m", "draft=draft", "parallel.tp=2", "port=1")
    made = profile(here, "first")
    assert (made.model.path, made.parallel.tp, made.port, made.hosts) == ("/m", 2, 1, ["a", "b"])
    assert made.draft
    assert made.draft.path == str(here / "draft")
    assert "\ndraft: draft #" in (here / "profiles/first.yaml").read_text()
    a, b = inventory.load(here / "inventory.yaml").select("all")
    assert (a.address, a.user, a.port, b.address) == ("192.0.2.1", "op", 2222, "b")


def test_nothing_that_exists_is_written_over(here):
    (here / "hooks").mkdir()
    (here / "hooks/announce").write_text("mine")
    before = files(here)
    with pytest.raises(ConfigError, match="announce is there already") as caught:
        init()
    assert (files(here), caught.value.exit_code) == (before, 2)
    assert not (here / "profiles").exists()


def test_nothing_is_left_half_done(here):
    (here / "hooks").write_text("a file where a folder should be")
    before = files(here)
    with pytest.raises(ConfigError, match="cannot be written"):
        init()
    assert (files(here), [path.name for path in here.iterdir()]) == (before, ["hooks"])


@pytest.mark.parametrize("words", [["engine=nope"], ["prt=1"], ["port=abc"], ["--host", "a b"], ["profile=a/b"]])
def test_a_wrong_word_writes_nothing(here, words):
    with pytest.raises(ConfigError):
        init(*words)
    assert files(here) == {}


def test_somebody_at_a_terminal_is_asked(here):
    main, end = pty.openpty()
    ready = project.Project(here.parent / "other")
    run = subprocess.Popen(
        ready.argv("init"),
        cwd=here,
        env={**ready.environ, "TERM": "dumb"},
        stdin=end,
        stderr=end,
        stdout=subprocess.PIPE,
    )
    os.close(end)
    said = b""
    for question, answer in (
        ("Engine", "llamacpp"),
        ("Model", "/m.gguf"),
        ("draft", ""),
        ("Hosts", "gpu1=op@192.0.2.1"),
    ):
        while question.encode() not in said:
            said += os.read(main, 1024)
        said = b""
        os.write(main, f"{answer}\n".encode())
    run.communicate(timeout=PATIENCE)
    os.close(main)
    made = profile(here, "first")
    assert (run.returncode, made.engine.name, made.model.path, made.hosts) == (0, "llamacpp", "/m.gguf", "gpu1")


# ---- of scripts --------------------------------------------------------------------------------------------------

FIELDS = [
    (
        f"{SERVE} --tp 8 --port 8000 --served-model-name kimi",
        {"parallel.tp": 8, "port": 8000, "model.name": "kimi", "gpus": 8},
    ),
    (
        f"{SERVE} --tp-size=2 --pp-size 2 --dp 2 --ep-size 2",
        {"parallel.tp": 2, "parallel.pp": 2, "parallel.dp": 2, "parallel.ep": 2, "gpus": 4},
    ),
    (
        f"{SERVE} --mem-fraction-static 0.80 --x=a --y b c --z",
        {"args": {"mem-fraction-static": "0.80", "x": "a", "y": ["b", "c"], "z": True}},
    ),
    (f"{SERVE} --host 127.0.0.1", {"args": {}}),
    (f"{SERVE} --host 0.0.0.0", {"args": {"host": "0.0.0.0"}}),
    (f"{SERVE} --x true --y 1 --z -1", {"args": {"x": "true", "y": 1, "z": -1}}),
    (f"{SERVE} --x a --x b --port 1 --port 2", {"args": {"x": ["a", "--x", "b"]}, "port": 2}),
    (
        f"export NCCL_DEBUG=INFO NCCL_NEW=1 NCCL_IB_DISABLE=yes A=b\n{SERVE}",
        {"nccl": {"DEBUG": "INFO"}, "env": {"NCCL_NEW": "1", "NCCL_IB_DISABLE": "yes", "A": "b"}},
    ),
    (f"export SPT_NOENV=1\n{SERVE}", {"env": {}}),
    (f"export CUDA_VISIBLE_DEVICES=4,5\n{SERVE} --tp 2", {"gpus": 2, "env": {"CUDA_VISIBLE_DEVICES": "4,5"}}),
    (f"export CUDA_VISIBLE_DEVICES=4,5,6\n{SERVE} --tp 2", {"gpus": None}),
    (f"source /v/bin/activate\n{SERVE}", {"engine.python": "/v/bin/python3"}),
    (
        f"~/v/bin/{SERVE} --chat-template ~/x.jinja",
        {"engine.python": "~/v/bin/python3", "args": {"chat-template": str(Path.home() / "x.jinja")}},
    ),
    (
        "cd /srv\npython -m sglang.launch_server --model-path ./a/b --chat-template ./c.jinja",
        {"model.path": "/srv/a/b", "args": {"chat-template": "/srv/c.jinja"}},
    ),
    (
        "/opt/v/bin/sglang serve /m --tp 2",
        {"engine.python": "/opt/v/bin/python3", "model.path": "/m", "parallel.tp": 2},
    ),
    (
        f"{SERVE} {DRAFT} --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32",
        {
            "draft.path": "/d",
            "speculative.num_steps": 5,
            "speculative.eagle_topk": 8,
            "speculative.num_draft_tokens": 32,
        },
    ),
    (
        f"{SERVE} {DRAFT} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5",
        {"speculative.num_draft_tokens": None},
    ),
    (
        f"{SERVE} --speculative-algorithm NGRAM --speculative-num-steps 4",
        {"draft": None, "speculative.algorithm": "NGRAM"},
    ),
    (
        f"{LLAMA} -md /d.gguf --spec-type draft-eagle3 --draft-max 4",
        {
            "engine.name": "llamacpp",
            "engine.binary": "llama-server",
            "port": 8080,
            "args": {"ctx-size": 4096, "n-gpu-layers": 99, "flash-attn": "on"},
            "draft.path": "/d.gguf",
            "speculative.algorithm": "EAGLE3",
            "speculative.num_steps": 4,
        },
    ),
    ("llama-server -m /m.gguf -md /d.gguf --port 1", {"speculative.algorithm": "STANDALONE", "port": 1}),
    (
        "trtllm-serve /m --port 1 --x '{\"a\": 1}'",
        {
            "engine.name": "command",
            "port": 1,
            "model.path": "/m",
            "args": {"argv": ["trtllm-serve", "{model}", "--port", "{port}", "--x", '{"a": 1}']},
        },
    ),
]


@pytest.mark.parametrize(("script", "wanted"), FIELDS)
def test_what_a_script_says_of_a_profile(here, script, wanted):
    made, _ = of(here, script)
    for key, value in wanted.items():
        found: Any = made
        for name in key.split("."):
            found = getattr(found, name)
        assert (found.variables() if key == "nccl" else found) == value, key


def test_comments_tell_the_lines_and_the_keys_are_in_order(here):
    of(here, f"export NCCL_DEBUG=INFO\n\n{SERVE} \\\n  --port 1 \\\n  --tp 2 \\\n  --x y\n")
    written = (here / "profiles/launch.yaml").read_text()
    for line in (
        "engine: sglang # line 3",
        "port: 1 # line 4",
        "parallel: {tp: 2} # line 5",
        "  DEBUG: INFO # line 1",
        "  x: y # line 6",
    ):
        assert f"{line}\n" in written, written
    keys = [line.partition(":")[0] for line in written.splitlines() if line and line[0].isalpha()]
    assert keys == ["engine", "hosts", "gpus", "model", "parallel", "port", "nccl", "args"]


DIFFERENCES = [
    (SERVE, ["+ --host 127.0.0.1", "+ --port 30000", "+ SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0", "+ SPT_NOENV=1"]),
    (
        "python3 -u -m sglang.launch_server --model-path /m --host 0.0.0.0 --port 1",
        ["~ program python3 -u -m sglang.launch_server -> python3 -m sglang.launch_server"],
    ),
    (f"{SERVE} --host 0.0.0.0 --port 1 --nnodes 1 --node-rank 0", ["- --nnodes 1", "- --node-rank 0"]),
    (
        f"{SERVE} --port 1 --speculative-algorithm EAGLE3 --speculative-draft-model-path /d",
        [
            "~ --speculative-draft-model-path /d -> --speculative-draft-model-path $run/draft",
            "+ --speculative-num-steps 3",
        ],
    ),
    (f"export PATH=/x:$PATH\n{SERVE} --port 1", ["- PATH=/x:"]),
]


@pytest.mark.parametrize(("script", "wanted"), DIFFERENCES)
def test_every_difference_is_told(here, script, wanted):
    _, told = of(here, script)
    lines = [str(proof.Difference(**one)) for one in told["differences"]]
    for start in wanted:
        assert [line for line in lines if line.startswith(start)], lines


def test_the_same_command_has_no_difference(here):
    _, told = of(
        here, f"export SPT_NOENV=1 SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0\n{SERVE} --port 1 --host 127.0.0.1 --tp 2 --x=y"
    )
    assert told["differences"] == []


def test_all_that_cannot_be_known_is_told_at_once_and_can_be_said(here):
    script = f"ARGS=$(cat args)\n{SERVE} --x $NONE --port 3000$NONE \\\n  --y $(hostname)\n"
    with pytest.raises(ConfigError) as caught:
        of(here, script)
    assert caught.value.what.splitlines() == [
        "launch.sh:2: args.x: $NONE is not set",
        "launch.sh:2: port: $NONE is not set",
        "launch.sh:3: args.y: $( ) is known only where it runs",
    ]
    assert "args.x=... port=... args.y=..." in caught.value.remedy.replace(",", "")
    assert set(files(here)) == {"launch.sh"}
    made, _ = of(here, script, "args.x=1", "args.y=null", "port=7")
    assert (made.args, made.port) == ({"x": 1}, 7)


@pytest.mark.parametrize(
    ("script", "words", "why"),
    [
        ("echo hello", [], "starts no server that is known here"),
        (f"{SERVE}\n{SERVE} --port 2", [], "starts 2 servers"),
        (f"if x; then {SERVE}; fi", [], "depends on the if in launch.sh:1"),
        (f"docker run image {SERVE}", [], "launch.sh:1: `docker` starts it"),
        (SERVE.replace("/m", "meta-llama/Llama-3.1-8B"), [], "if it is no name of the Hugging Face hub"),
        (SERVE.replace("/m", "a/b/c"), [], "lies in a folder that is not known"),
        (f"{SERVE} --nnodes 2 --node-rank 1", [], "one of 2 nodes, and 1 hosts are named"),
        ("python3 -m sglang.launch_server --port 1", [], "model cannot be seen in the command line"),
        ("trtllm-serve /m", [], "port cannot be seen in the command line"),
        (f"conda activate x\n{SERVE}", [], "launch.sh:2: engine.python: which interpreter"),
        (SERVE, ["--line", "7"], "launch.sh:7: no command begins there"),
        ("A='", [], "launch.sh:1: is not a shell script"),
    ],
)
def test_what_a_script_does_not_tell(here, script, words, why):
    with pytest.raises(ConfigError) as caught:
        of(here, script, *words)
    assert why in f"{caught.value.what}\n{caught.value.evidence}", caught.value
    assert set(files(here)) == {"launch.sh"}


def test_a_line_chooses_among_several(here):
    made, _ = of(here, f"for i in 0 1; do\n  {SERVE} --port 1\n  {SERVE} --port 2\ndone", "--line", "3")
    assert made.port == 2


def test_a_project_gets_the_profile_alone(here):
    (here / "inventory.yaml").write_text("hosts: {gpu1: {address: 192.0.2.11, user: op, env: {A: b}}, gpu2: }")
    (here / "sub").mkdir()
    os.chdir(here / "sub")
    (here / "sub/launch.sh").write_text(f"ssh op@192.0.2.11 '{SERVE} {DRAFT}'")
    told = init("--from", "launch.sh")
    made = profile(here, "launch")
    assert told["files"] == ["profiles/launch.yaml"]
    assert (made.hosts, made.draft and made.draft.path) == ("gpu1", "gpu1:/d")
    assert "A=b" in [one["now"] for one in told["differences"]], "the inventory's own variables are planned too"
    with pytest.raises(ConfigError, match="is there already"):
        init("--from", "launch.sh")


@pytest.mark.parametrize(
    ("script", "words", "why"),
    [
        (SERVE, [], "which hosts is it for?"),
        (f"ssh op@192.0.2.99 '{SERVE}'", [], "192.0.2.99 is no host of inventory.yaml"),
        (SERVE, ["--host", "gpu3"], "this project has one"),
    ],
)
def test_hosts_of_a_project_are_never_guessed(here, script, words, why):
    (here / "inventory.yaml").write_text("hosts: {gpu1: , gpu2: }")
    with pytest.raises(ConfigError) as caught:
        of(here, script, *words)
    assert why in caught.value.what


def test_a_new_inventory_has_the_host_of_ssh(here):
    made, _ = of(here, f"ssh -p 2222 op@192.0.2.11 '{SERVE}'")
    (host,) = inventory.load(here / "inventory.yaml").select("all")
    assert (made.hosts, host.address, host.user, host.port) == ("192.0.2.11", "192.0.2.11", "op", 2222)


# ---- secrets -----------------------------------------------------------------------------------------------------

CANARY = "canary-5d41402abc"
SECRETS = [
    (f"export HF_TOKEN={CANARY}\n{SERVE}", {"HF_TOKEN": "env"}),
    (f"K={CANARY}\n{SERVE} --api-key $K", {"K": "api-key"}),
    (f"{SERVE} --api-key {CANARY}", {"API_KEY": "api-key"}),
    (f"{SERVE} --api-key={CANARY}", {"API_KEY": "api-key"}),
    (f'{SERVE} --api-key "$MY_KEY"', {"MY_KEY": "api-key"}),
    (f"export MY_KEY={CANARY}\n{SERVE} --api-key $MY_KEY", {"MY_KEY": "api-key"}),
    (f"export MY_KEY={CANARY}\n{SERVE} --x 'a {CANARY} b' --y pre$MY_KEY", {"MY_KEY": "env"}),
    (f"MY_KEY={CANARY}\n{SERVE} --x pre$MY_KEY", {}),
    (f"export MY_PASSWORD={CANARY} URL=http://u:{CANARY}@192.0.2.1\n{SERVE}", {"MY_PASSWORD": "env"}),
    (f"export MY_KEY={CANARY}\nllama-server -m /m --hf-token $MY_KEY", {"MY_KEY": "env"}),
    (f"llama-server -m /m --api-key {CANARY}", {"API_KEY": "api-key"}),
    (f"export LLAMA_API_KEY={CANARY}\nllama-server -m /m", {"LLAMA_API_KEY": "api-key"}),
    (f"export MY_KEY={CANARY}\ntrtllm-serve /m --port 1 --api-key {CANARY}", {"MY_KEY": "env"}),
    (f"trtllm-serve /m --port 1 --api-key={CANARY}", {}),
    (f"{SERVE} --tokenizer /t --speculative-token-map /x", {}),
    (f"export GITHUB_PAT={CANARY} HF_TOKENS={CANARY}\n{SERVE}", {"GITHUB_PAT": "env", "HF_TOKENS": "env"}),
    (f"export SGLANG_PWD={CANARY} HF_TOKENS=a,{CANARY}\n{SERVE}", {"SGLANG_PWD": "env", "HF_TOKENS": "env"}),
    (f"{SERVE} --x '{{\"api_key\": \"{CANARY}\"}}'", {}),
    (f"{SERVE} --header 'Authorization: Bearer {CANARY}'", {}),
    (f"{SERVE} --url https://{CANARY}@192.0.2.1/x", {}),
    (f"export HF_ENDPOINT=http://u:{CANARY}@192.0.2.1\n{SERVE}", {}),
    (f"trtllm-serve /m --port 1 --header 'Authorization: Bearer {CANARY}'", {}),
    (f"trtllm-serve /m --port 1 --x --api-key={CANARY}", {}),
]  # fmt: skip


@pytest.mark.parametrize(("script", "wanted"), SECRETS)
def test_secrets_are_named_and_their_values_are_nowhere(here, script, wanted):
    made, told = of(here, script)
    assert made.secrets == wanted
    written = {name: text for name, text in files(here).items() if name != "launch.sh"}
    assert CANARY not in json.dumps([told, written])


def test_of_a_line_that_is_taken_whole_the_secret_alone_is_left_out(here):
    made, told = of(here, "trtllm-serve /m --port 1 --x --api-key=abc --y --token a4b --max-tokens 5")
    assert made.args == {"argv": ["trtllm-serve", "{model}", "--port", "{port}", "--x", "--y", "--max-tokens", 5]}
    assert "a4b" not in json.dumps(told)


COUNTED = "--max-total-tokens 5 --x '{\"num_speculative_tokens\": 3}'"


def test_a_count_is_no_secret(here):
    made, _ = of(here, f"export SGLANG_MAX_TOKENS=5\n{SERVE} {COUNTED}")
    assert made.args == {"max-total-tokens": 5, "x": '{"num_speculative_tokens": 3}'}
    assert (made.env, made.secrets) == ({"SGLANG_MAX_TOKENS": "5"}, {})


@pytest.mark.parametrize(
    "script",
    [
        f"export HF_TOKEN={CANARY}\n{SERVE} --x $NONE",
        f"export HF_TOKEN={CANARY}\n{SERVE} --api-key {CANARY}\n{SERVE}",
        f"export HF_TOKEN='{CANARY}",
        f"export HF_TOKEN={CANARY}(\n",
        f"{SERVE} --port {CANARY} --api-key {CANARY} --x $NONE",
        f"./serve --api-key {CANARY}",
        f"./serve --token={CANARY}",
        f"HF_TOKEN={CANARY} ./serve a b",
    ],
)
def test_secrets_are_in_no_error(here, script):
    with pytest.raises(ConfigError) as caught:
        of(here, script)
    assert CANARY not in str(caught.value)


def test_the_texts_for_people_name_files_differences_and_what_is_next(here, capsys):
    (here / "launch.sh").write_text(f"numactl -N 0 {SERVE}")
    command.main(["--from", "launch.sh"], standalone_mode=False)
    told = capsys.readouterr().out
    for part in (
        "wrote ",
        "the same command but for:\n  + --host",
        "To know:\n  launch.sh:1: `numactl -N 0`",
        "next: deploy plan profile=launch",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("script", "words", "wanted", "not_wanted"),
    [
        (SERVE, [], ["hosts=gpu1 if it runs there"], "export"),
        (
            f"export HF_TOKEN={CANARY}\n{SERVE} --api-key x",
            [],
            ["export API_KEY=... HF_TOKEN=...", "localhost"],
            CANARY,
        ),
        (SERVE, ["hosts=localhost"], [], "localhost, this"),
        (SERVE, ["--host", "gpu1"], [], "localhost, this"),
        (f"ssh gpu1 '{SERVE}'", [], [], "localhost, this"),
    ],
)
def test_what_is_to_be_done_before_up_is_told(here, script, words, wanted, not_wanted):
    _, told = of(here, script, *words)
    notes = "\n".join(told["notes"])
    assert [part for part in wanted if part not in notes] == []
    assert not_wanted not in notes


def test_nothing_is_written_while_words_are_unknown_and_they_can_be_said(here):
    script = f"{SERVE} --port 8000 --api-key {CANARY} $(cat flags)"
    with pytest.raises(ConfigError, match=r"launch.sh:1: more words come from"):
        of(here, script, "args.x=1")
    assert set(files(here)) == {"launch.sh"}
    made, told = of(here, script, "--more", "--tp 2 --x y")
    assert (made.parallel.tp, made.args, made.port, made.secrets) == (2, {"x": "y"}, 8000, {"API_KEY": "api-key"})
    assert "are as --more says them" in told["notes"][0]


def test_more_is_for_scripts(here):
    for words in ([], ["--from", "localhost:1"]):
        with pytest.raises(ConfigError, match="--more is for a script"):
            init(*words, "--more", "")


def test_the_example_of_the_documentation_is_what_comes_out(here):
    page = (project.ROOT / "docs/init.md").read_text()
    script, written = (page.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("sh", "yaml"))
    _, told = of(here, script)
    assert (here / "profiles/launch.yaml").read_text() == written
    shown = page.partition("but for:\n")[2].partition("```")[0].splitlines()
    assert [f"  {proof.Difference(**one)}" for one in told["differences"]] == shown
