"""How a host takes our connection: a shell that says nothing, a clock like ours, processes that outlive the login."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.facts import limits, sudo
from deploy.findings import Finding, Verdict

SLOW = 5.0  # seconds that a round trip may take
APART = 2.0  # seconds that clocks may differ, beyond what the round trip leaves open


def check(case: Case) -> Iterator[Finding]:
    """Each is told on its own; where nothing is wrong, one line says so."""
    found = [*_shell(case), *_clock(case), *_sudo(case), *_login(case)]
    yield from found
    if not found:
        offset = f"{case.facts.offset:+.2f} s" if case.facts.offset is not None else "unknown"
        yield Finding("ssh", "PASS", f"its shell is quiet, its clock beside ours: {offset}")


def _shell(case: Case) -> Iterator[Finding]:
    noise = {name: said.decode("utf-8", "replace").strip() for name, said in case.remote.transport.noise.items()}
    if noise.get("stdout"):
        pushed = bool(case.node and case.node.draft and case.host.transport == "ssh")
        yield Finding(
            "ssh",
            "FAIL" if pushed else "WARN",
            "its login shell prints something without a terminal, which breaks rsync",
            _short(noise["stdout"]),
            f"its start-up files must print nothing where there is no terminal; test it: ssh {case.host.name} true",
        )
    if noise.get("stderr"):
        what = "its login shell complains before anything runs"
        yield Finding("ssh", "WARN", what, _short(noise["stderr"]), "mend its start-up files, or its locale")
    took = case.facts.round_trip
    if took is not None and took > SLOW and case.host.transport == "ssh":
        what = f"a command takes {took:.1f} s to begin and to end there"
        yield Finding(
            "ssh", "WARN", what, remedy="look at what its start-up files run (conda init, say), and at its load"
        )


def _clock(case: Case) -> Iterator[Finding]:
    offset, around = case.facts.offset, (case.facts.round_trip or 0.0) / 2
    if offset is not None and abs(offset) - around > APART:
        word = "ahead of" if offset > 0 else "behind"
        what = f"its clock is {abs(offset):.1f} s {word} ours, give or take {around:.1f} s"
        yield Finding(
            "ssh", "WARN", what, "logs, holds and times of files are read by it", "let chrony or ntpd set both"
        )


def _sudo(case: Case) -> Iterator[Finding]:
    found = case.facts[sudo.FACT]
    if found.works is False:
        remedy = (
            "a line in /etc/sudoers.d: USER ALL=(ALL) NOPASSWD: ..., without requiretty; or take `sudo` from the host"
        )
        yield Finding("ssh", "FAIL", "sudo does not work there without a password and a terminal", found.said, remedy)


def _login(case: Case) -> Iterator[Finding]:
    """Linger does not help: it keeps a user's services alive, while what we start stays in the login's own scope."""
    found = case.facts[limits.FACT]
    lingers = (
        "" if found.lingers is None else f"linger is {'on' if found.lingers else 'off'}, which changes nothing of that"
    )
    if found.killed:
        what = (
            f"systemd kills what {found.user} leaves behind when a login ends (KillUserProcesses), so also the server"
        )
        remedy = f"in /etc/systemd/logind.conf: KillUserProcesses=no, or KillExcludeUsers=root {found.user}"
        yield Finding("ssh", "FAIL", what, f"we are in {found.scope}; {lingers}", f"{remedy}; restart systemd-logind")
    elif found.killed is None:
        what = "whether systemd kills what a login leaves behind (KillUserProcesses) is not known"
        verdict: Verdict = "UNKNOWN" if case.node else "WARN"
        seen = f"{found.error}\nwe are in {found.scope}"
        yield Finding("ssh", verdict, what, seen, "look at /etc/systemd/logind.conf")


def _short(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line[:200] for line in lines[:5]) + (f"\n({len(lines) - 5} more)" if len(lines) > 5 else "")
