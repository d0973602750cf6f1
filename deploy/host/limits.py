"""What a program may use that is started here without a terminal, and whether it outlives the login, as JSON."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import pwd
import re
import resource
from typing import Any

from deploy.host.answers import ended

KINDS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
# pam_systemd puts each login into a scope of its own; with KillUserProcesses it dies with the login, setsid or not.
SCOPE = re.compile(r"/(session-[^/]+\.scope)(?:/|$)")
# Without a session's name it shows the manager's properties (loginctl(1)).
SHOW = ("loginctl", "show-session", "--all", *(f"--property=Kill{name}" for name in ("UserProcesses", "OnlyUsers")))
# Where logind.conf(5) is read, and what overrides it; KillExcludeUsers cannot be told from "not set" over the bus.
FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
LINGER = "/var/lib/systemd/linger"
PATIENCE = 10.0  # seconds


def limits() -> dict[str, list[int | None]]:
    """{kind: [soft, hard]}; null is unlimited."""
    found = {}
    for name, kind in KINDS.items():
        found[name] = [None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(kind)]
    return found


def parse_scope(cgroups: str) -> str:
    """The login's scope that /proc/self/cgroup is in, or ""."""
    found = SCOPE.search(cgroups.replace("\n", "/\n"))
    return found[1] if found else ""


def parse_properties(shown: str) -> dict[str, str]:
    """What loginctl shows, a line each: Name=value."""
    return dict(line.partition("=")[::2] for line in shown.splitlines() if "=" in line)


def parse_excluded(files: list[str]) -> list[str]:
    """KillExcludeUsers of configuration files, in the order in which systemd reads them: the last one counts."""
    found = re.findall(r"^[ \t]*KillExcludeUsers[ \t]*=[ \t]*(.*?)[ \t]*$", "\n".join(files), re.MULTILINE)
    return found[-1].split() if found else ["root"]


def configuration() -> list[str]:
    """The text of the first logind.conf, and then of all files in logind.conf.d, by their names."""
    drop_ins: dict[str, str] = {}
    for folder in reversed(FOLDERS):
        below = os.path.join(folder, "logind.conf.d")
        names = os.listdir(below) if os.path.isdir(below) else []
        drop_ins.update({name: os.path.join(below, name) for name in names if name.endswith(".conf")})
    main = [path for path in (os.path.join(folder, "logind.conf") for folder in FOLDERS) if os.path.exists(path)][:1]
    texts = []
    for path in [*main, *(drop_ins[name] for name in sorted(drop_ins))]:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read(1 << 20))
    return texts


def kills(shown: dict[str, str], excluded: list[str], user: str) -> bool | None:
    """Whether this user's processes die with their login (manager_shall_kill of logind-core.c); None: not told."""
    if user in excluded:
        return False
    only = shown.get("KillOnlyUsers", "").split()
    if only:
        return user in only
    return {"yes": True, "no": False}.get(shown.get("KillUserProcesses", ""))


def ask(user: str) -> tuple[bool | None, str]:
    """Whether they die, and why that is not known."""
    _, out, err = ended(PATIENCE, *SHOW)
    try:
        found = kills(parse_properties(out), parse_excluded(configuration()), user)
    except OSError as error:
        return None, str(error)
    return found, "" if found is not None else (err or out).strip()[-400:] or "loginctl does not say it"


def answer() -> dict[str, Any]:
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # one without a name
        user = str(os.geteuid())
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
        scope = parse_scope(file.read())
    killed, error = ask(user) if scope else (False, "")
    lingers = os.path.exists(os.path.join(LINGER, user)) if os.path.isdir("/run/systemd/system") else None
    return {"limits": limits(), "user": user, "scope": scope, "killed": killed, "error": error, "lingers": lingers}


if __name__ == "__main__":
    print(json.dumps(answer()))
