"""Whether speculation changed what is said: greedy answers with the draft against those without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deploy.findings import Finding
from deploy.measuring.measurement import Quality

AROUND = 400  # characters that are shown before the first difference, and after it

Answers = Mapping[str, Sequence[str]]


def compared(drafted: Answers, plain: Answers) -> Quality | None:
    """Both are {prompt: its different texts}. None where no prompt was put to both.

    A prompt differs where the draft gave a text that the server without it never gave. One that this server answers in
    several ways by itself is unstable: it is counted as that, and shows nothing of the draft.
    """
    both = [name for name in drafted if drafted[name] and plain.get(name)]
    if not both:
        return None
    unstable = [name for name in both if len(set(plain[name])) > 1]
    different = [
        (name, text)
        for name in both
        if name not in unstable
        for text in dict.fromkeys(drafted[name])
        if text not in plain[name]
    ]
    first = _first(*different[0], plain[different[0][0]][0]) if different else None
    differ = len({name for name, _ in different})
    return Quality(compared=len(both), differ=differ, unstable=len(unstable), first=first)


def _first(prompt: str, drafted: str, plain: str) -> dict[str, str]:
    pairs = enumerate(zip(drafted, plain, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(drafted), len(plain)))
    begin = max(0, at - AROUND)
    shown = {"with": drafted[begin : at + AROUND], "without": plain[begin : at + AROUND]}
    return {"prompt": prompt, **shown, "at": str(at)}


def findings(told: Quality | None) -> Iterator[Finding]:
    """A warning where answers differ, with the first difference."""
    if told is None or not told.differ or told.first is None:
        return
    first = told.first
    unstable = f"; {told.unstable} more are answered in several ways without it, too" if told.unstable else ""
    yield Finding(
        "quality",
        "WARN",
        f"with the draft, {told.differ} of {told.compared} prompts are answered otherwise than without it{unstable}",
        f"{first['prompt']}, from character {first['at']}\nwith:    {first['with']}\nwithout: {first['without']}",
        "at temperature 0 a draft must not change what is said: batches of other shapes may round otherwise, where two "
        "tokens are nearly as likely; many or early differences are a broken kernel, or a server that takes drafts "
        'without verifying them. As a gate: gates.differences="<= 0"',
    )
