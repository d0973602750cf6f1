"""What may be wrong with a checkpoint that is to be served, one topic a file, found by its file name.

A rule is a module of this package with `findings(case) -> Iterator[Finding]`. It is pure: everything that it may look
at is in the `Case`. A FAIL carries its outcome; what merely lowers acceptance, and not for certain, is a WARN; what
nobody can know is UNKNOWN, with words. Docstrings cite where a rule was read: file and version of the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, cast

from packaging.version import Version

from deploy import registry
from deploy.checkpoint import config as configs
from deploy.checkpoint import loaders, versions
from deploy.checkpoint.config import Config
from deploy.checkpoint.facts import Facts
from deploy.checkpoint.loaders import Loader
from deploy.checkpoint.trace import Trace, differences
from deploy.checkpoint.trace import trace as traced  # `trace` is a rule of this package
from deploy.findings import Finding, Outcome

CHECK = "ckpt"
BASIC = ("files", "values")  # rules of every format


@dataclass(frozen=True)
class Target:
    """The model that a draft is for: its config.json, and its files where they were read."""

    config: Config
    facts: Facts | None = None

    @property
    def text(self) -> Config:
        """Of a model that sees as well, the text model's part."""
        return configs.text(self.config)


@dataclass(frozen=True)
class Serving:
    """What is to serve a checkpoint, and how; None: not said."""

    engine: str
    version: str | None = None
    algorithm: str | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    attention_backend: str | None = None
    draft_attention_backend: str | None = None
    draft_window: int | None = None
    context_length: int | None = None
    longer_context: bool = False  # SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN
    tp: int | None = None

    @property
    def server(self) -> str:
        return f"{self.engine} {self.version}" if self.version else self.engine


@dataclass(frozen=True)
class Case:
    """A checkpoint beside its target, to be served by one version of one server."""

    draft: Facts
    serving: Serving
    version: Version
    target: Target | None = None
    exact: Trace | None = field(default=None, repr=False)  # what the installed engine itself made of it

    @property
    def server(self) -> str:
        return self.serving.server

    @property
    def config(self) -> Config:
        return self.draft.config

    @property
    def target_config(self) -> Config:
        return self.target.text if self.target else {}

    @cached_property
    def architecture(self) -> str:
        return configs.architecture(self.config)

    @cached_property
    def loader(self) -> Loader | None:
        return loaders.choose(self.serving.engine, self.architecture, self.version)

    @cached_property
    def trace(self) -> Trace | None:
        """What the engine itself said, else what our table says; None where neither can be had."""
        return self.table if self.exact is None else self.exact

    @cached_property
    def table(self) -> Trace | None:
        """What our table says, where there is a row for this class and nothing is packed or converted before."""
        apart = self.config.get("quantization_config") or "speculators_model_type" in self.config
        return None if self.loader is None or apart else traced(self.loader, self.draft.tensors, self.config)

    def number(self, key: str) -> int | None:
        return configs.number(self.config, key)

    def since(self, version: str) -> bool:
        """Whether the server is of this release or a later one."""
        return Version(self.version.base_version) >= Version(version)


class Rule(Protocol):
    """A module of this package."""

    def findings(self, case: Case) -> Iterator[Finding]:
        """What is wrong; nothing where nothing is."""


def fail(what: str, evidence: str, remedy: str, outcome: Outcome = "will serve at accept length 1.00") -> Finding:
    return Finding(CHECK, "FAIL", what, evidence, remedy, outcome)


def warn(what: str, evidence: str, remedy: str) -> Finding:
    return Finding(CHECK, "WARN", what, evidence, remedy)


def unknown(what: str, evidence: str, remedy: str) -> Finding:
    return Finding(CHECK, "UNKNOWN", what, evidence, remedy)


def is_draft(draft: Facts) -> bool:
    """Whether this is meant as an EAGLE-3 draft: by its class, or by tensors that nothing else has."""
    names = {name.removeprefix("model.") for name in draft.tensors if name.endswith(("d2t", "fc.weight"))}
    return configs.is_eagle3(draft.config) or (draft.format == "safetensors" and names >= {"d2t", "fc.weight"})


def judge(draft: Facts, target: Target | None, serving: Serving, exact: Trace | None = None) -> list[Finding]:
    """Everything that is found, one PASS if nothing is wrong. Reads nothing.

    Without the server's version: what is found in each of its ranges is certain, what is found in some is UNKNOWN.
    `exact` is what the installed engine made of the checkpoint; it counts for more than our table.
    """
    return agreed([(case, found(case)) for case in cases(draft, target, serving, exact)])


def cases(draft: Facts, target: Target | None, serving: Serving, exact: Trace | None = None) -> list[Case]:
    """One case of the server's version, or one of each range where it is not known."""
    meant = versions.meant(serving.engine, serving.version) or (Version("0"),)
    return [Case(draft, serving, version, target, exact) for version in meant]


