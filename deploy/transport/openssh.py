"""What OpenSSH's own configuration says about a host, as OpenSSH reads it: `ssh -G`."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy.errors import ConfigError
from deploy.transport import Reachable
from deploy.transport._configuration import CONFIG, Configuration, Options, config
from deploy.transport._options import refusals

DEEPEST = 8  # jump hosts on the way to a host; more is a circle
KEEPALIVE = 15  # seconds, where ServerAliveInterval says nothing


@dataclass(frozen=True)
class Route:
    """The resolved way to a host: OpenSSH's options for it, and the jump host before it."""

    name: str  # as OpenSSH was asked for it
    options: Options
    default: Options = field(repr=False)
    arguments: tuple[str, ...] = ()  # what the inventory says, as arguments for `ssh`
    via: Route | None = None
    key: Path | None = None  # the inventory's; it must be there, while OpenSSH's default ones need not

    def get(self, option: str, otherwise: str = "") -> str:
        """An option's value; `otherwise` where it is not set or "none"."""
        value = self.options.get(option, [""])[0]
        return value if value not in ("", "none") else otherwise

    def number(self, option: str, otherwise: int) -> int:
        """An option's value as a number above zero."""
        return int(self.get(option, "0")) or otherwise

    @property
    def hostname(self) -> str:
        return self.get("hostname", self.name)

    @property
    def port(self) -> int:
        return self.number("port", 22)

    @property
    def user(self) -> str:
        return self.get("user") or getpass.getuser()

    @property
    def keepalive(self) -> int:
        return self.number("serveraliveinterval", KEEPALIVE)

    @property
    def identities(self) -> list[Path]:
        """The key files to try, in order; the inventory's first, also when it is missing (`ssh -G` then drops it)."""
        files = [self.path(value) for value in self.options.get("identityfile", []) if value != "none"]
        return [self.key, *(file for file in files if file != self.key)] if self.key else files

    @property
    def known_hosts(self) -> list[Path]:
        """The files that say which host keys are right, the user's first."""
        return [*self.own_known_hosts, *self._files("globalknownhostsfile")]

    @property
    def own_known_hosts(self) -> list[Path]:
        """The user's; keys are added to the first."""
        return self._files("userknownhostsfile")

    def _files(self, option: str) -> list[Path]:
        return [self.path(name) for value in self.options.get(option, []) for name in _names(value) if name != "none"]

    def chosen(self, option: str) -> list[str] | None:
        """A list of algorithms, where it is another than OpenSSH's default."""
        values = self.options.get(option)
        return None if values is None or values == self.default.get(option) else values[0].split(",")

    def expand(self, text: str) -> str:
        """Replace OpenSSH's %-words and ${variables}. ConfigError for a word that is not known here."""
        if "%" not in text and "$" not in text:
            return text
        words = {
            "%": "%", "d": str(Path.home()), "h": self.hostname, "i": str(os.getuid()), "n": self.name,
            "k": self.get("hostkeyalias", self.name), "l": socket.gethostname(), "p": str(self.port), "r": self.user,
            "L": socket.gethostname().split(".")[0], "u": getpass.getuser(), "j": "",
        }  # fmt: skip
        try:
            text = re.sub(r"%(.)", lambda found: words[found[1]], text)
            return re.sub(r"\$\{(\w+)\}", lambda found: os.environ[found[1]], text)
        except KeyError as error:
            raise ConfigError(
                f"{self.name}: {text} in OpenSSH's configuration holds {error}, not known here"
            ) from error

    def path(self, text: str) -> Path:
        """A file that an option names."""
        return Path(self.expand(text)).expanduser()

    def command(self) -> list[str]:
        """The words that start OpenSSH's client on the same way, for programs that bring their own: `... NAME`."""
        settings = {
            "BatchMode": "yes", "StrictHostKeyChecking": "yes", "ServerAliveInterval": str(self.keepalive),
            "ClearAllForwardings": "yes", "RemoteCommand": "none", "PermitLocalCommand": "no",
            "ConnectTimeout": str(self.number("connecttimeout", 10)),
        }  # fmt: skip
        if self.via:
            # only these two words are for this level of nesting
            inner = shlex.join(self.via.command()).replace("%", "%%")
            settings["ProxyCommand"] = f"{inner} -W '[%h]:%p' {shlex.quote(self.via.name)}"
        words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        return ["ssh", "-T", *config(), *words, *self.arguments]


def resolve(host: Reachable, known: Mapping[str, Reachable], said: Configuration | None = None) -> Route:
    """The way to a host of the inventory; `known` holds the hosts that may be named as a jump, `said` what was asked of
    OpenSSH's configuration for other hosts. ConfigError.
    """
    said = said or Configuration()
    arguments = [word for flag, value in (("-l", host.user), ("-p", host.port)) if value for word in (flag, str(value))]
    key = Path(host.key).expanduser() if host.key else None
    if key:
        arguments += ["-i", str(key).replace("%", "%%")]
    via = None
    if host.jump:
        via = resolve(known[host.jump], known, said) if host.jump in known else _chain(host.jump, DEEPEST, said)
    return replace(_route(host.address, tuple(arguments), via, DEEPEST, said), key=key)


def _route(name: str, arguments: tuple[str, ...], via: Route | None, depth: int, said: Configuration) -> Route:
    if not depth:
        raise ConfigError(f"{name}: its jump hosts in OpenSSH's configuration go in a circle")
    own = said.of(name, (*arguments, *(("-o", "ProxyJump=none") if via else ())))
    default = said.default()
    wrong = refusals(own, default)
    if wrong:
        raise ConfigError(
            f"{name}: OpenSSH's configuration for it can not be followed",
            evidence="\n".join(wrong),
            remedy=f"change it for this host, or name a file without it in {CONFIG}",
        )
    jump = own.get("proxyjump", ["none"])[0]
    if not via and jump != "none":
        via = _chain(jump, depth - 1, said)
    return Route(name, own, default, arguments, via)


def _chain(jumps: str, depth: int, said: Configuration) -> Route:
    """The last of some jump hosts `[user@]host[:port],...`; only the first follows its own ProxyJump, as in OpenSSH."""
    first, *others = [_destination(jump) for jump in jumps.split(",")]
    via = _route(*first, None, depth, said)
    for name, arguments in others:
        via = _route(name, arguments, via, depth, said)
    return via


def _destination(jump: str) -> tuple[str, tuple[str, ...]]:
    """The host and the arguments in `[ssh://][user@]host[:port]`."""
    pattern = r"(?:ssh://)?(?:(?P<user>[^@]*)@)?(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:]+|[^:]*(?::[^:]*){2,}))(?::(?P<port>\d+))?/?"
    found = re.fullmatch(pattern, jump.strip())
    if not found:
        raise ConfigError(f"{jump!r} is not a jump host", remedy="write user@host:port")
    user, port = found["user"], found["port"]
    arguments = [word for flag, value in (("-l", user), ("-p", port)) if value for word in (flag, value)]
    return found["v6"] or found["host"], tuple(arguments)


def _names(value: str) -> Iterator[str]:
    """The file names in a value; `ssh -G` prints those with spaces without quotes, so a file that is there wins;
    of one that is not there, what begins like a path is the next one.
    """
    words = value.split(" ")
    while words:
        there = (n for n in range(len(words), 0, -1) if Path(" ".join(words[:n])).expanduser().exists())
        count = next(there, None) or next(
            (n for n in range(1, len(words)) if words[n].startswith(("/", "~", "%", "$"))), len(words)
        )
        yield " ".join(words[:count])
        words = words[count:]
