"""Any server with an OpenAI API that a command line starts: `args.argv` is that command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from deploy.engines import (
    Called,
    Command,
    Conversation,
    Counters,
    Loaded,
    Question,
    Request,
    Streamed,
    Totals,
    _called,
    _chat,
    _explain,
    _flags,
    _ports,
)
from deploy.engines._counts import count, part
from deploy.engines._dialect import Dialect
from deploy.engines._gauges import Gauges
from deploy.engines._log import UNSEEN, Explanation, Progress, Seen
from deploy.engines._phases import Order
from deploy.engines._ports import Port, Said
from deploy.engines._swap import never
from deploy.errors import ConfigError
from deploy.text.words import Word, path

DISTRIBUTION = None
READY = None
FATAL: re.Pattern[str] | None = None
READY_PATH = "/v1/models"
INFO: tuple[str, ...] = ()
METRICS = None
GAUGES = Gauges()
STEPS = None
ELSEWHERE: tuple[str, ...] = ()
STREAM: Mapping[str, Any] = MappingProxyType({})
SECRETS: Mapping[str, str] = {}
PORT = None
FIELDS = {"port": "port", "model": "model.path", "served-model-name": "model.name"}
ALIASES = {"model-path": "model", "m": "model", "model-id": "model"}
VALUES: Mapping[str, Mapping[str, str]] = {}
WORDS: tuple[str, ...] = ()
GPU_FLAGS: tuple[str, ...] = ()
swap = never("whether this server can is not known")

# Servers with an OpenAI API that have no engine of their own here: modules, and programs with their first word.
MODULES = ("llama_cpp.server", "lightllm.server.api_server", "mlc_llm")
PROGRAMS = {"trtllm-serve": "", "text-generation-launcher": "", "mlc_llm": "serve"}


def command(request: Request) -> Command:
    """The words of `args.argv`; {port}, {model}, {name} and {rank} in them, and {draft} alone, stand for our own."""
    profile = request.profile
    argv = profile.args.get("argv")
    if not isinstance(argv, list) or not argv:
        raise ConfigError(
            "engine `command` needs its command line", remedy='args: {argv: ["my-server", "--port", "{port}"]}'
        )
    if unknown := sorted(set(profile.args) - {"argv"}):
        raise ConfigError(
            f"engine `command` has no flags of its own: args.{unknown[0]}", remedy="put it into args.argv"
        )
    program, *others = (_word(_flags.text(word), request) for word in argv)
    return Command((path(program) if isinstance(program, str) else program, *others))


def called(argv: Sequence[str]) -> Called | None:
    """A server that has no engine of its own here; its model may be a word of its own."""
    flags = _called.module(argv, *MODULES) or _program(argv)
    if flags is None:
        return None
    alone = argv[flags : flags + 1]
    return Called({}, flags, flags if alone and not alone[0].startswith("-") else None)


def _program(argv: Sequence[str]) -> int | None:
    for name, first in PROGRAMS.items():
        flags = _called.script(argv, name)
        if flags and (not first or argv[flags : flags + 1] == [first]):
            return flags + bool(first)
    return None


def _word(word: str, request: Request) -> Word:
    profile = request.profile
    if "{draft}" in word:
        return _draft(word, request)
    if word == "{model}":
        return path(profile.model.path)
    places = {
        "{port}": str(profile.port),
        "{model}": profile.model.path,
        "{name}": profile.model.name or profile.model.path,
        "{rank}": str(request.rank),
    }
    return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], word)


def _draft(word: str, request: Request) -> Word:
    """Its path is known on the host alone, so it cannot be a part of a word."""
    if word != "{draft}":
        raise ConfigError(f"args.argv: {{draft}} must be a word of its own, not in {word!r}")
    if request.draft is None:
        raise ConfigError("args.argv names {draft}, but the profile has none", remedy="set draft.path")
    return request.draft


def ports(said: Said) -> tuple[Port, ...]:
    """What an unknown server takes beside the one it answers on, nobody can tell."""
    return _ports.listed(_ports.http(said))


def secret_argv(flags: Mapping[str, str]) -> tuple[Word, ...]:
    """There is no general way; the environment is."""
    if flags:
        raise ConfigError("engine `command` takes secrets only as environment", remedy="secrets: [NAME]")
    return ()


def secret_file(flags: Mapping[str, str]) -> tuple[str, str]:
    """Never asked for, since `secret_argv` refuses."""
    raise NotImplementedError(flags)


def order(version: str | None) -> Order:  # noqa: ARG001
    """An unknown server's log has no known phases."""
    return ()


def marks(line: str) -> list[Progress]:  # noqa: ARG001
    """The same."""
    return []


def progress(line: str) -> Progress | None:  # noqa: ARG001
    """The same."""
    return None


DIALECT = Dialect(rows=(), progress=progress, own=re.compile(r"(?!)"))


def explain(log: str, seen: Seen = UNSEEN) -> Explanation | None:
    """What a Python traceback says, if there is one, or how the process ended."""
    return _explain.explain(DIALECT, log, seen)


def chat(model: str, prompt: str, max_tokens: int) -> Question:
    """A chat request at temperature 0."""
    return _chat.question(model, prompt, max_tokens)


def loaded(answer: Mapping[str, Any]) -> Loaded:  # noqa: ARG001
    """An unknown server does not say."""
    return Loaded()


def measured(model: str, prompt: str, max_tokens: int) -> tuple[Question, ...]:
    """The same; the standard API tells nothing of drafts."""
    return (_chat.question(model, prompt, max_tokens),)


def wants_ids(version: str | None) -> bool:  # noqa: ARG001
    """Its chats tell all that it has to tell."""
    return False


def streamed(asked: Conversation) -> Streamed:
    """The standard has no word for an answer that goes on past its end."""
    if asked.fixed_length:
        raise ConfigError(
            "engine `command` cannot ask for answers of a fixed length", remedy="bench.fixed_length: false"
        )
    return _chat.streamed(asked)


def counters(answer: Mapping[str, Any]) -> Counters | None:
    """Tokens alone."""
    generated = count(part(answer, "usage").get("completion_tokens"))
    return None if generated is None else Counters(generated, steps=None, drafted=None, accepted=None)


def totals(metrics: str) -> Totals | None:  # noqa: ARG001
    """None known."""
    return None
