"""Host keys that become known, and hosts side by side: over real sshds, behind jump hosts, and one that is dead."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.fleet import Keys, TestHost, loopback, run
from tests.project import PATIENCE, Done, Project, free_port

pytestmark = pytest.mark.sshd

Make = Callable[..., Project]


@pytest.fixture
def stranger(keys: Keys, tmp_path: Path) -> Make:
    """A project of somebody who knows no host yet; `lines` are of his ssh configuration."""

    def make(*lines: str, **hosts: dict[str, Any]) -> Project:
        project = Project(tmp_path / "project", hosts)
        known = tmp_path / "ssh" / "known"
        ours = keys.config.read_text().replace(str(keys.known_hosts), str(known))
        (tmp_path / "config").write_text("\n".join([*lines, ours]))
        project.environ["DEPLOY_SSH_CONFIG"] = str(tmp_path / "config")
        return project

    return make


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """His known_hosts, in a folder that is not there yet."""
    return tmp_path / "ssh" / "known"


def at(host: TestHost, **more: Any) -> dict[str, Any]:
    entry = {"address": host.address, "user": host.user, "key": host.key, **more}
    return {**entry, "port": host.port} if host.port else entry


def fingerprints(key: Path) -> str:
    return run("ssh-keygen", "-lf", f"{key}.pub").split()[1]


def openssh(project: Project, host: dict[str, Any], *way: str) -> int:
    """How OpenSSH's own client, which rsync uses, ends on the same host."""
    words = ["ssh", "-F", project.environ["DEPLOY_SSH_CONFIG"], "-o", "BatchMode=yes", *way]
    words += ["-o", "StrictHostKeyChecking=yes", "-i", host["key"], "-l", host["user"]]
    words += ["-p", str(host["port"])] if "port" in host else []
    return subprocess.run([*words, host["address"], "true"], capture_output=True, check=False).returncode


# ---- one host ----------------------------------------------------------------------------------------------------


def test_a_key_is_shown_then_added_and_taken_by_both_clients(sshd: TestHost, keys: Keys, stranger: Make, known: Path):
    project = stranger(gpu1=at(sshd))
    refused = project.run("status")
    assert (refused.code, "-> deploy hosts trust gpu1" in refused.err) == (3, True), refused.err

    shown = project.run("hosts", "trust")
    assert (shown.code, known.exists()) == (2, False), shown.err
    assert "nothing was written" in shown.err and "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in shown.err

    done = project.run("hosts", "trust", "gpu1", "-y")
    assert (done.code, done.out) == (0, f"gpu1: added, in {known}\n"), done.err
    assert [line.split()[0] for line in done.err.splitlines()] == ["gpu1", "ssh-ed25519", "Compare"]
    key = keys.known_hosts.read_text().partition(f"[{sshd.address}]:{sshd.port} ")[2].splitlines()[0]
    assert known.read_text() == f"[{sshd.address}]:{sshd.port} {key}\n"
    assert [path.stat().st_mode & 0o777 for path in (known, known.parent)] == [0o600, 0o700]
    assert (openssh(project, at(sshd)), project.run("status").code) == (0, 0)
    again = project.run("hosts", "trust")
    assert (again.code, again.out) == (0, "gpu1: known\n")


def test_all_kinds_are_shown_with_the_fingerprints_that_the_host_s_console_shows(
    keys: Keys, stranger: Make, known: Path
):
    own = [keys.make(f"{kind}-{os.urandom(3).hex()}", kind) for kind in ("rsa", "ecdsa")]
    with loopback(keys, *(f"HostKey {key}" for key in own)) as host:
        done = stranger(gpu1=at(host)).run("hosts", "trust", "-y", "--json")
    (row,) = done.json
    assert [key["kind"] for key in row["keys"]] == ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"]
    assert {fingerprints(key) for key in own} < {key["fingerprint"] for key in row["keys"]}
    assert all(key["fingerprint"] in done.err for key in row["keys"])
    assert len(known.read_text().splitlines()) == 3


