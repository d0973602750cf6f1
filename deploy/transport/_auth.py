"""Which keys are shown to a host, in which order: the agent's and the files', as OpenSSH's configuration says."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthFailure, AuthStrategy, PrivateKey

from deploy.transport.openssh import Route


class Agent(AgentSSH):
    """The ssh-agent at a socket; paramiko's own only knows SSH_AUTH_SOCK."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(10.0)
        with suppress(OSError, paramiko.SSHException):  # no agent there: no keys
            self._socket.connect(path)
            self._connect(self._socket)  # type: ignore[attr-defined] # as paramiko's own subclasses do

    def close(self) -> None:
        """Let it go."""
        self._socket.close()


class Key(PrivateKey):
    """A key to try: one of the agent's, or a file that is read when its turn comes."""

    def __init__(self, user: str, label: str, pkey: paramiko.PKey | None = None) -> None:
        super().__init__(user)
        self.label = label
        self.pkey = pkey

    def authenticate(self, transport: paramiko.Transport) -> list[str]:
        """Show it."""
        self.pkey = self.pkey or paramiko.PKey.from_path(self.label)
        return super().authenticate(transport)


class Keys(AuthStrategy):
    """The keys of a route."""

    def __init__(self, route: Route) -> None:
        super().__init__(paramiko.SSHConfig())
        self._route = route
        self._agent = Agent(_agent_path(route))

    def get_sources(self) -> Iterator[Key]:
        """Keys named in the configuration first, the agent's before the files; then the rest of the agent's."""
        user = self._route.user
        files = [file for file in self._route.identities if file.exists() or _public(file) or file == self._route.key]
        wanted = [_public(file) for file in files]
        held = {key.asbytes(): Key(user, f"agent: {key.comment}", key) for key in self._agent.get_keys()}
        yield from (held[blob] for blob in wanted if blob in held)
        yield from (Key(user, str(file)) for file in files if _public(file) not in held)
        if self._route.get("identitiesonly") != "yes":
            yield from (key for blob, key in held.items() if blob not in wanted)

    def close(self) -> None:
        """Let the agent go."""
        self._agent.close()


def tried(failure: AuthFailure) -> str:
    """One line for each key that was shown, and what became of it."""
    return (
        "\n".join(f"{source.label}: {_reason(result)}" for source, result in failure.result if isinstance(source, Key))
        or "there was no key"
    )


def _reason(error: object) -> str:
    if isinstance(error, paramiko.AuthenticationException):
        return "refused by the host"
    if isinstance(error, TypeError | ValueError | paramiko.PasswordRequiredException):
        return "could not be read: it has a passphrase (add it to an ssh-agent), or is no key"
    return f"{error}" or type(error).__name__


def _agent_path(route: Route) -> str:
    named = route.options.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    if named == "none":
        return ""
    if named == "SSH_AUTH_SOCK" or named.startswith("$"):
        return os.environ.get(named.strip("${}"), "")
    return str(route.path(named))


def _public(file: Path) -> bytes:
    """The public half of a key file, from the .pub beside it (or itself, which then stands for a key of the agent)."""
    public = file if file.suffix == ".pub" else file.with_name(f"{file.name}.pub")
    try:
        return base64.b64decode(public.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return b""
