"""The files themselves: what is cut off, missing, of the wrong kind, or there twice.

Sources: safetensors' README "Format" and `Metadata::validate` in src/tensor.rs (no holes, overlap or rest); which files
a server reads: `filter_duplicate_safetensors_files` in SGLang 0.5.8 to 0.5.23, srt/model_loader/weight_utils.py, and
vLLM 0.32.0 and 0.33.0, model_executor/model_loader/weight_utils.py (SGLang since 0.5.12, and vLLM, refuse an index that
names a missing file; before, what was in it stays random). vLLM looks for Mistral's layout before that, and where it
finds it reads nothing else (default_loader.py `_prepare_weights`, called with such folders in 0.32.0). What is done
with another dtype: `default_weight_loader` there, `param.data.copy_`, which converts in silence (in vLLM with a line in
the log, models/utils.py `_load_param`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from deploy.checkpoint.facts import Problem, Tensor
from deploy.checkpoint.rules import Case, fail, unknown, warn
from deploy.findings import Finding
from deploy.text.legible import one_line

INTEGERS = {"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL"}
MISTRAL = re.compile(r"consolidated.*\.safetensors", re.DOTALL)
WIDE = {"F16", "BF16", "F32", "F64"}
REMEDIES = (  # by a word of the problem
    ("git-lfs", "run `git lfs pull` where it was cloned, and push it again"),
    ("truncated", "copy it again, whole: compare its size with that of the original"),
    ("only", "copy it again, whole: compare its size with that of the original"),
    ("named by the index", "copy the shard that is missing, or write the index anew"),
    ("index says", "copy all shards of one checkpoint together with its own index"),
    ("index does not", "write the index anew, or take the shard of this checkpoint"),
    ("which one is served", "leave one of the two files"),
    ("is not read", "take it away, if its tensors are not meant to be served"),
    ("pickle", "save them as .safetensors"),
    ("weight_map", "copy the index again"),
    ("lies beside", "leave those of one checkpoint there"),
    ("null bytes", "copy it again from where it was saved"),
    ("BOM", "save it as UTF-8 without a byte order mark"),
    ("JSON", "copy it again from where it was saved"),
    ("shards are there", "copy the shard that is missing"),
    ("is missing", "copy it beside the weights"),
    ("cannot be read", "look at its permissions and at the disk"),
    ("no .safetensors", "name the folder that holds the weights"),
)
WRITE_ANEW = "copy it again; if the original is the same, save it anew"


def findings(case: Case) -> Iterator[Finding]:
    """Whatever was wrong while the headers were read, and dtypes that a server turns into something else."""
    for problem in case.draft.problems:
        yield _told(problem)
    if case.serving.engine == "vllm":
        yield from _other_layout(case)
    if case.draft.format == "safetensors" and not _quantized(case):
        yield from _dtypes(case.draft.tensors)


def _told(problem: Problem) -> Finding:
    where = problem.file + ("" if problem.at is None else f", byte {problem.at:,}")
    verb = re.match(r"(is|has|names|says|holds|ended|ends|cannot|lies|does)\b", problem.what)
    what = f"{problem.file}{' ' if verb else ': '}{problem.what}" if problem.file else problem.what
    remedy = next((remedy for word, remedy in REMEDIES if word in problem.what), WRITE_ANEW)
    if problem.outcome == "could not tell":
        return unknown(what, where, remedy)
    if not problem.outcome:
        return warn(what, where, remedy)
    return fail(what, where, remedy, problem.outcome)


def _other_layout(case: Case) -> Iterator[Finding]:
    """Both layouts in one folder: we have looked at all of it, or at what SGLang takes, and vLLM reads but one."""
    names = {tensor.file for tensor in case.draft.tensors.values()} | {problem.file for problem in case.draft.problems}
    mistral = [name for name in names if MISTRAL.fullmatch(name)]
    others = [name for name in names if name.endswith(".safetensors") and name not in mistral]
    if mistral and others:
        what = f"vLLM reads {min(mistral)} alone, and the other layout of the weights was looked at as well"
        yield unknown(what, f"beside it: {', '.join(sorted(others)[:5])}", "leave one of the two layouts")


def _quantized(case: Case) -> bool:
    return bool(case.config.get("quantization_config") or case.config.get("compression_config"))


def _dtypes(tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    """Integers and 8-bit floats are scaled by tensors that only a quantized class asks for."""
    weights = {name: tensor for name, tensor in tensors.items() if name.endswith((".weight", ".bias"))}
    whole = {name: tensor.dtype for name, tensor in weights.items() if tensor.dtype in INTEGERS}
    if whole:
        what = f"{len(whole)} of {len(weights)} weights are integers, and config.json has no quantization_config"
        yield fail(what, _listed(whole), "put the quantization_config beside them, or save them as BF16")
    narrow = {name: tensor.dtype for name, tensor in weights.items() if tensor.dtype not in INTEGERS | WIDE}
    if narrow:
        what = f"{len(narrow)} of {len(weights)} weights are of {min(narrow.values())}"
        what = f"{what}, and config.json has no quantization_config"
        scaled = any("scale" in name for name in tensors)
        remedy = "put the quantization_config beside them, or save them as BF16"
        if scaled:
            yield fail(f"{what}: their scales are left out", _listed(narrow), remedy)
        else:
            yield warn(f"{what}: they are taken as they are", _listed(narrow), remedy)
    double = {name: tensor.dtype for name, tensor in weights.items() if tensor.dtype == "F64"}
    if double:
        yield warn(
            f"{len(double)} of {len(weights)} weights are F64: the server converts them",
            _listed(double),
            "save them as BF16",
        )
    matrices = {n: t.dtype for n, t in weights.items() if len(t.shape) > 1 and t.dtype in WIDE - {"F64"}}
    kinds = sorted(set(matrices.values()))
    if len(kinds) > 1:
        rare = min(kinds, key=lambda kind: sum(dtype == kind for dtype in matrices.values()))
        odd = {name: dtype for name, dtype in matrices.items() if dtype == rare}
        what = f"its matrices are of {' and '.join(kinds)}: the server converts all to one of them"
        yield warn(what, _listed(odd), "save them all as what they were trained in")


def _listed(dtypes: Mapping[str, str]) -> str:
    return "\n".join(f"{one_line(name)} {dtype}" for name, dtype in list(dtypes.items())[:20])
