"""What the profile plans against what it was made of: the same command but for these differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from deploy import engines, plan
from deploy.checkpoint.manifest import File, Manifest
from deploy.inventory import Host
from deploy.plan import Draft, Node
from deploy.profile import Profile
from deploy.scaffold import HOME, Word, flags, kept
from deploy.scaffold.said import Fields
from deploy.text import scrub
from deploy.text.words import RunPath

HIDDEN = "***"

Said = dict[str, list[tuple[str, ...]]]  # a flag, and its values each time it is said


@dataclass(frozen=True)
class Difference:
    """What the plan adds (`was` is empty), leaves out (`now` is), or says otherwise."""

    what: str
    was: str
    now: str
    why: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        sign = "+" if not self.was else "-" if not self.now else "~"
        said = f"{self.was} -> {self.now}" if self.was and self.now else self.was or self.now
        text = f"{sign} {said}" if said.startswith(self.what) else f"{sign} {self.what} {said}"
        return f"{text}   ({self.why})" if self.why else text


def node(profile: Profile, host: Host) -> Node:
    """What the profile plans for a host, as far as no host is needed: the draft is known by its name alone."""
    hosts = [host.model_copy(update={"name": f"{host.name}-{n}" if n else host.name}) for n in range(profile.nodes)]
    return plan.make(dict.fromkeys(hosts, profile), _draft(profile), None).replicas[0].head


def _draft(profile: Profile) -> Draft | None:
    if profile.draft is None:
        return None
    name = PurePosixPath(profile.draft.path).name
    files = (File(name, 0, ""),) if name.endswith(".gguf") else ()
    return Draft(profile.draft.path, Manifest(files))


def differences(made: Fields, planned: Node) -> list[Difference]:
    """Every difference between the launch and the plan."""
    return [*_commands(made, planned), *_environments(made, planned)]


def _commands(made: Fields, planned: Node) -> Iterator[Difference]:
    engine, argv = engines.load(made.engine), made.launch.argv
    _, called = engines.recognise([word.text for word in argv]) or ("", engines.Called({}, 1))
    _, again = engines.recognise([str(word) for word in planned.argv]) or ("", engines.Called({}, 1))
    was, now = argv[: called.flags], planned.argv[: again.flags]
    if [word.text for word in was] != [str(word) for word in now]:
        yield Difference("program", _line([word.text for word in was]), _line(list(map(str, now))))
    before = _said(argv[called.flags :], engine, called.model is not None)
    words = [
        Word(str(word), names=("run",) if isinstance(word, RunPath) else ()) for word in planned.argv[again.flags :]
    ]
    after = _said(words, engine, again.model is not None)
    telling = [word.text for word in argv if kept.tells(word, made.hidden)]
    secret = {flag for flag in before if scrub.is_secret(flag) or _ends(telling, before[flag])}
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _flag(
            name, before.get(name), after.get(name), hidden=name in secret, served=planned.draft is not None
        )


def flags_of(planned: Node) -> set[str]:
    """The flags that a plan says, by their full names."""
    words = [str(word) for word in planned.argv]
    name, called = engines.recognise(words) or ("command", engines.Called({}, 1))
    found, _ = flags.read([Word(word) for word in words[called.flags :]], engines.load(name))
    return {flag.name for flag in found}


def _flag(name: str, was: Any, now: Any, *, hidden: bool, served: bool) -> Iterator[Difference]:
    if was == now or (was and now and was[-1:] == now):
        return
    before, after = _shown(name, was, hidden), _shown(name, now, hidden)
    why = "a secret" if hidden else ""
    if served and "$run/draft" in after:
        why = "pushed, verified, and served from the run's folder"
    yield Difference(f"--{name}", before, after, why)


def _shown(name: str, said: Sequence[tuple[str, ...]] | None, hidden: bool) -> str:
    if said is None:
        return ""
    if hidden:
        return f"--{name} {HIDDEN}"
    return " ".join(_line([f"--{name}", *values]) for values in said)


def _said(words: Sequence[Word], engine: engines.Engine, model: bool) -> Said:
    """What the words say; what is said again with the same values counts once. `model`: the first word is one."""
    found, alone = flags.read(words, engine)
    said: Said = {flags.model(engine): [(alone[0].text,)]} if model else {}
    for flag in found:
        values = tuple(word.text for word in flag.values)
        if values not in said.setdefault(flag.name, []):
            said[flag.name].append(values)
    return said


def _ends(telling: Sequence[str], said: Sequence[tuple[str, ...]]) -> bool:
    """Whether a value is a word that tells a secret, or its end: `--flag=value`."""
    return any(word.endswith(value) for word in telling for values in said for value in values if value)


def _environments(made: Fields, planned: Node) -> Iterator[Difference]:
    before, after = made.launch.env, dict(planned.env)
    for name in sorted({*before, *after}):
        word = before.get(name)
        hidden = scrub.is_secret(name) or (word is not None and kept.tells(word, made.hidden))
        was = None if word is None else word.text
        if hidden and word is not None and name in planned.profile.secrets:
            continue  # the same variable, from the caller's own environment
        if was != after.get(name):
            yield Difference(
                name,
                "" if was is None else f"{name}={HIDDEN if hidden else _line([was])}",
                "" if name not in after else f"{name}={_line([after[name]])}",
                "a secret" if hidden else "",
            )


def _line(words: Sequence[str]) -> str:
    return " ".join(word.replace(HOME, "~") or "''" for word in words)
