"""The values themselves, as far as they were looked at: a sample, or all of them with --deep.

Measured: NaN in the last norm of the tiny pair gives accept length 1.01 on SGLang 0.5.23. A layer of zeros is a missing
one. What looks freshly made is a WARN with its statistic, never more. With the pairs of examples/ (drafts and targets
of tiny-eagle3 and telling-eagle3) none of 149 trained tensors is taken for new; of 320 matrices that
`torch.nn.init.normal_(std=0.02)` or `torch.nn.Linear` had just made, in F32 and BF16, 317 are found. How they are made:
transformers 4.57, modeling_llama.py `_init_weights` (normal, std = initializer_range, default 0.02); torch 2.9,
nn/modules/linear.py `reset_parameters` (even within 1/sqrt(inputs)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from deploy.checkpoint.facts import Statistic, Tensor
from deploy.checkpoint.rules import CHECK, Case, fail, warn
from deploy.findings import Finding

SURE = 3.0  # standard errors
LEAST = 1024  # elements, below which a distribution says little
# Without which nothing is left of what the draft has learnt; llama.cpp's names of the head and the last norm as well.
LAST = re.compile(r"(^|\.)(fc|lm_head|output|output_norm)\.weight$|norm\.weight$")
EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight", "language_model.model.embed_tokens.weight")


def findings(case: Case) -> Iterator[Finding]:
    """Nothing where no values were asked for."""
    values, tensors = case.draft.values, case.draft.tensors
    yield from _not_finite(values)
    zero = {name: one for name, one in values.items() if one.seen and one.zeros == one.seen and not one.not_finite}
    yield from _zero({name: one for name, one in zero.items() if name.endswith(".weight")}, case)
    spread = case.config.get("initializer_range")
    std = spread if type(spread) is float and spread > 0 else 0.02
    sound = {name: one for name, one in values.items() if name not in zero and not one.not_finite}
    yield from _fresh(sound, tensors, std)
    yield from _embeddings(case)
    if values and case.draft.unseen:
        what = f"the values of {case.draft.unseen} of {len(tensors)} tensors were not looked at"
        yield warn(what, "there was no time for more than a few", "--deep looks at all of them")


def _not_finite(values: Mapping[str, Statistic]) -> Iterator[Finding]:
    spoilt = {name: one for name, one in values.items() if one.not_finite}
    if spoilt:
        lines = [f"{name}: {one.not_finite:,} of {one.searched:,} that were looked at" for name, one in spoilt.items()]
        many = f"{len(spoilt)} tensors hold" if len(spoilt) > 1 else "1 tensor holds"
        what = f"{many} NaN or infinity, and what passes through is lost"
        yield fail(what, "\n".join(lines[:20]), "take an earlier step of the training: this one has diverged")


def _zero(zero: Mapping[str, Statistic], case: Case) -> Iterator[Finding]:
    """Norms that are added to one (Gemma's) are zero when they are new, and may stay so."""
    if "gemma" in str(case.config.get("model_type")):
        zero = {name: one for name, one in zero.items() if "norm" not in name}
    lines = [f"{name}: all {one.seen:,} that were looked at" for name, one in zero.items()]
    evidence, remedy = "\n".join(lines[:20]), "look at how it was saved: were these weights sharded over other ranks?"
    closed = {_layer(name) for name in zero if name.endswith(".o_proj.weight")}
    silent = closed & {_layer(name) for name in zero if name.endswith(".down_proj.weight")}
    if any(LAST.search(name) for name in zero):
        yield fail("weights that everything passes through are all zero", evidence, remedy)
    elif silent:
        yield fail(f"nothing comes out of {min(silent)}: its weights are all zero", evidence, remedy)
    elif zero:
        yield warn("weights are all zero", evidence, remedy)


def _layer(name: str) -> str:
    """`midlayer` of `midlayer.mlp.down_proj.weight`."""
    return name.rsplit(".", 3)[0]


def _fresh(values: Mapping[str, Statistic], tensors: Mapping[str, Tensor], std: float) -> Iterator[Finding]:
    """What has the very distribution that it is made with."""
    lines = []
    for name, one in values.items():
        tensor = tensors[name]
        if not name.endswith(".weight") or tensor.dtype not in ("F32", "BF16", "F16", "F64"):
            continue
        if len(tensor.shape) == 1 and "norm" in name and one.least == one.most == 1:
            lines.append(f"{name}: all ones")
        elif len(tensor.shape) == 2 and one.seen >= LEAST:
            how = _normal(one, std) or _even(one, tensor.shape[1])
            lines += [f"{name}: {how}, kurtosis {one.kurtosis:.2f}, of {one.seen:,} elements"] if how else []
    if lines:
        what = f"{len(lines)} of {len(values)} weights look as they are made before any training"
        yield warn(what, "\n".join(lines[:20]), "look at whether the training has reached them, and was saved")


def _normal(one: Statistic, std: float) -> str:
    error = std / math.sqrt(one.seen)
    same = abs(one.std - std) < SURE * error / math.sqrt(2) and abs(one.mean) < SURE * error
    normal = abs(one.kurtosis - 3) < SURE * math.sqrt(24 / one.seen)
    return f"std {one.std:.5f} where new ones have {std:g}" if same and normal else ""


def _even(one: Statistic, inputs: int) -> str:
    """The variance of a square of what is even within its bounds is 4/5 of its own square: its std errs by less."""
    bound = 1 / math.sqrt(max(inputs, 1))
    std = bound / math.sqrt(3)
    inside = max(one.most, -one.least) <= bound * 1.004  # BF16 rounds by so much
    same = abs(one.std - std) < SURE * std * math.sqrt(0.2 / one.seen)
    return f"std {one.std:.5f}, even within 1/sqrt({inputs})" if inside and same and one.kurtosis < 2 else ""


def _embeddings(case: Case) -> Iterator[Finding]:
    """The server takes the target's in any case; equal ones say that the draft was made for it."""
    theirs = {one for name, one in case.target.facts.digests.items()} if case.target and case.target.facts else set()
    for name in EMBEDDINGS:
        if name in case.draft.values and case.draft.values[name].digest in theirs:
            yield Finding(CHECK, "PASS", "its embeddings are the target's", f"{name}: the same bytes in a sample")
