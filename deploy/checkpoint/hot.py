"""Whether a draft can take the place of another one in a server that runs, and which of its tensors it brings. Pure.

The server stays as it was built: its modules from the config, its map of the vocabulary from the file (SGLang copies
`hot_token_id` once, at its start), its graphs from the addresses of its parameters. So two drafts must be alike in all
but the values of their weights. What is the target's (embeddings, a head that is borrowed) is never sent: written
through the draft it would change the target.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checkpoint import diff
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.rules import Case
from deploy.checkpoint.trace import Trace, borrowed

INERT = ("_name_or_path", "transformers_version")  # keys of a config that no server builds anything by
PACKED = ("quantization_config", "compression_config")
SHOWN = 6


def obstacles(served: Facts, case: Case) -> Iterator[str]:
    """Why the case's draft cannot take the place of the served one, a line each; nothing where it can."""
    draft = case.draft
    if served.format != "safetensors" or draft.format != "safetensors":
        other = draft.format if served.format == "safetensors" else served.format
        yield f"weights are handed over from safetensors, and one of the two is {other}"
        return
    for facts in (served, draft):
        yield from (f"{facts.path}: {problem.what}" for problem in facts.problems if problem.outcome)
    yield from _differing(served, draft)
    if served.d2t != draft.d2t:
        yield "d2t differs, and the server keeps what it has made of it at its start"
    if any(draft.config.get(key) for key in PACKED):
        yield "it is quantized: a server packs such weights anew when it has loaded them"
    if case.loader is None or case.trace is None:
        yield f"how {case.server} loads {case.architecture or 'it'} is not known"
    else:
        yield from _landing(case, case.trace)


def sent(case: Case) -> dict[str, str]:
    """The tensors that are handed over, and the parameter that each fills: no maps, nothing that the loader ignores or
    drops, and nothing that is the target's.
    """
    if case.loader is None or case.trace is None:
        raise ValueError(f"how {case.server} loads {case.architecture} is not known")
    theirs = borrowed(case.loader, case.config, case.draft.tensors)
    return {
        landing.tensor: landing.parameter
        for landing in case.trace.landings
        if landing.parameter is not None
        and landing.how not in ("vocabulary map", "ignored", "dropped")
        and landing.parameter not in theirs
    }


def _differing(served: Facts, draft: Facts) -> Iterator[str]:
    found = [one for one in diff.differences(served, draft, deep=False) if one.kind not in ("changed", "not compared")]
    lines = [_said(one) for one in found if not (one.kind == "config" and (one.a or one.b) in INERT)]
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"and {len(lines) - SHOWN} more: deploy ckpt diff"


def _said(one: diff.Difference) -> str:
    if one.kind == "config":
        return f"config.json: {one.a or one.b} is {one.after!r}, the served one has {one.before!r}"
    words = {"added": f"{one.b} is in this one alone", "removed": f"{one.a} is in the served one alone"}
    return words.get(one.kind, f"{one.a} is {one.after}, in the served one {one.before}")


def _landing(case: Case, trace: Trace) -> Iterator[str]:
    loader = case.loader
    if trace.error:
        yield f"it does not load: {trace.error}"
    if loader and loader.derives:
        yield f"{case.architecture} makes {loader.derives} of its weights anew, which captured graphs do not see"
    yield from (f"nothing in it fills {name}" for name in trace.unfilled)
    refused = [landing for landing in trace.landings if landing.how == "refused"]
    yield from (f"the server refuses {landing.tensor}: {landing.why}" for landing in refused)
