"""What may be told to others of a command line: everything but the values of what is a secret by its name.

Where it is in doubt how far such a value goes, all that follows it in its word is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET = re.compile(
    r"(?:^|[_.-])(?:\w*TOKEN|\w*KEYS?|\w*PASS(?:WORDS?|WD|PHRASES?)?|\w*PWD|\w*SECRETS?|PATS?|JWTS?"
    r"|CREDENTIALS?|CREDS|AUTH|\w*AUTHORIZATION|BEARER|COOKIES?)(?:[_.]?\d+)?$",
    re.IGNORECASE,
)
# TOKENS counts them, as in --max-tokens, but where it is said whose they are, or it is a variable that counts none.
TOKENS = re.compile(
    r"(?:^|[_.-])(?i:HF|HUB|HUGGINGFACE|API|AUTH|ACCESS|BEARER|SECRET|REFRESH|SESSION|USER|CLIENT|ADMIN)[_-]?(?i:TOKENS)$"
    r"|(?:^|\.)(?!(?:\w*_)?(?:MAX|MIN|NUM|N|NEW|TOTAL|DRAFT|SPEC|PROMPT|PREFILL|DECODE|BATCHED|SPECIAL|STOP|IMAGE)_)"
    r"[A-Z0-9_]*TOKENS$"
)
NO_SECRET = re.compile(
    r"(?:bos|eos|pad|unk|mask|stop|image|sort|primary)[_-](?:tokens?|keys?)$|(?:^|\.)(?-i:PWD|OLDPWD)$", re.IGNORECASE
)
HIDDEN = "***"
LONGEST = 200  # characters of a name: its end says what it is

_SAID = re.compile(r"""[+~\s"']*(?P<name>[\w.-]+)["'\s]*=""")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_NAMED = re.compile(
    r"""(?<![\w.-])(?:(?P<name>[\w.-]+)["'\\\]]*\s*(?P<sign>[:=])\s*|(?P<flag>--?[A-Za-z][\w-]*)["']?[,\s]\s*)"""
)
_CLOSED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|\[[^][{}"'\\]*\]""", re.DOTALL)  # not what has brackets in it
_NEXT = r"""[\s}\]]*(?:\Z|,\s*(?:["'][\w.+-]+["']\s*:|[\w.+-]+\s*:\s)"""
_AFTER_PAIR = re.compile(rf"{_NEXT})")
_AFTER_FLAG = re.compile(rf"""{_NEXT}|,\s*[\w.+-]+=|(?:,\s*|(?<=\s))["']?--?[A-Za-z])""")
_RUN = re.compile(r"(?<![\s}\]])(?=[\s}\],]|\Z)")
_LOGIN = re.compile(r"(?<=://)(?:[^/@:]*:.*|[^/@:]+(?=@|\Z))")  # of a URL; a password may have any of :/@ in it
_PROXY = re.compile(r"""(?<=_proxy=)[^\s/@]+(?=@)""", re.IGNORECASE)
_BEARER = re.compile(r"""(?<=\bbearer )\s*[^\s,"'}\]]+""", re.IGNORECASE)


def words(said: Iterable[str]) -> list[str]:
    """The words of a command line; `***` for the value of a secret's name, and of such a name within a value."""
    told: list[str] = []
    before = ""
    for word in said:
        told.append(HIDDEN if _FLAG.fullmatch(before) and is_secret(before) else _word(word))
        before = word
    return told


def is_secret(name: str) -> bool:
    """Whether a dotted key, a flag, a variable is named as secrets are: HF_TOKEN, args.api-key, DB_PASSWORD."""
    plain = name.strip("_-.")
    end = plain[-LONGEST:]
    named = SECRET.search(end) or TOKENS.search(end)
    return bool(named) and not NO_SECRET.search(end) and plain.partition(".")[0] != "secrets"


def _word(word: str) -> str:
    said = _SAID.match(word)
    if said and is_secret(said["name"]):
        return f"{said[0]}{HIDDEN}"
    told = _within(word)
    told = re.sub(r"\S+", lambda found: _without_login(found[0]), told)
    for hidden in (_PROXY, _BEARER):
        told = hidden.sub(HIDDEN, told)
    return told


def _without_login(url: str) -> str:
    login, sign, rest = url.rpartition("@")
    return f"{_LOGIN.sub(HIDDEN, login)}{sign}{rest}"


def _within(text: str) -> str:
    """A mapping or a row of flags in one word: {api-key: x}, --api-key x."""
    told, at = "", 0
    for found in _NAMED.finditer(text):
        if at <= found.start() and is_secret(found["name"] or found["flag"]):
            end = _end(text, found.end(), _AFTER_PAIR if found["sign"] == ":" else _AFTER_FLAG)
            if end > found.end():
                told, at = f"{told}{text[at : found.end()]}{HIDDEN}", end
    return told + text[at:]


def _end(text: str, at: int, after: re.Pattern[str]) -> int:
    """Where a value ends that begins at `at`."""
    if text[at : at + 1] in ("'", '"', "["):
        closed = _CLOSED.match(text, at)
        return closed.end() if closed and after.match(text, closed.end()) else len(text)
    runs = (run.start() for run in _RUN.finditer(text, at))
    end = next((start for start in runs if after.match(text, start)), len(text))
    return len(text) if re.search(r"""["'\\{[]""", text[at:end]) else end
