"""What a draft's files and a measurement show of a cause, in words; "" where they show nothing of it."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

from deploy.checkpoint import targets
from deploy.checkpoint.config import architecture, aux_ids, mapping, number, top_aux_ids
from deploy.checkpoint.rules import Case
from deploy.measuring.measurement import Measurement

TURNED_OFF_BY = {"EAGLE", "NEXTN"}  # as the rule `speculation` tells
FLAGS = ("norm_output", "norm_before_residual", "norm_before_fc")
FALLS = 0.5  # of the first draft's chance: below it, what comes after the first one is another kind of failure
APART = 2.0  # times what one class gains by the draft, another one does

# ---- the files, where no rule finds anything wrong -----------------------------------------------------------------


def loaded(case: Case) -> str:
    landed = case.trace
    if landed is None or landed.error:
        return ""
    dropped = f"; dropped: {', '.join(landed.dropped)}" if landed.dropped else ""
    return f"{case.server} takes {len(landed.landings)} tensors, and fills all that the draft computes with{dropped}"


def fused(case: Case) -> str:
    """Nothing where the algorithm turns the capture off: that is the algorithm's own cause."""
    if (case.serving.algorithm or "").upper() in TURNED_OFF_BY:
        return ""
    fc = next((tensor for name, tensor in case.draft.tensors.items() if name.endswith("fc.weight")), None)
    width = case.number("target_hidden_size") or case.number("hidden_size")
    if fc is None or len(fc.shape) != 2 or not width:
        return ""
    return f"fc fuses {fc.shape[1] // width} states, and as many layers are captured: {_layers(case)}"


def _layers(case: Case) -> str:
    """The ids as they are written, and the layers whose input is taken for them."""
    layers = number(case.target_config, "num_hidden_layers")
    ids = aux_ids(case.config) or (top_aux_ids(case.config) if case.serving.engine == "vllm" else [])
    if not ids or not all(type(one) is int for one in ids):
        default = f" {[2, layers // 2, layers - 3]}" if layers else ""
        return f"no ids are read, so the server's default{default}"
    if case.serving.engine == "vllm" or not case.target:
        return f"ids {ids}"
    taken = targets.captured(architecture(case.target.config), ids, layers or 0, case.version)
    return f"ids {ids}, the input of layers {taken}"


def mapped(case: Case) -> str:
    if case.draft.d2t is None:
        return "" if any("d2t" in name for name in case.draft.tensors) else "it has no vocabulary of its own to map"
    return f"d2t maps {len(case.draft.d2t)} draft tokens by offsets, all into the vocabulary"


def algorithm(case: Case) -> str:
    return f"algorithm {case.serving.algorithm}" if case.serving.algorithm else ""


def headed(case: Case) -> str:
    landed = [one for one in (case.trace.landings if case.trace else ()) if one.parameter == "lm_head.weight"]
    return "lm_head lands where the draft reads it" if landed else ""


def valued(case: Case) -> str:
    count = len(case.draft.values)
    return f"no NaN, infinity or zeros in {count} tensors that were sampled, none looks new" if count else ""


def trained(case: Case) -> str:
    return "" if case.config.get("norm_before_residual") else "config.json asks for no norm_before_residual"


def fits(case: Case) -> str:
    keys = ("hidden_size", "vocab_size")
    told = [f"{key} {number(case.target_config, key)}" for key in keys if number(case.target_config, key)]
    return f"made for {' and '.join(told)}, as the target has" if len(told) == len(keys) else ""


def normed(case: Case) -> str:
    flags = [f"{key} {case.config[key]}" for key in FLAGS if key in case.config]
    said = ", ".join(flags) or "config.json has no flag of a norm"
    return f"{said}; whether each norm bears its own name only the training knows"


def windowed(case: Case) -> str:
    window = case.config.get("sliding_window")
    return f"sliding_window {window}, served with one of {case.serving.draft_window}" if window else "full attention"


def rope(case: Case) -> str:
    theta = mapping(case.config, "rope_parameters").get("rope_theta", case.config.get("rope_theta"))
    theirs = mapping(case.target_config, "rope_parameters").get("rope_theta", case.target_config.get("rope_theta"))
    return f"rope_theta {theta} (the target's: {theirs}); which one it was trained with no file says"


def aux_known(case: Case) -> str:
    return f"{_layers(case)}; which ones it was trained with no file says"


def nothing(_: Case) -> str:
    return ""


# ---- what the measurement shows ------------------------------------------------------------------------------------


def _classes(measured: Measurement) -> str:
    """Where one kind of prompt is accepted far better than another."""
    shares = measured.acceptance.by_class if measured.acceptance else {}
    order = sorted(shares, key=lambda kind: shares[kind].accept_length)
    if len(order) < 2 or shares[order[-1]].accept_length - 1 < APART * (shares[order[0]].accept_length - 1):
        return ""
    return ", ".join(f"{kind} {shares[kind].accept_length:.2f}" for kind in order)


def positions(measured: Measurement) -> str:
    """Where the first draft of a step is good, and those after it are not."""
    told = measured.acceptance.positions if measured.acceptance else None
    if not told or len(told) < 2 or not told[0]:
        return ""
    after = fmean(later / before for before, later in pairwise(told) if before)
    kept = ", ".join(f"{one:.2f}" for one in told)
    return f"the first draft holds, those after it do not: {kept}" if after < FALLS * told[0] else ""


def sampled(measured: Measurement) -> str:
    warm = measured.on.temperature
    return f"asked at temperature {warm:g}: what is drawn is not always what a draft says" if warm else ""


def templated(measured: Measurement) -> str:
    plain = [note for note in measured.notes if "template" in note]
    return "; ".join([*plain, *filter(None, [_classes(measured)])])
