"""Versions of servers: which differ in what we know of them, and which one is meant.

A server's version decides what it makes of a checkpoint. Where it is not known, everything is judged for one version
of each range in which nothing that we know of differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from deploy.errors import ConfigError

# The first version of each range, oldest first, and the newest that was read; wheels of the server, one by one.
RANGES = {
    "sglang": ("0.5.8", "0.5.9", "0.5.10", "0.5.12", "0.5.13", "0.5.18"),
    "vllm": ("0.32",),
}
NEWEST = {"sglang": "0.5.23", "vllm": "0.33"}
BEYOND = {"vllm": "<0.34"}  # whose next version may load otherwise; SGLang's newest rules are taken for what comes
OLDEST = {"vllm": ">=0.32"}


def parse(text: str) -> tuple[str, str | None]:
    """`sglang==0.5.8`, or `sglang` alone for all of its versions, in any case of letters.

    ConfigError with what is known.
    """
    name, equals, version = (part.strip() for part in text.partition("=="))
    name = name.lower()
    if name not in RANGES:
        known = f"known: {', '.join(sorted(RANGES))}; write it as sglang==0.5.8"
        raise ConfigError(f"there are no rules for an engine {name!r}", remedy=known)
    if not equals:
        return name, None
    try:
        Version(version)
    except InvalidVersion:
        told = f"write it as {name}=={NEWEST[name]}, or {name} alone for all versions"
        raise ConfigError(f"{version!r} is no version of {name}", remedy=told) from None
    if of(version) is None:
        told = f"leave it out: {name} alone is judged for all versions"
        raise ConfigError(f"{version} is what an install calls itself that does not know its version", remedy=told)
    return name, version


def of(version: str | None) -> Version | None:
    """A version that says something: an editable install that does not know its own calls itself 0.0.0."""
    try:
        found = Version(version or "0")
    except InvalidVersion:
        return None
    return found if any(found.release[:3]) else None


def meant(engine: str, version: str | None) -> tuple[Version, ...]:
    """The version itself, else one of each range; none where no version of this engine is known to us."""
    known = of(version)
    if known:
        return (known,)
    return tuple(Version(first) for first in RANGES.get(engine, ()))


def was_read(engine: str, version: str | None) -> bool:
    """Whether the rules are those of this version. SGLang's newest are taken for what comes after, vLLM's are not."""
    known = of(version)
    asked = SpecifierSet(",".join(bounds)) if (bounds := [b[engine] for b in (OLDEST, BEYOND) if engine in b]) else None
    return asked is None or (known is not None and asked.contains(known.base_version))


def labels(engine: str) -> list[str]:
    """The ranges in words, one by one."""
    return [span for span, _ in spans(engine, [str(index) for index in range(len(RANGES[engine]))])]


def spans(engine: str, told: Sequence[str]) -> list[tuple[str, str]]:
    """(range of versions, what is told of it), neighbours of the same tale in one: `told` has one of each range."""
    firsts = RANGES[engine]
    found, at = [], 0
    for tale, group in groupby(told):
        size = len(list(group))
        lower = f">={firsts[at]}" if at else OLDEST.get(engine, "")
        upper = f"<{firsts[at + size]}" if at + size < len(firsts) else BEYOND.get(engine, "")
        found.append((f"{engine} {','.join(part for part in (lower, upper) if part)}".strip(), tale))
        at += size
    return found
