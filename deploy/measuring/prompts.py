"""What is asked of a server to measure it: prompts with a class, from lines of JSON."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploy.errors import ConfigError

OWN_KIND = "own"  # the class of prompts that say none
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
MIXED = 2  # prompts of each class in `mixed`
FORM = 'a line is {"prompt": "...", "class": "code", "id": "sort"}, or has "messages" in the place of "prompt"'


@dataclass(frozen=True)
class Prompt:
    """One question: its name (class/number, or class/id), its class, and the messages of its chat."""

    name: str
    kind: str
    messages: tuple[tuple[str, str], ...]  # (role, content)


@dataclass(frozen=True)
class Set:
    """Prompts with the name under which they are known."""

    name: str
    prompts: tuple[Prompt, ...]

    @property
    def digest(self) -> str:
        """Of all that is asked: with another one, other things were measured."""
        text = json.dumps([asdict(prompt) for prompt in self.prompts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def lines(self) -> str:
        """As a file that is read back as the same prompts."""
        return "".join(f"{json.dumps(_line(prompt))}\n" for prompt in self.prompts)

    def round(self, concurrency: int, number: int, seed: int) -> tuple[Prompt, ...]:
        """Those of one round, in an order drawn from the seed. All streams are kept busy: with many of them a prompt
        is asked more than once.
        """
        drawn = random.Random(f"{seed}/{concurrency}/{number}")  # noqa: S311 - an order, no secret
        times = max(1, -(-2 * concurrency // len(self.prompts)))
        asked = [prompt for _ in range(times) for prompt in drawn.sample(self.prompts, len(self.prompts))]
        return tuple(asked[: max(len(self.prompts), 2 * concurrency)])


def of_texts(texts: Iterable[str]) -> tuple[Prompt, ...]:
    """Prompts that a profile spells out."""
    return tuple(Prompt(f"{OWN_KIND}/{number}", OWN_KIND, (("user", text),)) for number, text in enumerate(texts, 1))


def parse(text: str, where: str, kind: str = OWN_KIND) -> tuple[Prompt, ...]:
    """The prompts of a file of JSON lines, or of a JSON list (as ShareGPT's); `kind` is the class of those that say
    none. ConfigError names each wrong line, as `where`:line.
    """
    found: dict[str, Prompt] = {}
    wrong: list[str] = []
    numbers: dict[str, int] = {}
    for line, document in _documents(text):
        try:
            said_kind = _word(document, "class", kind)
            numbers[said_kind] = numbers.get(said_kind, 0) + 1
            name = f"{said_kind}/{_word(document, 'id', str(numbers[said_kind]))}"
            if name in found:
                raise ValueError(f"there is a prompt {name!r} already")  # noqa: TRY301 - all lines are told at once
            found[name] = Prompt(name, said_kind, _messages(document))
        except ValueError as error:
            wrong.append(f"{where}:{line}: {error}")
    if wrong:
        raise ConfigError(f"{where}: what it has are no prompts", evidence="\n".join(wrong[:20]), remedy=FORM)
    if not found:
        raise ConfigError(f"{where} has no prompts", remedy=FORM)
    return tuple(found.values())


def mixed(sets: Mapping[str, Sequence[Prompt]]) -> tuple[Prompt, ...]:
    """The first ones of each class."""
    return tuple(prompt for kind in sorted(sets) for prompt in sets[kind][:MIXED])


def _line(prompt: Prompt) -> dict[str, Any]:
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    return {"id": prompt.name.removeprefix(f"{prompt.kind}/"), "class": prompt.kind, "messages": messages}


def _documents(text: str) -> Iterator[tuple[int, Any]]:
    """(line, what stands there); a word in the place of what is no JSON. Lines end with LF alone: a text may have
    others (U+2028, U+0085) in it.
    """
    text = text.removeprefix("\ufeff")  # which Windows writes before it
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield 1, f"is no JSON: {error}"
            return
        yield from ((number, document) for number, document in enumerate(listed, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, f"is no JSON: {error}"


def _word(document: Any, key: str, otherwise: str) -> str:
    if not isinstance(document, dict):
        what = document if isinstance(document, str) else f"is no JSON object, but {json.dumps(document)}"
        raise ValueError(what)  # noqa: TRY004 - told with its line
    said = document.get(key, otherwise)
    if not isinstance(said, str | int) or isinstance(said, bool) or not str(said).strip():
        raise ValueError(f"{key!r} should be a word, not {json.dumps(said)}")
    return str(said).strip()


def _messages(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Up to the last one that is not the assistant's: the answer is the server's to give."""
    if "prompt" in document:
        return (("user", _said(document["prompt"])),)
    turns = document.get("messages", document.get("conversations"))
    if not isinstance(turns, list):
        raise ValueError('has neither "prompt" nor "messages"')  # noqa: TRY004 - told with its line
    told = [_turn(turn) for turn in turns]
    # of a dialogue in ShareGPT's form the first question is asked, as serving benchmarks do
    last = next((at for at, (role, _) in enumerate(told) if role == "assistant"), len(told))
    if "messages" in document:
        last = max((at for at, (role, _) in enumerate(told, 1) if role != "assistant"), default=0)
    if not any(role == "user" for role, _ in told[:last]):
        raise ValueError("has no message of a user")
    return tuple(told[:last])


def _turn(turn: Any) -> tuple[str, str]:
    if not isinstance(turn, dict):
        raise ValueError(f"a message should be an object, not {json.dumps(turn)}")  # noqa: TRY004 - told with its line
    role = turn.get("role", turn.get("from"))
    if not isinstance(role, str) or role not in ROLES:
        raise ValueError(f"a message has the role {json.dumps(role)}; known: {', '.join(sorted(set(ROLES.values())))}")
    return ROLES[role], _said(turn.get("content", turn.get("value")))


def _said(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"a prompt should be a text, not {json.dumps(text)}")
    return text
