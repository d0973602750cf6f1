"""Hosts that are reached together share OpenSSH's answers, and each has the very one that it would have got alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from deploy.transport._configuration import Configuration, renamed, sections

# {what it shows: (the file, hosts, how many of the answers are shared)}; {} is replaced by the folder
CASES = {
    "nothing is said": ("", ["gpu1", "gpu2", "10.0.0.3"], 2),
    "one section for all": ("Host *\n User me\n Port 2200\n", ["gpu1", "gpu2", "gpu3"], 2),
    "sections by pattern": (
        "Host gpu? !gpu2\n User me\nHost gpu2\n User you\nHost *\n Port 2222\n",
        ["gpu1", "gpu2", "gpu3", "cpu1", "cpu2"],
        2,
    ),
    "keywords as OpenSSH takes them": ("host=gpu1\n User=me\n  HOST  gpu2\n user you\n", ["gpu1", "gpu2", "gpu3"], 0),
    "brackets are no pattern": ("Host gpu[12]\n User me\n", ["gpu1", "gpu2"], 1),
    "a Match decides by more than names": ("Match host gpu2,gpu3\n User me\n", ["gpu1", "gpu2"], 0),
    "a name in the answer": ("Host *\n HostName %h.example\n", ["gpu1", "gpu2"], 0),
    "a name in another option": (
        "Host *\n IdentityFile ~/.ssh/%n\n UserKnownHostsFile ~/k_%h\n",
        ["gpu1", "gpu2"],
        None,
    ),
    "a proxy by name": ("Host *\n ProxyCommand nc %h %p\n", ["gpu1", "gpu2"], None),
    "a jump host for all but itself": ("Host * !door\n ProxyJump door\n", ["gpu1", "door", "gpu2"], 1),
    "quoted patterns": ('Host "gpu1"\n User me\n', ["gpu1", "gpu2"], 0),
    "an included file": ("Include {}/more\nHost *\n User all\n", ["gpu1", "gpu2", "gpu3"], 1),
    "a file included for some": ("Host gpu1\n Include {}/more\nHost *\n User all\n", ["gpu3", "gpu1", "gpu2"], 1),
    "upper case": ("Host GPU1\n User me\n", ["GPU1", "gpu1", "GPU2"], 0),
    "names that must be resolved": ("CanonicalizeHostname yes\nCanonicalDomains localhost\n", ["gpu1", "gpu2"], 0),
}
MORE = "Host gpu1\n User included\n"


def alone(file: Path, name: str) -> dict[str, list[str]]:
    done = subprocess.run(["ssh", "-G", "-F", file, "-p", "22", "--", name], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        option, _, value = line.partition(" ")
        found.setdefault(option.lower(), []).append(value)
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_host_has_the_answer_that_it_would_have_got_alone(case, tmp_path, monkeypatch):
    text, names, shared = CASES[case]
    file, counted = tmp_path / "config", tmp_path / "counted"
    file.write_text(text.format(tmp_path))
    (tmp_path / "more").write_text(MORE)
    (tmp_path / "ssh").write_text(f'#!/bin/sh\necho >>{counted}\nexec {_program("ssh")} "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    expected = {name: alone(file, name) for name in names}
    monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(file))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = Configuration()
    assert {name: said.of(name, ("-p", "22")) for name in names} == expected
    asked = len(counted.read_text().splitlines())
    if shared is not None:
        assert len(names) - shared <= asked <= len(names) - shared + 1  # the first one may be asked about twice


def _program(name: str) -> str:
    return subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()


def test_another_user_or_port_is_another_question(tmp_path, monkeypatch):
    (tmp_path / "config").write_text("Host *\n User me\n")
    monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(tmp_path / "config"))
    said = Configuration()
    ports = [said.of(name, ("-p", port))["port"] for name, port in (("a", "1"), ("b", "2"), ("c", "1"))]
    assert ports == [["1"], ["2"], ["1"]]


def test_the_defaults_are_those_of_no_file(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("Host *\n Port 2200\n")
    monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(tmp_path / "config"))
    assert Configuration().default()["port"] == ["22"]


def test_an_answer_with_one_of_the_names_in_it_is_for_that_host_alone():
    answer = {"host": ["a1"], "hostname": ["a1"], "user": ["me"]}
    assert renamed("a1", answer, "b2") == {"host": ["b2"], "hostname": ["b2"], "user": ["me"]}
    assert renamed("a1", answer | {"controlpath": ["/tmp/a1"]}, "b2") is None
    assert renamed("a1", answer | {"proxyjump": ["b2"]}, "b2") is None
    assert renamed("a1", answer | {"hostname": ["a1.example"]}, "b2") is None
    assert renamed("a1", answer | {"canonicalizehostname": ["always"]}, "b2") is None


def test_files_that_cannot_be_read_are_no_ground_to_share(tmp_path):
    assert sections([]) is None
    assert sections([tmp_path / "nowhere"]) is None
