"""How a server is started, as the fields of a profile, each with the place where it was said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deploy import engines
from deploy.config import consistency, documents, schema
from deploy.config.nccl import Nccl
from deploy.config.schema import Path as Key
from deploy.engines import Called
from deploy.errors import ConfigError
from deploy.profile import Engine, Profile
from deploy.scaffold import HOME, Launch, Word, flags, kept, loose
from deploy.scaffold.flags import Flag
from deploy.scaffold.said import Entry, Fields, checkpoint, made_whole, relative, settled
from deploy.text import scrub

NCCL = "NCCL_"
GPUS = "CUDA_VISIBLE_DEVICES"
PATHS = ("model.path", "draft.path")


def of(launch: Launch, *, local: bool, environ: Mapping[str, Word] | None = None, more: Sequence[str] = ()) -> Fields:
    """The fields of a launch. `environ` is all that its environment has, where `launch.env` is less.

    `more` are the words that cannot be known, as somebody says them: a text for each place, as a shell would read it.
    """
    made = Fields(launch, local, notes=list(launch.notes))
    texts = [word.text for word in launch.argv]
    name, called = engines.recognise(texts) or ("command", Called({}, 1))
    made.engine = name
    made.said["engine", "name"] = Entry(name, launch.argv[0].where)
    engine = engines.load(name)
    launch = loose.settle(made, called, engine, more)
    found, alone = flags.read(launch.argv[called.flags :], engine)
    made.hidden = kept.values(environ or launch.env, (w for f in found if scrub.is_secret(f.name) for w in f.values))
    _program(made, called)
    if called.model is not None:
        found = [Flag(flags.model(engine), "", tuple(alone[:1]), alone[0].where), *found]
        alone = alone[1:]
    for word in alone if name != "command" else ():
        shown = "a word" if kept.tells(word, made.hidden) else repr(word.text)
        made.leave(word.where, f"{shown} is left out: it belongs to no flag")
    for flag in _together(found, engine, made):
        _flag(made, engine, flag)
    if name == "command":
        _whole_line(made)
    _environment(made)
    _consequences(made, engine)
    return made


def _program(made: Fields, called: Called) -> None:
    """The interpreter or the program. What is found by PATH is left to the host's PATH."""
    first = made.launch.argv[0]
    for key, text in called.engine.items():
        whole = text if text.startswith(("/", HOME)) else made.launch.whole(text, "/" in text)
        unknown = first.unknown or (relative(text) if "/" in text and not whole else "")
        if whole or unknown or text != Engine.model_fields["python"].default:
            made.say(("engine", key), settled(made, Word(whole or text, first.where, unknown), path=True))


def _together(found: list[Flag], engine: engines.Engine, made: Fields) -> list[Flag]:
    """Flags that are said several times as one: the last word for what a profile has a key for, else all of them."""
    merged: dict[str, Flag] = {}
    for flag in found:
        before = merged.pop(flag.name, None)
        if before is None or before.values == flag.values:
            merged[flag.name] = flag
        elif flag.name in engine.FIELDS or not (before.values and flag.values):
            made.leave(before.where, f"{flag.said} is said again in {flag.where}, and the last one counts")
            merged[flag.name] = flag
        else:
            again = Word(f"--{flag.name}", flag.where)
            merged[flag.name] = Flag(flag.name, flag.said, (*before.values, again, *flag.values), before.where)
    return list(merged.values())


def _flag(made: Fields, engine: engines.Engine, flag: Flag) -> None:
    key = engine.FIELDS.get(flag.name)
    if scrub.is_secret(flag.name) or any(kept.tells(word, made.hidden) for word in flag.values):
        _secret_flag(made, engine, flag)
    elif key == "":
        made.leave(flag.where, f"{flag.said} is left out: it is each node's own, and the plan says it")
    elif key and len(flag.values) == 1 and _field(made, engine, flag, tuple(key.split("."))):
        return
    elif made.engine != "command":
        _argument(made, flag)


def _field(made: Fields, engine: engines.Engine, flag: Flag, key: Key) -> bool:
    """A flag that the profile has a key for. False where the key cannot hold its value."""
    word = flag.values[0]
    table = engine.VALUES.get(flag.name)
    if table is not None:
        if word.text not in table:
            return False
        word = word.cut(table[word.text])
    if ".".join(key) in PATHS:
        word = checkpoint(made, word, key)
    if word.unknown:
        made.say(key, word)
        return True
    try:
        value = documents.read(word.text, schema.at(Profile, key), word.where)
    except ConfigError:
        return False
    made.say(key, word, value)
    return True


def _argument(made: Fields, flag: Flag) -> None:
    """A flag that is passed as it is."""
    words = [settled(made, made_whole(made, word)) for word in flag.values]
    unknown = next((word.unknown for word in words if word.unknown), "")
    texts = [word.text for word in words]
    value = True if not texts else texts[0] if len(texts) == 1 else texts
    made.say(("args", flag.name), Word("", flag.where, unknown), value)


def _secret_flag(made: Fields, engine: engines.Engine, flag: Flag) -> None:
    """A secret is named by the variable that it came from, or by its flag; its value is not looked at."""
    own = [name for word in flag.values for name in word.names if name not in word.carriers]
    named = [name for name in own if re.fullmatch(r"[A-Za-z_]\w*", name)]
    name = next(filter(scrub.is_secret, named), None) or (named[0] if named else flag.name.upper().replace("-", "_"))
    if scrub.is_secret(flag.name) and _takes_secret(engine, flag.name, name):
        made.said["secrets", name] = Entry(flag.name, flag.where)
    elif made.engine != "command":
        made.leave(flag.where, f"{flag.said} is left out: it holds a secret, and this engine takes none there")


