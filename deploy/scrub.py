"""What may be told to others of a command line: everything but the values of what is a secret by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET = re.compile(
    r"(?:^|[_.-])(?:\w*TOKEN|\w*KEY|\w*PASS(?:WORD|WD|PHRASE)?|\w*SECRETS?|CREDENTIALS?|AUTH|BEARER|COOKIES?)(?:_?\d+)?$",
    re.IGNORECASE,
)
NO_SECRET = re.compile(r"(?:bos|eos|pad|unk|mask|stop|image|sort|primary)[_-](?:token|key)$", re.IGNORECASE)
HIDDEN = "***"

_NAMED = re.compile(r"""(?P<name>[\w.-]+)["']?\s*[:=]\s*|(?P<flag>--[\w-]+)["']?[,\s]\s*""")
_VALUE = re.compile(r"""'[^']*'|"[^"]*"|[^\s,}\]]+""")
_LOGIN = re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)")  # of a URL


def words(said: Iterable[str]) -> list[str]:
    """The words of a command line; `***` for the value of a secret's name, and of such a name within a value."""
    return list(map(_word, said))


def is_secret(name: str) -> bool:
    """Whether a dotted key, a flag, a variable is named as secrets are: HF_TOKEN, args.api-key, DB_PASSWORD."""
    plain = name.strip("_-.")
    return bool(SECRET.search(plain)) and not NO_SECRET.search(plain) and plain.partition(".")[0] != "secrets"


def _word(word: str) -> str:
    key, sign, _ = word.partition("=")
    if sign and re.fullmatch(r"[\w.-]+", key) and is_secret(key):
        return f"{key}={HIDDEN}"
    return _LOGIN.sub(HIDDEN, _within(word))


def _within(text: str) -> str:
    """A mapping or a row of flags in one word: {api-key: x}, --api-key x."""
    told, at = "", 0
    for found in _NAMED.finditer(text):
        value = _VALUE.match(text, found.end())
        if value and found.start() >= at and is_secret(found["name"] or found["flag"]):
            told, at = f"{told}{text[at : found.end()]}{HIDDEN}", value.end()
    return told + text[at:]
