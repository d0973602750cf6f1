"""The command line itself: help, words that are wrong, exit codes, pipes that close, Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy import cli, errors, registry
from deploy.errors import DeployError
from deploy.inventory import Host
from deploy.locking import lease
from deploy.transport.local import LocalTransport
from tests.project import EXAMPLES, PATIENCE, ROOT, Project, free_port

COMMANDS = [name.rstrip("_") for name in registry.names("deploy.commands")]
HEAVY = ["fabric", "invoke", "paramiko", "pydantic", "rich", "tenacity", "yaml"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


# ---- help --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_examples_and_imports_nothing_heavy(command):
    script = (
        "import sys\nfrom deploy.cli import main\n"
        f"sys.argv = ['deploy', *{command!r}.split(), '--help']\n"
        "try:\n    main()\nfinally:\n"
        f"    print('imported:', *sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "imported:\n")
    assert re.search(rf"Examples:\n +deploy {command}", done.stdout)


@pytest.mark.parametrize(
    ("command", "usage", "events"),
    [
        ("up", "up [OPTIONS] [KEY=VALUE]...", True),
        ("status", "status [OPTIONS] [KEY=VALUE]...", False),
        ("logs", "logs [OPTIONS] [KEY=VALUE]...", False),
        ("ask", "ask [OPTIONS] QUESTION [KEY=VALUE]...", False),
        ("explain", "explain [OPTIONS] [LOGFILE|-] [KEY=VALUE]...", False),
    ],
)
def test_help_has_no_option_that_the_command_refuses(command, usage, events):
    told = CliRunner().invoke(getattr(registry.load("deploy.commands", command, "command"), command), ["--help"]).output
    assert told.startswith(f"Usage: {usage}\n")
    assert [f" {option}" in told for option in ("--jsonl", "-q,", "-v,", "-y,")] == [events] * 4


def test_the_commands_stand_in_the_order_in_which_a_user_meets_them(project):
    told = project.run("--help").out.partition("Commands:\n")[2]
    assert re.findall(r"^  (\w+)", told, re.MULTILINE) == list(cli.ORDER)
    assert set(cli.ORDER) == set(COMMANDS)


def test_the_version_is_told(project):
    from deploy import __version__

    assert project.run("--version").out.strip().endswith(__version__)


# ---- what is wrong is told with the nearest right one ------------------------------------------------------------

WRONG = [
    (["upp"], "there is no command 'upp'; did you mean 'up'?"),
    (["xyzzy"], "there is no command 'xyzzy'; known: init, up, restart"),
    (["profile", "shw"], "show"),
    (["status", "--jsno"], "--json"),
    (["--verison"], "--version"),
    (["up", "profile=kimi", "prt=8000"], "there is no key 'prt' in a profile\n-> did you mean port?"),
    (["up", "profile=kimi", "paralel.tp=8"], "did you mean parallel.tp?"),
    (["up", "profile=kimi", "nccl.DEBUF=INFO"], "did you mean nccl.DEBUG?"),
    (["up", "profile=kimi", "port=many"], "port"),
    (["up", "profile=kimj"], "did you mean kimi?"),
    (["up", "profile=kimi", "--hosts", "gpu9"], "gpu9"),
    (["up"], "no profile is named\n-> profile=NAME; known: kimi"),
    (["up", "profile=kimi", "kimi"], "'kimi' is not key=value"),
    (["logs", "-n", "many"], "many"),
    (["ask", "x", "--timeout", "nan"], "no finite number"),
    (["ask", "x", "--timeout", "1e300"], "is not in the range"),
    (["ask", "x", "--temperature", "inf"], "no finite number"),
    (["hosts", "gpu1"], "did you mean --hosts gpu1?"),
    (["tunnel", "-p", "99999"], "0<=x<=65535"),
    (["up", "profile=kimi", "draft=no/such", "speculative={}"], "draft=no/such: draft: "),
    (["up", "profile=kimi", "draft=no/such", "speculative={}"], "without a draft: ~draft ~speculative"),
    (["history", "nothing"], "there are no runs"),
    (["history", "last", "--replay", "--speed", "nan"], "no finite number"),
    (["--project", "/nowhere", "status"], "No such option"),
    (["restart", "--ckpt", "there", "--cold", "--hot"], "say one of them, or neither"),
    (["status", "--project", "/nowhere"], "/nowhere is not a project"),
]


@pytest.mark.parametrize(("words", "told"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_word_is_exit_2_and_told(words, told, project):
    project.profile("kimi", engine="sglang", hosts="localhost", model="/m")
    done = project.run(*words)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_check_that_does_not_exist_cannot_be_waived(project):
    project.profile("kimi", engine={"name": "command"}, hosts="localhost", model="/m", args={"argv": ["true"]})
    done = project.run("check", "profile=kimi", "waive=[dsk]")
    assert done.code == 2
    assert "waive: there is no check 'dsk'\n-> did you mean 'disk'?" in done.err
    assert project.run("check", "profile=kimi", "waive=[model]").code == 0


def test_a_secret_that_is_not_here_is_told_by_check_and_plan(project):
    command = {"engine": {"name": "command"}, "model": str(EXAMPLES / "target"), "args": {"argv": ["true"]}}
    project.profile("kimi", **command, hosts="localhost", secrets=["A_TOKEN"])
    done, there = project.run("check", "profile=kimi", "--json"), {"A_TOKEN": "x"}
    assert (done.code, [one["what"] for one in done.json if one["check"] == "secrets"]) == (
        5,
        ["the secret A_TOKEN is not in the environment"],
    )
    assert "without them `up` refuses: A_TOKEN" in project.run("plan", "profile=kimi").out
    assert "A_TOKEN: in the environment" in project.run("check", "profile=kimi", env=there).out
    assert "refuses" not in project.run("plan", "profile=kimi", env=there).out


# ---- exit codes --------------------------------------------------------------------------------------------------


def test_every_error_has_the_exit_code_that_the_tree_says():
    tree = dict(re.findall(r"^ *(\w+) +(\d+)\b", errors.__doc__ or "", re.MULTILINE))
    assert tree == {
        kind.__name__: str(kind.exit_code)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, DeployError) and not issubclass(kind, errors.RemoteFailed)
    }
    documented = (ROOT / "docs" / "exit-codes.md").read_text()
    for code in tree.values():
        assert re.search(rf"\b{code}\b", documented), code


def test_a_host_that_does_not_answer_is_exit_3(project, tmp_path):
    at = {"gpu1": {"address": "127.0.0.1", "port": free_port()}}
    done = Project(tmp_path / "other", at).run("status", env={"DEPLOY_SSH_CONFIG": "/dev/null"})
    assert done.code == 3
    assert "gpu1" in done.err


def test_a_draft_on_a_host_that_does_not_answer_is_exit_3(tmp_path):
    silent = Project(tmp_path, {"gpu2": {"address": "127.0.0.1", "port": free_port()}})
    silent.fake(hosts="gpu2", draft="gpu2:/data/x")
    done = silent.run("plan", "profile=fake", env={"DEPLOY_SSH_CONFIG": "/dev/null"})
    assert (done.code, "gpu2" in done.err, "refused" in done.err) == (3, True, True), done.err


def test_a_host_that_somebody_holds_is_exit_4(project):
    port = project.fake()
    own = {name: str(project.folder / name) for name in ("lock", "work")}  # the audit of whoever tests is not ours
    at = Host.model_validate({"name": "here", "transport": "local", **own})
    with lease.take(at, LocalTransport(), "up profile=theirs"):
        done = project.run("up", "profile=fake")
    assert done.code == 4
    assert "up profile=theirs" in done.err
    assert port


def test_our_own_bug_is_a_traceback_and_exit_1(project, tmp_path):
    script = (
        "import sys, click\nfrom deploy import cli\n"
        "@click.command\ndef broken():\n    return 1 / 0\n"
        "cli.deploy.add_command(broken)\n"
        "cli.Commands.get_command = lambda *_: broken\n"
        "sys.argv = ['deploy', 'broken']\ncli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_an_error_is_told_with_evidence_and_remedy_and_steers_no_terminal(capsys):
    cli.tell(DeployError("it\x1b[2J broke", evidence="line 1\nline \x1b]0;title\x07 2", remedy="mend it"))
    told = capsys.readouterr()
    assert told.out == ""
    assert [line[:6] for line in told.err.splitlines()] == ["error:", "  line", "  line", "-> men"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", told.err)


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_an_error_on_a_terminal_is_red_unless_no_colour_is_wanted(environ, coloured, project):
    primary, secondary = pty.openpty()
    with subprocess.Popen(
        project.argv("up"), cwd=project.folder, env={**project.environ, **environ}, stderr=secondary,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        process.wait(timeout=PATIENCE)
    os.close(secondary)
    told = os.read(primary, 4096)
    os.close(primary)
    assert (b"\x1b[31m" in told) is coloured


# ---- pipes and signals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["profile", "schema"], ["--help"], ["profile", "list"], ["profile", "list", "--json"]]
)
def test_a_pipe_that_is_closed_is_no_traceback(words, project):
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        project.argv(*words), cwd=project.folder, env=project.environ, stdout=writer, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writer)
        assert process.stderr
        assert process.stderr.read() == ""
        assert process.wait(timeout=PATIENCE) == 1


def test_ctrl_c_while_connecting_is_exit_130_at_once(tmp_path):
    with socket.socket() as silent:  # accepts, and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        project = Project(tmp_path / "p", {"gpu1": {"address": "127.0.0.1", "port": silent.getsockname()[1]}})
        with project.started("status", DEPLOY_SSH_CONFIG="/dev/null") as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                started = time.monotonic()
                out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert time.monotonic() - started < 25
    assert out == ""
    assert "Traceback" not in err
