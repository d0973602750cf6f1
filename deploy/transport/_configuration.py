"""What OpenSSH's configuration says of hosts, by `ssh -G`: asked once for all those of which it says the same."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from deploy.errors import ConfigError

CONFIG = "DEPLOY_SSH_CONFIG"  # environment: a file to read instead of ~/.ssh/config and /etc/ssh/ssh_config
READ = re.compile(r"^debug1: Reading configuration data (.+)$", re.MULTILINE)
SECTION = re.compile(r"^\s*(host|match)(?:\s*=\s*|\s+)(.*)$", re.IGNORECASE | re.MULTILINE)
PLAIN = re.compile(r"[a-z0-9._:-]+")  # what OpenSSH takes as it is for a host's name

Options = dict[str, list[str]]
Patterns = list[list[str]]


class Configuration:
    """For hosts that are reached together, from several threads.

    Hosts share an answer if the same `Host` lines are for them, no `Match` stands anywhere, and nothing in the answer
    is made from the name. In every other case each is asked about.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._default: Options | None = None
        self._sections: dict[tuple[str, ...], Patterns | None] = {}
        self._answers: dict[tuple[object, ...], tuple[str, Options]] = {}

    def default(self) -> Options:
        """OpenSSH's own defaults, for a host `host`."""
        with self._lock:
            if self._default is None:
                self._default, _ = _ask(["-F", "/dev/null", "--", "host"])
            return self._default

    def of(self, name: str, arguments: tuple[str, ...]) -> Options:
        """What it says of a host, if `ssh` is called with these arguments. ConfigError where it cannot be read."""
        if PLAIN.fullmatch(name):
            with self._lock:
                found = self._shared(name, arguments)
            if found:
                return found
        return _ask([*config(), *arguments, "--", name])[0]

    def _shared(self, name: str, arguments: tuple[str, ...]) -> Options | None:
        place = tuple(config())
        if place not in self._sections:
            _, told = _ask(["-v", *place, *arguments, "--", name])
            self._sections[place] = sections(map(Path, READ.findall(told)))
        patterns = self._sections[place]
        if patterns is None:
            return None
        key = (place, arguments, _matching(patterns, name))
        if key not in self._answers:
            self._answers[key] = name, _ask([*place, *arguments, "--", name])[0]
        return renamed(*self._answers[key], name)


def sections(files: Iterable[Path]) -> Patterns | None:
    """The patterns of each `Host` line; None where what is for whom is not told by these alone."""
    found: Patterns = []
    try:
        texts = [file.read_text(encoding="utf-8") for file in files]
    except (OSError, UnicodeDecodeError):
        return None
    for word, patterns in (section.groups() for text in texts for section in SECTION.finditer(text)):
        if word.lower() == "match" or re.search(r"[\"'\\#]", patterns):
            return None
        found.append(patterns.split())
    return found if texts else None


def renamed(first: str, options: Options, name: str) -> Options | None:
    """The answer for one host as that for another; None where one of the names is in it."""
    if first == name:
        return options
    own = {"host", "hostname"}
    others = (value for option, values in options.items() if option not in own for value in values)
    named = [options.get(option) for option in ("host", "hostname")]
    if named != [[first], [first]] or options.get("canonicalizehostname", ["false"]) not in (["false"], ["no"]):
        return None
    if any(first in value or name in value for value in others):  # or its own jump host, which OpenSSH refuses
        return None
    return {**options, "host": [name], "hostname": [name]}


def config() -> list[str]:
    """The words that name the configuration to `ssh`."""
    file = os.environ.get(CONFIG)
    return ["-F", file] if file else []


def _matching(patterns: Patterns, name: str) -> tuple[bool, ...]:
    """For which sections a name is, as ssh_config(5) has it."""
    return tuple(
        not any(_like(name, one[1:]) for one in several if one.startswith("!"))
        and any(_like(name, one) for one in several if not one.startswith("!"))
        for several in patterns
    )


def _like(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))  # OpenSSH knows no sets of characters


def _ask(arguments: list[str]) -> tuple[Options, str]:
    """The options, and what was said beside them."""
    try:
        answer = subprocess.run(
            ["ssh", "-G", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError as error:
        raise ConfigError("the program `ssh` is missing on this machine", remedy="install openssh-client") from error
    if answer.returncode:
        said = [line for line in answer.stderr.splitlines() if not line.startswith("debug1: ")]
        raise ConfigError("OpenSSH does not accept its configuration", evidence="\n".join(said).strip())
    options: Options = {}
    for line in answer.stdout.splitlines():
        name, _, value = line.partition(" ")
        options.setdefault(name.lower(), []).append(value)
    return options, answer.stderr