def _takes_secret(engine: engines.Engine, flag: str, name: str) -> bool:
    if flag in engine.SECRETS:
        return True
    try:
        engine.secret_argv({flag: name})
    except ConfigError:
        return False
    return True


def _whole_line(made: Fields) -> None:
    """For a server without an engine of its own: all its words, and our own in their places."""
    places = {("port",): "{port}", ("model", "path"): "{model}", ("model", "name"): "{name}"}
    mine = {str(made.said[key].value): place for key, place in places.items() if key in made.said}
    words: list[str] = []
    told = scrub.words(said.text for said in made.launch.argv)  # and the word after a flag that is named as secrets are
    for said, shown in zip(made.launch.argv, told, strict=True):
        word = settled(made, made_whole(made, said))
        if word.unknown:
            made.unknown["args", "argv"] = f"{word.where}: args.argv: {word.unknown}"
        if shown == said.text and not kept.tells(word, made.hidden):
            words.append(mine.get(word.text, word.text))
            continue
        made.leave(word.where, "a secret is left out of the command line: this engine takes them as variables only")
        if words and words[-1].startswith("-") and not said.text.startswith("-"):
            words.pop()
    made.said["args", "argv"] = Entry(words, made.launch.where)


def _environment(made: Fields) -> None:
    key = consistency.KEY_VARIABLES.get(made.engine)
    for name, word in sorted(made.launch.env.items()):
        short = name.removeprefix(NCCL)
        if name == "PATH":
            made.leave(word.where, "PATH is left out: name the interpreter by its whole path, engine.python")
        elif ("secrets", name) in made.said:
            made.leave(word.where, f"{name} is given as the flag --{made.said['secrets', name].value} alone")
        elif scrub.is_secret(name):
            made.said["secrets", name] = Entry("api-key" if name == key else "env", word.where)
        elif kept.tells(word, made.hidden):
            made.leave(word.where, f"{name} is left out: it holds a secret")
        elif name.startswith(NCCL) and _is_nccl(short, word):
            made.say(("nccl", short), word)
        else:
            made.say(("env", name), settled(made, word))


def _is_nccl(name: str, word: Word) -> bool:
    try:
        return bool(Nccl.model_validate({name: word.text})) and not word.unknown
    except ValueError:  # a variable that is not listed, or a value that NCCL takes and the list does not
        return False


def _consequences(made: Fields, engine: engines.Engine) -> None:
    """What follows from what is said."""
    said = made.said
    if made.launch.port:
        said["port",] = Entry(made.launch.port, "on which it listens")
    if ("port",) not in said and ("port",) not in made.unknown and engine.PORT not in (None, 30000):
        said["port",] = Entry(engine.PORT, f"{made.engine}'s own")
    if _value(said, "model", "name") == _value(said, "model", "path"):
        said.pop(("model", "name"), None)  # what it is called where nothing is said
    if ("draft", "path") in said and ("speculative", "algorithm") not in said:
        said["speculative", "algorithm"] = Entry("STANDALONE", "nothing is said of how it is used")
    if _value(said, "speculative", "eagle_topk") == 1:
        said.pop(("speculative", "num_draft_tokens"), None)  # a chain: always num_steps + 1
    _gpus(made)


def _gpus(made: Fields) -> None:
    said = made.said
    sizes = [_value(said, "parallel", name) or 1 for name in ("tp", "pp", "dp")]
    nodes = _value(said, "nodes") or 1
    wanted = sizes[0] * sizes[1]
    visible = said.get(("env", GPUS))
    count = len([word for word in str(visible.value).split(",") if word.strip()]) if visible else 0
    if made.engine == "sglang" and count and count * nodes not in (wanted, wanted * sizes[2]):
        made.leave(visible.where if visible else "", f"gpus is left out: {GPUS} has {count}, tp x pp is {wanted}")
    elif count and (made.engine != "llamacpp" or ("args", "n-gpu-layers") in said):
        said["gpus",] = Entry(count, visible.where if visible else "")
    elif made.engine == "sglang" and wanted > 1 and not wanted % nodes and _value(said, "args", "device") != "cpu":
        said["gpus",] = Entry(wanted // nodes, "tp x pp")


def _value(said: Mapping[Key, Entry], *key: str) -> Any:
    entry = said.get(key)
    return entry.value if entry else None


def unknown(made: Fields, given: Iterable[Key]) -> ConfigError | None:
    """All that cannot be known and was not said otherwise, as one error."""
    covered = {key[:length] for key in given for length in range(1, len(key) + 1)}
    lines = [why for key, why in made.unknown.items() if key not in covered and key[:1] not in set(given)]
    if not lines and not made.loose:
        return None
    missing = [f"{'.'.join(key)}=..." for key in made.unknown if key not in covered] if lines else []
    say = " ".join([*missing, *["--more '--flag value ...'"] * len(made.loose)])
    out = "; --more '' where there are none, or to leave them out" if made.loose else ""
    return ConfigError(
        "\n".join([*lines, *made.loose]),
        evidence="\n".join(made.notes),
        remedy=f"say it: deploy init --from ... {say}{out}",
    )