@pytest.mark.parametrize(("answer", "code", "added"), [(b"y\n", 0, True), (b"\n", 5, False)], ids=["yes", "no"])
def test_somebody_at_a_terminal_is_asked(sshd, stranger: Make, known: Path, answer: bytes, code: int, added: bool):
    project = stranger(gpu1=at(sshd))
    primary, secondary = pty.openpty()
    with subprocess.Popen(
        project.argv("hosts", "trust"), cwd=project.folder, env=project.environ, stdin=secondary, stderr=secondary,
        stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        os.close(secondary)
        told = b""
        while b"Are these the keys of gpu1?" not in told:
            assert select.select([primary], [], [], 30)[0], told
            told += os.read(primary, 4096)
        assert b"SHA256:" in told
        os.write(primary, answer)
        process.wait(PATIENCE)
    os.close(primary)
    assert (process.returncode, known.exists()) == (code, added)


def test_what_stands_in_the_file_stays_and_a_missing_line_end_is_no_harm(sshd, stranger: Make, known: Path):
    known.parent.mkdir()
    known.write_text("other.example ssh-ed25519 AAAA a comment\n# mine")
    known.chmod(0o644)
    project = stranger(gpu1=at(sshd))
    assert project.run("hosts", "trust", "-y").code == 0
    assert known.read_text().startswith("other.example ssh-ed25519 AAAA a comment\n# mine\n[127.")
    assert (known.stat().st_mode & 0o777, openssh(project, at(sshd))) == (0o644, 0)


def test_names_are_hashed_where_ssh_would_hash_them(sshd, stranger: Make, known: Path):
    project = stranger("Host *", " HashKnownHosts yes", gpu1=at(sshd))
    assert project.run("hosts", "trust", "-y").code == 0
    assert known.read_text().startswith("|1|") and sshd.address not in known.read_text()
    assert (openssh(project, at(sshd)), project.run("status").code) == (0, 0)


def test_a_host_with_an_alias_is_known_by_it(sshd, stranger: Make, known: Path):
    project = stranger("Host *", " HostKeyAlias the-gpus", gpu1=at(sshd))
    assert project.run("hosts", "trust", "-y").code == 0
    assert known.read_text().startswith("the-gpus ssh-ed25519 ")
    assert (openssh(project, at(sshd)), project.run("status").code) == (0, 0)


def test_an_address_of_ipv6(keys: Keys, stranger: Make, known: Path):
    port = free_port()
    with loopback(keys, f"ListenAddress [::1]:{port}") as host:
        entry = {**at(host), "address": "::1", "port": port}
        project = stranger(gpu1=entry)
        assert project.run("hosts", "trust", "-y").code == 0
        assert known.read_text().startswith(f"[::1]:{port} ssh-ed25519 ")
        assert (openssh(project, entry), project.run("status").code) == (0, 0)


# ---- what is never added -----------------------------------------------------------------------------------------


def wrong(form: str, sshd: TestHost, keys: Keys, known: Path) -> str:
    """Lines of known_hosts; {own} is the host's key, {other} and {rsa} are two that it does not have."""
    name = f"[{sshd.address}]:{sshd.port}"
    own = keys.known_hosts.read_text().partition(f"{name} ")[2].splitlines()[0]
    made = [keys.make(f"other-{os.urandom(3).hex()}", kind) for kind in ("ed25519", "rsa")]
    other, rsa = (" ".join(Path(f"{key}.pub").read_text().split()[:2]) for key in made)
    known.parent.mkdir()
    text = form.format(name=name, address=sshd.address, own=own, other=other, rsa=rsa, torn=other[:-8])
    known.write_text(text)
    return text


NEVER = [
    ("another of its kind", "# a line\n{name} {other}\n", "CHANGED", "known line 2", "ssh-keygen -R"),
    ("of another kind alone", "{name} {rsa}\n", "CHANGED", "known line 1", "ssh-keygen -R"),
    ("for a pattern", "*,[127.*]:* {other}\n", "CHANGED", "known line 1", "ssh-keygen -R"),
    ("revoked", "@revoked * {own}\n", "revoked", "known line 1", "do not connect"),
    (
        "revoked after it was known",
        "{name} {own}\n@revoked {name} {own}\n",
        "revoked",
        "known line 2",
        "do not connect",
    ),
    (
        "another one, of which one was revoked",
        "{name} {other}\n@revoked * {other}\n",
        "CHANGED",
        "line 1",
        "ssh-keygen -R",
    ),
]


@pytest.mark.parametrize(("form", "what", "line", "remedy"), [c[1:] for c in NEVER], ids=[c[0] for c in NEVER])
def test_a_key_that_contradicts_known_hosts_is_never_added(sshd, keys, stranger, known, form, what, line, remedy):
    text = wrong(form, sshd, keys, known)
    project = stranger(gpu1=at(sshd))
    refused = project.run("status")
    done = project.run("hosts", "trust", "-y")
    assert (refused.code, done.code, known.read_text()) == (3, 5, text), done.err
    for told in (refused.err, done.err):
        assert all(word in told for word in (what, line, remedy, "SHA256:")), told
        assert "deploy hosts trust" not in told


STILL = [
    ("its own, and one of another kind", "{name} {rsa}\n{name} {own}\n", "known"),
    ("without the port", "{address} {own}\n", "known"),
    ("another host's, without the port", "{address} {other}\n", "added"),
    ("torn lines", "{name} ssh-ed25519 AAAA\n{name} {torn}\n|1|abc {other}\n|1| {other}\n{name} ssh-rsa é\n", "added"),
]


@pytest.mark.parametrize(("form", "state"), [case[1:] for case in STILL], ids=[case[0] for case in STILL])
def test_a_key_that_known_hosts_does_not_contradict(sshd, keys, stranger, known, form, state):
    wrong(form, sshd, keys, known)
    project = stranger(gpu1=at(sshd))
    before = project.run("status")
    assert ("deploy hosts trust gpu1" in before.err) == (state == "added"), before.err
    done = project.run("hosts", "trust", "-y")
    assert (done.code, done.out.split(",")[0].strip()) == (0, f"gpu1: {state}"), done.err
    assert (openssh(project, at(sshd)), project.run("status").code) == (0, 0)


def test_a_file_that_cannot_be_written_is_told_with_the_lines(sshd, stranger: Make, known: Path):
    known.mkdir(parents=True)
    done = stranger(gpu1=at(sshd)).run("hosts", "trust", "-y")
    assert (done.code, "cannot be written" in done.err, "ssh-ed25519 AAAA" in done.err) == (1, True, True), done.err


# ---- behind jump hosts -------------------------------------------------------------------------------------------

WAYS: list[tuple[str, list[str], dict[str, Any], dict[str, Any]]] = [
    ("of the inventory", [], {"gate": {}}, {"jump": "gate"}),
    ("that is no host here", [], {}, {"jump": "{user}@{gate}"}),
    ("of ssh's configuration", ["Host {far}", " ProxyJump {user}@{gate}"], {}, {}),
]


@pytest.mark.namespace
@pytest.mark.parametrize(("lines", "gates", "more"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_the_jump_host_is_asked_first_and_then_leads_to_the_next(fleet, stranger, known, lines, gates, more):
    gate, far = fleet(2)
    words = {"gate": gate.address, "far": far.address, "user": gate.user}
    lines = [*(line.format(**words) for line in lines), "Host *", f" IdentityFile {gate.key}"]
    jump = {key: value.format(**words) for key, value in more.items()}
    hosts = {**{name: at(gate) for name in gates}, "far": places.over_ssh(far, **jump).host}
    project = stranger(*lines, **hosts)
    first = project.run("hosts", "trust", "far", "--json")
    assert (first.code, [row["state"] for row in first.json]) == (2, ["unknown", "behind"]), first.err
    done = project.run("hosts", "trust", "far", "-y", "--json")
    assert (done.code, [row["state"] for row in done.json]) == (0, ["added", "added"]), done.err
    assert [line.split()[0] for line in known.read_text().splitlines()] == [gate.address, far.address]
    assert project.run("status", "--hosts", "far").code == 0
    assert openssh(project, at(far), "-o", f"ProxyJump={gate.user}@{gate.address}") == 0


# ---- the table ---------------------------------------------------------------------------------------------------


@pytest.mark.namespace
def test_hosts_side_by_side_with_what_each_has_and_why_one_cannot_be_reached(fleet, keys: Keys, tmp_path: Path):
    here, far = (places.over_ssh(host) for host in fleet(2))
    gone = places.over_ssh(fleet(2)[1], port=free_port())
    hosts = [replace(here, name="gate"), replace(far, name="far", host={**far.host, "jump": "gate"})]
    with places.project_on(tmp_path / "project", *hosts, replace(gone, name="gone")) as project:
        with (project.folder / "inventory.yaml").open("a") as file:
            file.write("groups: {both: [gate, far], behind: [far]}\n")
        assert project.run("hold", "far", "bench for 2h").code == 0
        done = project.run("hosts", "--json")
        told = project.run("hosts", "--hosts", "both")
    rows = {row["host"]: row for row in done.json}
    assert (done.code, [row["state"] for row in rows.values()]) == (3, ["reachable", "reachable", "unreachable"])
    assert "refused" in rows["gone"]["why"] and rows["gone"]["remedy"]
    assert (rows["far"]["groups"], rows["far"]["jump"], rows["far"]["user"]) == (["both", "behind"], "gate", "root")
    assert rows["far"]["hold"]["reason"] == "bench" and rows["gate"]["hold"] is None
    assert "Linux" in rows["gate"]["system"] and rows["gate"]["python"].startswith("3.") and rows["gate"]["ms"] > 0
    assert (told.code, "via gate" in told.out, "bench, until" in told.out) == (0, True, True), told.out


def test_a_host_whose_key_is_not_known_says_what_to_do(sshd: TestHost, stranger: Make):
    done: Done = stranger(gpu1=at(sshd)).run("hosts")
    assert (done.code, "deploy hosts trust gpu1" in done.out) == (3, True), done.out
