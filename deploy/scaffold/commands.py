"""What the commands of a script mean for a server that it starts: those that change the shell, those that wrap it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deploy import engines
from deploy.errors import ConfigError
from deploy.scaffold import HOME, Launch, Word
from deploy.scaffold.patterns import NUMBER
from deploy.scaffold.syntax import load

if TYPE_CHECKING:
    from deploy.scaffold.shell import Shell

PLAIN = frozenset({"nohup", "setsid", "exec", "command", "builtin", "time", "env"})  # change nothing of a server
TUNING = frozenset({"sudo", "doas", "nice", "ionice", "numactl", "taskset", "chrt", "stdbuf", "timeout", "unbuffer"})
OTHERS = frozenset(
    {"docker", "podman", "nerdctl", "singularity", "apptainer", "enroot", "kubectl", "srun", "mpirun", "uv"}
)
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
MOVERS = frozenset({"conda", "mamba", "micromamba", "module", "pyenv", "workon", "poetry", "spack"})
SSH_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
ACTIVATE = re.compile(r"(.*)/bin/activate")
HUB = re.compile(r"[\w.-]+/[\w.-]+")  # may be a name on the Hugging Face hub
ASIDE = frozenset({"echo", "printf", "cat", "grep", "pgrep", "pkill", "kill", "ps", "tail", "test", "[", "curl"})


@dataclass(frozen=True)
class Nested:
    """A script in a word; None: on the standard input. `host` is where ssh takes it; `eval` stays in the same shell."""

    script: Word | None
    host: str = ""
    same_shell: bool = False


# ---- commands that change the shell ----------------------------------------------------------------------------------


def builtin(shell: Shell, words: list[Word]) -> bool:
    """Do what a command does to the shell itself; False where it is no such command."""
    name = words[0].text.rpartition("/")[2]
    act = BUILTINS.get(name) or (_mover if name in MOVERS and len(words) > 1 else None)
    if act is None:
        return False
    act(shell, words[1:])
    return True


def _cd(shell: Shell, words: list[Word]) -> None:
    target = words[-1] if words else Word(HOME)
    shell.cwd = None if target.unknown or target.text == "-" else joined(shell.cwd, target.text)


def _source(shell: Shell, words: list[Word]) -> None:
    file = words[0] if words else Word("")
    activate = ACTIVATE.fullmatch(file.text)
    if activate and not file.unknown:
        shell.environment = joined(shell.cwd, activate[1]) or activate[1]
        return
    here = None if file.unknown or shell.folder is None or HOME in file.text else Path(shell.folder, file.text)
    text = _sourced(here, file.text) if here and shell.depth < 10 else None
    if text is None:
        shell.notes.append(f"{file.where}: the variables of a file that is read there are not known here")
        return
    told, first = (shell.source, shell.scope.where), shell.first
    shell.source, shell.first, shell.depth = os.path.normpath(file.text), 1, shell.depth + 1
    shell.script(text)
    (shell.source, shell.scope.where), shell.first, shell.depth = told, first, shell.depth - 1


def _sourced(file: Path, source: str) -> str | None:
    """The text of a file that a script reads; None where there is none here."""
    try:
        return load(file, source) if file.is_file() else None
    except (ConfigError, OSError):  # no right to read it, no text, a name that is too long
        return None


def _set(shell: Shell, words: list[Word]) -> None:
    said = [word.text for word in words]
    if "-a" in said or said == ["-o", "allexport"]:
        shell.exports_all = True
    if "+a" in said or said == ["+o", "allexport"]:
        shell.exports_all = False
    if said and said[0] == "--":
        shell.scope.arguments = tuple(words[1:])


def _shift(shell: Shell, words: list[Word]) -> None:
    count = int(words[0].text) if words and NUMBER.fullmatch(words[0].text) else 1
    shell.scope.arguments = shell.scope.arguments[count:]


def _unset(shell: Shell, words: list[Word]) -> None:
    for word in words:
        shell.scope.variables.pop(word.text, None)
        shell.exported.discard(word.text)


def _mover(shell: Shell, words: list[Word]) -> None:
    said = " ".join(word.text for word in words if not word.unknown)
    if words[0].text in ("activate", "load", "shell"):
        shell.environment = f"\nwhich interpreter `{said}` in {words[0].where} gives is not known"


BUILTINS: dict[str, Callable[[Shell, list[Word]], None]] = {
    "cd": _cd, "pushd": _cd, "source": _source, ".": _source, "set": _set, "shift": _shift, "unset": _unset,
}  # fmt: skip


def joined(folder: str | None, path: str) -> str | None:
    """A path from a folder; None where that is not known."""
    if path.startswith(("/", HOME)):
        return path
    return None if folder is None else os.path.normpath(f"{folder}/{path}")


def whole(folder: str | None) -> Callable[[str, bool], str | None]:
    """How a relative path is made whole: from the folder that the script went to. A name of the hub is none."""

    def whole(text: str, surely: bool) -> str | None:
        spelled = text.startswith(("./", "../"))
        return joined(folder, text) if spelled or (surely and not HUB.fullmatch(text)) else None

    return whole


# ---- commands around a server ----------------------------------------------------------------------------------------


def script_in(words: list[Word]) -> Nested | None:
    """The script that a command hands to a shell, here or by ssh; None where it hands none."""
    words = _bare(words)
    name = words[0].text.rpartition("/")[2] if words else ""
    if name in SHELLS:
        return _of_shell(words[1:])
    if name == "ssh":
        return _of_ssh(words[1:])
    if name in ("tmux", "screen"):
        quoted = [word for word in words[1:] if " " in word.text]
        return Nested(quoted[-1]) if quoted else None
    if name == "eval" and words[1:]:
        unknown = next((word.unknown for word in words if word.unknown), "")
        return Nested(Word(" ".join(word.text for word in words[1:]), words[1].where, unknown), same_shell=True)
    return None


def _of_shell(words: list[Word]) -> Nested | None:
    options = [word.text for word in words if word.text.startswith("-")]
    if any(re.fullmatch(r"-[a-z]*c", option) for option in options):
        script = next((word for word in words if not word.text.startswith("-")), None)
        return Nested(script) if script else None
    return Nested(None) if len(options) == len(words) or "-s" in options else None


def _of_ssh(words: list[Word]) -> Nested | None:
    place, user, port = 0, "", ""
    while place < len(words) and words[place].text.startswith("-"):
        option = words[place].text
        takes = option[1:2] in SSH_WITH_VALUE
        value = option[2:] or (words[place + 1].text if takes and place + 1 < len(words) else "")
        user = value if option.startswith("-l") else user
        port = value if option.startswith("-p") else port
        place += 2 if takes and not option[2:] else 1
    if place >= len(words):
        return None
    host, rest = words[place].text, words[place + 1 :]
    if words[place].unknown:
        return Nested(words[place], host)
    address = f"{user}@{host}" if user else host
    address += f":{port}" if port else ""
    if not rest:
        return Nested(None, address)
    inner = _of_shell(rest[1:]) if rest[0].text in SHELLS else None
    if inner and inner.script is None:
        return Nested(None, address)
    unknown = next((word.unknown for word in rest if word.unknown), "")
    return Nested(Word(" ".join(word.text for word in rest), rest[0].where, unknown), address)


def _bare(words: list[Word]) -> list[Word]:
    """Without nohup and its like, and their options."""
    while words and words[0].text.rpartition("/")[2] in PLAIN:
        words = words[1:]
        while words and words[0].text.startswith("-"):
            words = words[1:]
        while words and NAMED.fullmatch(words[0].text):
            words = words[1:]
    return words


def unwrapped(words: list[Word], known: engines.All) -> tuple[list[Word], dict[str, Word], list[str], str]:
    """(a server's own words, variables given before them, what is left out, why it cannot be taken over)."""
    texts = [word.text for word in words]
    name = texts[0].rpartition("/")[2]
    places = () if name in ASIDE else range(len(words))
    start = next((place for place in places if engines.recognise(texts[place:], known)), None)
    if start is None:
        return (_bare(words) or words), {}, [], ""
    before, notes = words[:start], []
    given = {found[1]: replace(word, text=found[2]) for word in before if (found := NAMED.fullmatch(word.text))}
    heads = [word.text.rpartition("/")[2] for word in before]
    other = next((head for head in (name, *heads) if head in OTHERS), "" if name in PLAIN | TUNING else name)
    if before and other:
        return words[start:], given, [], f"`{other}` starts it, and only a server that is started directly can be taken"
    if set(heads) & TUNING:
        left = " ".join(word.text for word in before if word.text not in PLAIN and not NAMED.fullmatch(word.text))
        notes.append(f"{before[0].where}: `{left}` before the server is left out: a profile has no place for it")
    return words[start:], given, notes, ""


def in_environment(argv: list[Word], environment: str, cwd: str | None) -> list[Word]:
    """With the program that a bare name means in a virtual environment."""
    program = argv[0]
    if "/" in program.text:
        return [replace(program, text=joined(cwd, program.text) or program.text), *argv[1:]]
    if not environment:
        return argv
    where, _, unknown = environment.partition("\n")
    if unknown:
        return [replace(program, unknown=unknown), *argv[1:]]
    return [replace(program, text=f"{where}/bin/{program.text}"), *argv[1:]]


def servers(launches: list[Launch]) -> list[Launch]:
    """Those that start a server that an engine knows, or may do so."""
    known = engines.every()
    return [one for one in launches if one.blocked or engines.recognise([word.text for word in one.argv], known)]
