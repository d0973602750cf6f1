"""The engine that is installed for the profile's interpreter, against the version that the profile wants."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from deploy.checks import Case
from deploy.findings import Finding
from deploy.remote import Remote

FIND = 'case $1 in "~/"*) set -- "$HOME/${1#"~/"}" ;; esac; command -v -- "$1"'


def check(case: Case) -> Iterator[Finding]:
    """Installed, and the right one. A binary and a plain command tell no version."""
    if case.node is None:
        return
    node, remote = case.node, case.remote
    program, wanted = str(node.argv[0]), node.profile.engine.version
    found = remote.place.engine
    if found is None:
        yield from _program(program, remote)
    elif found.error or found.installed is None:
        yield Finding(
            "engine",
            "FAIL",
            f"{node.engine.DISTRIBUTION} is not installed for {program}",
            found.error,
            "set engine.python to the interpreter of its environment on the host",
        )
    elif wanted and not SpecifierSet(wanted).contains(found.installed, prereleases=True):
        yield Finding(
            "engine",
            "FAIL",
            f"{node.engine.DISTRIBUTION} {found.installed} is installed, {wanted} is wanted",
            f"interpreter: {found.executable}",
            "install that version, or change engine.version",
        )
    else:
        yield Finding("engine", "PASS", f"{node.engine.DISTRIBUTION} {found.installed}, Python {found.version}")


def _program(program: str, remote: Remote) -> Iterator[Finding]:
    if remote.sh(FIND, program, ok=(0, 1, 127)).strip():
        yield Finding("engine", "PASS", f"{program} is there; its version is not known")
    else:
        yield Finding("engine", "FAIL", f"there is no program {program} on the host", remedy="name its whole path")