def found(case: Case) -> list[Finding]:
    """What all rules find; of broken files nothing but that is told."""
    if not versions.was_read(case.serving.engine, case.serving.version):
        return _unread(case)
    told = [*topic("files", case)]
    if not any(problem.outcome in ("corrupt", "will not start") for problem in case.draft.problems):
        told += topic("values", case)
        if case.draft.format == "safetensors" and case.serving.engine in versions.RANGES:
            told += [one for name in registry.names(__name__) if name not in BASIC for one in topic(name, case)]
        else:
            told += _unruled(case)
    if not any(finding.verdict != "PASS" for finding in told):
        told.append(_fine(case))
    return [*told, *_newer(case)]


def _newer(case: Case) -> Iterator[Finding]:
    """SGLang's newest rules are taken for what comes after; the engine itself knows better, where it is asked."""
    newest = versions.NEWEST.get(case.serving.engine)
    if (
        newest
        and case.exact is None
        and case.draft.format == "safetensors"
        and Version(case.version.base_version) > Version(newest)
    ):
        what = f"{case.server} is newer than {newest}, the newest whose source was read"
        yield warn(what, "", "ask that engine itself: --exact, or deploy check with the profile")


def _unread(case: Case) -> list[Finding]:
    """What the newest version that was read makes of it. Of the files, and of values, it is certain all the same."""
    newest = versions.NEWEST[case.serving.engine]
    likely = replace(case, version=Version(newest), serving=replace(case.serving, version=newest))
    sure = {*topic("files", case), *topic("values", case)}
    unsure = f"cannot tell for {case.server}, whose source was not read; in its place: "
    return [
        f if f in sure and f.verdict == "FAIL" else replace(f, verdict="UNKNOWN", what=f"{unsure}{f.what}", outcome="")
        for f in found(likely)
    ]


def compared(case: Case) -> list[Finding]:
    """What our table says otherwise than the engine that was asked."""
    if case.exact is None or case.table is None or case.loader is None:
        return []
    alone = topic("config", replace(case, exact=None))
    if any(finding.outcome == "will not start" or finding.verdict == "UNKNOWN" for finding in alone):
        return []  # no loader was reached, or perhaps none
    lines = differences(case.table, case.exact)
    what = f"our table says otherwise than {case.server} itself, whose word counts"
    return [warn(what, "\n".join(lines), f"please report it, with this: {case.loader.source}")] if lines else []


def topic(name: str, case: Case) -> Iterator[Finding]:
    """What one rule finds."""
    if name in registry.names(__name__):
        yield from cast("Rule", registry.load(__name__, name, "rule")).findings(case)


def _unruled(case: Case) -> Iterator[Finding]:
    """llama.cpp stops with a word at a tensor that it misses or does not know, so a header that is whole is fine."""
    if case.serving.engine in versions.RANGES:
        what = f"no rules for a .{case.draft.format} on {case.serving.engine}: only its files were looked at"
        yield unknown(what, "", "look at the measured accept length")


def _fine(case: Case) -> Finding:
    if case.loader is None:
        return Finding(CHECK, "PASS", "the draft's files are whole")
    what = f"{case.server} loads this draft as {case.architecture}, and it fits its target"
    return Finding(CHECK, "PASS", what, f"by {case.loader.source}")


def agreed(judged: Sequence[tuple[Case, Sequence[Finding]]]) -> list[Finding]:
    """One list of what was found for several versions: as it is where all say it, UNKNOWN where some do."""
    said: dict[tuple[str, str, str], dict[Version, Finding]] = {}
    for case, findings in judged:
        for finding in findings:
            said.setdefault((finding.verdict, finding.what, finding.outcome), {})[case.version] = finding
    merged = []
    for (verdict, _, _), by_version in said.items():
        alike = list(by_version.values())
        if len(alike) == len(judged):
            merged.append(replace(alike[0], evidence=_common(alike)))
        elif verdict != "PASS":
            has = ["yes" if case.version in by_version else "" for case, _ in judged]
            ranges = versions.spans(judged[0][0].serving.engine, has)
            merged.append(_in_some(alike, "; ".join(span for span, here in ranges if here)))
    return merged


def _in_some(alike: Sequence[Finding], ranges: str) -> Finding:
    """What is found for some versions only: a WARN stays one, and whatever is worse cannot be told."""
    lines = dict.fromkeys(line for finding in alike for line in finding.evidence.splitlines())
    told = replace(alike[0], evidence="\n".join([f"so it is with {ranges}", *lines]), outcome="")
    if told.verdict == "WARN":
        return told
    return replace(told, verdict="UNKNOWN", what=f"cannot tell without the server's version: {told.what}")


def _common(findings: Sequence[Finding]) -> str:
    """Lines that all of them show, or what the first one shows where they share none."""
    lines = findings[0].evidence.splitlines()
    shared = [line for line in lines if all(line in other.evidence.splitlines() for other in findings[1:])]
    return "\n".join(shared or lines)
