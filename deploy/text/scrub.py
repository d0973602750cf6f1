"""What may be told to others of a command line: everything but the values of what is a secret by its name.

Where it is in doubt how far such a value goes, all that follows it in its word is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

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

# What a server writes into its log: `api_key='x'` of a repr, `--api-key x` of a command line, `"hf_token": "x"`.
# What was cut before its closing quote or bracket goes to the end of its line.
_LOGGED = re.compile(
    r"""(?P<word>(?:key|token|secret|pass(?:w(?:or)?d|phrase)|pwd|credential|authorization)s?)"""
    r"""(?:["']?\s*[=:]\s*|(?P<space>\s+))""",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![\w.-])(--)?([\w.-]+)\Z")
_VALUE = re.compile(
    r"""b?"(?:[^"\\\n]|\\.)*"|b?'(?:[^'\\\n]|\\.)*'|\[[^]\n]*\]|b?["'[][^\n]*|[^\s,;)}\]"']+""", re.IGNORECASE
)
_PLAIN = re.compile(
    r"""b?(?P<quote>["']?)(?:None|null|True|False|\*+|<.*>|-.*|)(?P=quote)|[\d.]+|\[\s*\]""", re.IGNORECASE | re.DOTALL
)
_LOGGED_LOGIN = re.compile(r"""(?<=://)(?:[^\s'"/@:]{0,300}:[^\s'"@]{0,300}|[^\s'"/@:]{1,300})(?=@)""")
_PROSE = frozenset("key keys token tokens".split())  # "unexpected key: model.fc.weight" is no secret
# Tokens that are known by their form: Hugging Face, OpenAI and its likes, NVIDIA, GitHub, AWS.
_FORMED = re.compile(r"\b(?:hf_|sk-|nvapi-|gh[pousr]_|github_pat_)[A-Za-z0-9_-]{16,}|\bAKIA[A-Z0-9]{16}\b", re.ASCII)
_MAY_HOLD = re.compile(
    r"key|token|secret|pass|pwd|credential|authorization|bearer|hf_|sk-|nvapi-|gh[pousr]_|github_|AKIA|://",
    re.IGNORECASE,
)

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


def text(said: str) -> str:
    """What a server said, without the values of what is a secret by its name or its form; numbers and None stay."""
    if not _MAY_HOLD.search(said):
        return said
    for hidden in (_FORMED, _BEARER):
        said = hidden.sub(HIDDEN, said)
    told, at, place = [], 0, 0
    while found := _LOGGED.search(said, place):
        place = found.end()
        if (flag := _flagged(found)) is not None and (value := _VALUE.match(said, place)):
            begin, place = value.span()
            if flag or not _PLAIN.fullmatch(value[0]):
                mark = next((mark for mark in ("'", '"') if value[0].endswith(mark)), "")
                told += [said[at:begin], mark, HIDDEN, mark]
                at = place
    return _LOGGED_LOGIN.sub(HIDDEN, "".join([*told, said[at:]]))


def document(told: Any, name: str = "") -> Any:
    """JSON without the texts under keys that name a secret, and in an `argv` behind its flags; `name` is the key that
    it stands under, with dots.
    """
    if isinstance(told, Mapping):
        return {key: document(value, f"{name}.{key}" if name else str(key)) for key, value in told.items()}
    if isinstance(told, list | tuple):
        if name.rpartition(".")[2] != "argv":
            return [document(item, name) for item in told]
        said = zip(told, words(map(str, told)), strict=True)
        return [shown if isinstance(item, str) else item for item, shown in said]
    return HIDDEN if isinstance(told, str) and not says_nothing(told) and is_secret(name) else told


def says_nothing(value: str) -> bool:
    """Whether a value is no secret, whatever it is called: a number, None, or what is hidden already."""
    return bool(_PLAIN.fullmatch(value))


def _flagged(found: re.Match[str]) -> bool | None:
    """Whether the name that ends here is a flag's; None where it is no secret's."""
    begin, end = found.start("word"), found.end("word")
    name = _NAME.search(found.string[max(0, begin - LONGEST) : end])
    if name is None or not is_secret(name[2]):
        return None
    flag = bool(name[1])
    return flag if flag or not (found["space"] or name[2].lower() in _PROSE) else None


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
