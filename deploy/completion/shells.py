"""How shells ask what may stand next, on click's machinery: each line of an answer is kind, tab, value.

click's own scripts hand over words that bash has cut at every `=` and `:`, and put a space behind each answer. These
hand over the line up to the cursor. A `part` is gone on with: it has no space behind it.
"""

from __future__ import annotations

import os
import re

import click
from click.shell_completion import ShellComplete, add_completion_class, shell_complete, split_arg_string

VARIABLE = "_DEPLOY_COMPLETE"

BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=$'\\t' read -r kind value; do
        case $kind in
            file) compopt -o default 2>/dev/null ;;
            dir) compopt -o dirnames 2>/dev/null ;;
            part) compopt -o nospace 2>/dev/null; COMPREPLY+=("$value") ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_CURRENT="$2" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""

ZSH = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local kind value
    local -a plain part
    while IFS=$'\\t' read -r kind value; do
        case $kind in
            file) _files ;;
            dir) _files -/ ;;
            part) part+=("$value") ;;
            plain) plain+=("$value") ;;
        esac
    done < <(COMP_LINE="${BUFFER[1,CURSOR]}" %(complete_var)s=zsh_complete "${words[1]}" 2>/dev/null)
    (( $#plain )) && compadd -U -a plain
    (( $#part )) && compadd -U -S '' -a part
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

FISH = """\
function %(complete_func)s
    set -lx COMP_LINE (commandline -cp)
    set -lx %(complete_var)s fish_complete
    for line in (%(prog_name)s 2>/dev/null)
        set -l found (string split -m 1 \\t -- $line)
        switch $found[1]
            case file
                __fish_complete_path (commandline -ct)
            case dir
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $found[2]
        end
    end
end
complete -c %(prog_name)s -f -a '(%(complete_func)s)'
"""


class Line(ShellComplete):
    """The line up to the cursor, cut as a shell would; its last word is the one that is completed."""

    def get_completion_args(self) -> tuple[list[str], str]:
        end = "\0"  # so that a line that ends in a space has an empty last word
        words = split_arg_string(f"{os.environ['COMP_LINE']}{end}")
        return words[1:-1], words[-1].removesuffix(end)

    def complete(self) -> str:
        """Every candidate as this shell takes it in the place of what it calls the current word."""
        args, word = self.get_completion_args()
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        before = f"{option}{equals}" if equals else ""
        items = self.get_completions([*args, option] if equals else args, value if equals else word)
        return "\n".join(f"{item.type}\t{self.replacing(f'{before}{item.value}', word)}" for item in items)

    def replacing(self, found: str, word: str) -> str:  # noqa: ARG002
        return found


class Bash(Line):
    name = "bash"
    source_template = BASH

    def replacing(self, found: str, word: str) -> str:
        """Bash replaces only what stands behind the last = or : that is not quoted, and quotes nothing itself."""
        current = "".join(split_arg_string(os.environ.get("COMP_CURRENT", ""))[:1])
        value = found[len(word) - len(current) if word.endswith(current) else 0 :]
        return value if _quotes(os.environ["COMP_LINE"]) else re.sub(r"""[\s"'`$&|;<>()*?!#\\]""", r"\\\g<0>", value)


def _quotes(line: str) -> bool:
    """Whether the line ends within quotes."""
    inside = ""
    for found in re.finditer(r"""\\.|['"]""", line):
        sign = found[0]
        if sign in ("'", '"') and inside in ("", sign):
            inside = "" if inside else sign
    return bool(inside)


class Zsh(Line):
    name = "zsh"
    source_template = ZSH


class Fish(Line):
    name = "fish"
    source_template = FISH


SHELLS = (Bash, Zsh, Fish)


def script(shell: str, command: click.Command) -> str:
    """The script that tells a shell to ask us."""
    (found,) = [one for one in SHELLS if one.name == shell]
    return found(command, {}, "deploy", VARIABLE).source()


def answer(command: click.Command) -> int:
    """Answer a shell that asks, without a word where we cannot."""
    for shell in SHELLS:
        add_completion_class(shell)
    try:
        return shell_complete(command, {}, "deploy", VARIABLE, os.environ[VARIABLE])
    except Exception:  # noqa: BLE001 - a traceback in the middle of somebody's command line helps nobody
        return 1
