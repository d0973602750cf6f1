"""Words of a command line, some of which name files that only the host can place, and how they become a shell's."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

LAUNCH = """\
#!/bin/sh
# {title}
# Written by deploy; `sh launch.sh` starts it by hand.
run=$(cd -- "$(dirname -- "$0")" && pwd -P) || exit 1
cd -- "$run" || exit 1
read -r stat <"/proc/$$/stat" && set -- ${{stat##*) }}
echo "$$ ${{20}} $(cat /proc/sys/kernel/random/boot_id)" >pid.tmp && mv pid.tmp pid || {{ rm -f pid.tmp; exit 1; }}
# a companion that keeps server.log below its cap, and ends with us; not a process of the server's
(unset DEPLOY_SERVER; exec setsid python3 -I -S logcap.py $$ </dev/null >>logcap.log 2>&1) &
set -- "$run" # $1, since the environment may have a variable of any name
set -a
. ./env
DEPLOY_SERVER=$1
set +a
trap : HUP INT TERM # the server has the signal as well; what it ends with is written below

{command}
code=$?
echo "$code" >exit.tmp && mv exit.tmp exit || rm -f exit.tmp # on a full disk
exit "$code"
"""


@dataclass(frozen=True)
class RunPath:
    """A file in the run's folder. Where that folder lies is known on the host alone, so a plan names it like this."""

    name: str

    def __str__(self) -> str:
        return f"$run/{self.name}"


@dataclass(frozen=True)
class HomePath:
    """A file in the home of the user who starts the server."""

    name: str

    def __str__(self) -> str:
        return f"~/{self.name}"


Word = str | RunPath | HomePath


def path(text: str) -> Word:
    """A path on the host as users write one: `~/` is the home there."""
    return HomePath(text[2:]) if text.startswith("~/") else text


def shell(words: Iterable[Word]) -> str:
    """The words as sh reads them, with the run's folder in `$1`; nothing in them is expanded but that and the home."""
    return " ".join(map(_quoted, words))


def launch_script(title: str, command: Iterable[Word]) -> str:
    """The script that starts a server in the run's folder, stays its parent, and writes down how it ended."""
    return LAUNCH.format(title=title.replace("\n", " "), command=shell(command))


def environment(variables: Iterable[tuple[str, str]]) -> str:
    """The variables as a file that sh can source."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables)


def _quoted(word: Word) -> str:
    if isinstance(word, str):
        return shlex.quote(word)
    folder = "~" if isinstance(word, HomePath) else '"$1"'
    return f"{folder}/{shlex.quote(word.name)}"
