"""A planted secret is looked for everywhere: it is in 0600 files of the host and in the server's log there, no more."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fleet
from tests.fleet import TestHost
from tests.places import over_ssh, project_on
from tests.project import Done, Project

TOKEN, KEY = "canary-token-5f1e7", "canary'key\"5f1e8"
FORMS = [TOKEN, "canary'key", "canary'\"'\"'key", "canary%27key", "5f1e7", "5f1e8"]
# Every file of the host with the secret in it, and its mode; and every process with it in its words.
SWEEP = """
import json, os, sys
forms = [form.encode() for form in json.loads(sys.argv[1])]
found = {}
for top in sys.argv[2:]:
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    if any(form in file.read() for form in forms):
                        found[path] = oct(os.stat(path).st_mode & 0o777)
            except OSError:
                continue
print(json.dumps(found))
"""
WATCH = """
import json, os, sys, time
forms = [form.encode() for form in json.loads(sys.argv[1])]
own, seen = os.getpid(), set()
while not os.path.exists(sys.argv[2]):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if int(pid) != own and any(form in words for form in forms) and sys.argv[2].encode() not in words:
            seen.add(words.replace(b"\\0", b" ").decode(errors="replace"))
    time.sleep(0.005)
print(json.dumps(sorted(seen)))
"""
HOOK = f"""#!/bin/sh
echo "the hook says {TOKEN} and {KEY.replace('"', chr(92) + '"')}" >&2
exit "${{1:-0}}"
"""


@pytest.fixture
def host(fleet) -> TestHost:
    made: TestHost = fleet(1)[0]
    return made


@pytest.fixture
def project(host: TestHost, tmp_path: Path) -> Iterator[Project]:
    with project_on(tmp_path / "project", over_ssh(host)) as made:
        hook = made.folder / "hook"
        hook.write_text(HOOK)
        hook.chmod(0o755)
        made.fake(
            secrets={"CANARY": "env", "SERVER_KEY": "api-key"},
            hooks={"failed": [{"run": "hook", "args": ["3"]}]},
        )
        made.environ |= {"CANARY": TOKEN, "SERVER_KEY": KEY}
        yield made


@contextlib.contextmanager
def processes_watched(host: TestHost, folder: Path) -> Iterator[list[str]]:
    """The command lines with the secret in them, of all processes on this machine, which are the host's as well."""
    end, seen = folder / "end", list[str]()
    watcher = threading.Thread(target=lambda: seen.extend(json.loads(here(WATCH, json.dumps(FORMS), str(end)))))
    watcher.start()
    try:
        yield seen
    finally:
        end.touch()
        watcher.join()


def here(source: str, *words: str) -> str:
    return fleet.run(sys.executable, "-I", "-c", source, *words)


def leaks(done: Done) -> list[str]:
    return [form for form in FORMS if form in done.out + done.err]


# The life of a deployment, its failures too: (words, more of the environment, exit code).
LIFE: list[tuple[list[str], dict[str, str], int]] = [
    (["plan", "profile=fake", "--json"], {}, 0),
    (["check", "profile=fake"], {}, 0),
    (["up", "profile=fake", "-vv"], {}, 0),
    (["up", "profile=fake", "--jsonl"], {}, 0),
    (["smoke", "--json"], {}, 0),
    (["status", "--json"], {}, 0),
    (["ask", "say it", "--json"], {}, 0),
    (["hosts", "--json"], {}, 0),
    (["history", "--hosts", "all", "--json"], {}, 0),
    (["logs"], {}, 0),
    (["restart", "-vv"], {}, 0),
    (["up", "profile=fake", "-vv", 'env.FAKE={"die_at": "weights", "lifetime": 60}'], {}, 6),
    (["up", "profile=fake", "-vv", 'env.FAKE={"die_at": "weights", "lifetime": 60}', "--json"], {}, 6),
    (["logs", "-n", "1000"], {}, 0),
    (["rollback", "-vv"], {"CANARY": "", "SERVER_KEY": ""}, 0),
    (["logs"], {"CANARY": "", "SERVER_KEY": ""}, 0),
    (["history"], {}, 0),
    (["down"], {}, 0),
]


def test_a_secret_is_nowhere_but_in_its_files_and_in_the_servers_log(host: TestHost, project: Project, tmp_path: Path):
    with processes_watched(host, tmp_path) as seen:
        told = [(words, project.run(*words, env=env), code) for words, env, code in LIFE]
    assert [(words, done.code, done.err[-800:]) for words, done, code in told if done.code != code] == []
    assert [(words, leaks(done)) for words, done, _ in told if leaks(done)] == []
    assert seen == []
    recorded = json.loads(here(SWEEP, json.dumps(FORMS), str(project.folder / "runs"), str(project.folder / "cache")))
    assert recorded == {}
    words = (json.dumps(FORMS), "/home/op", "/tmp", "/run", "/var/log")
    kept = json.loads(host.inside(sys.executable, "-I", "-c", SWEEP, *words))
    assert kept, "the server was given it"
    own = ("/env", "/secrets.json", "/secrets.yaml", "/server.log", "/hooks/hook")
    assert [path for path, mode in kept.items() if not path.endswith(own) or mode not in ("0o600", "0o700")] == []
