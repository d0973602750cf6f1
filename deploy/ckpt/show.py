"""`deploy ckpt show`: the tensors of a checkpoint as a table, its config at a glance, its shards against its index."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from deploy.checkpoint.facts import Facts
from deploy.ckpt import document, opened
from deploy.options import Options
from deploy.text.legible import one_line

Row = list[Any]  # as in deploy/host/outline.py: name, dtype, shape, tensors, bytes, first file, number of files
HEADS = ("tensor", "dtype", "shape", "bytes", "file")
RIGHT = 3  # the column of numbers
# What the engineer looks at first, of an EAGLE-3 draft or of a whole model; of a model that also sees, in text_config.
GLANCE = (
    "architectures model_type speculators_model_type hidden_size target_hidden_size num_hidden_layers "
    "num_attention_heads num_key_value_heads head_dim intermediate_size vocab_size draft_vocab_size rope_theta "
    "max_position_embeddings tie_word_embeddings torch_dtype dtype eagle_config eagle_aux_hidden_state_layer_ids "
    "norm_before_residual n_routed_experts general.architecture general.name"
).split()
GGUF = (  # the same, behind the name of the architecture
    "target_layers target_hidden_size block_count context_length embedding_length feed_forward_length "
    "attention.head_count attention.head_count_kv attention.key_length rope.freq_base vocab_size"
).split()
PROBLEMS = 20  # that are told; `ckpt check` tells them all


def run(path: str, options: Options, *, every: bool) -> int:
    """Print what PATH is of; 0. ConfigError where there is no checkpoint.

    Folded on the host, so that of two hundred thousand tensors a dozen rows are sent, unless all are asked for.
    """
    with opened([path], options, "show") as (place,):
        if options.json:
            facts = place.facts()
            outline = _outline(facts)
        else:
            outline = _outline(place.facts()) if every else place.outline()
    if options.json:
        click.echo(document({**_document(outline), "tensors": _tensors(facts)}))
    else:
        click.echo("\n".join(_lines(outline)))
    return 0


def _outline(facts: Facts) -> dict[str, Any]:
    """The same document as that of `deploy/host/outline.py`, with a row for each tensor."""
    rows = [[name, t.dtype, t.shape, 1, t.end - t.start, t.file, 1] for name, t in facts.tensors.items()]
    return {
        "path": facts.path,
        "format": facts.format,
        "config": facts.config,
        "files": {name: [file.size, file.tensors] for name, file in facts.files.items()},
        "rows": rows,
        "index": [len(facts.index), len(set(facts.index.values()))] if facts.index is not None else None,
        "problems": [[problem.what, problem.file, problem.at] for problem in facts.problems],
    }


def _document(outline: Mapping[str, Any]) -> dict[str, Any]:
    rows = outline["rows"]
    return {
        **{key: outline[key] for key in ("path", "format", "config")},
        "totals": {**_totals(rows), "dtypes": {name: _totals(own) for name, own in _by_dtype(rows).items()}},
        "files": [{"file": name, "bytes": size, "tensors": n} for name, (size, n) in outline["files"].items()],
        "index": outline["index"] and dict(zip(("tensors", "files"), outline["index"], strict=True)),
        "problems": [{"what": what, "file": file, "at": at} for what, file, at in outline["problems"]],
    }


def _tensors(facts: Facts) -> list[dict[str, Any]]:
    return [{"name": name, **tensor._asdict()} for name, tensor in facts.tensors.items()]


def _totals(rows: Sequence[Row]) -> dict[str, int]:
    parameters = sum(math.prod(row[2]) * row[3] for row in rows)
    return {"tensors": sum(row[3] for row in rows), "parameters": parameters, "bytes": sum(row[4] for row in rows)}


def _by_dtype(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


# ---- as text -------------------------------------------------------------------------------------------------------


def _lines(outline: Mapping[str, Any]) -> Iterator[str]:
    rows = outline["rows"]
    yield from _table([HEADS, *(_cells(row) for row in rows)]) if rows else ("no tensors",)
    yield ""
    totals = _totals(rows)
    yield f"total    {_words(totals)} in {_count(len(outline['files']), 'file')}"
    for name, own in sorted(_by_dtype(rows).items()) if len(_by_dtype(rows)) > 1 else ():
        yield f"  {name:<7}{_words(_totals(own))}"
    config = [f"{key} {one_line(value)}" for key, value in _glance(outline["config"])]
    yield f"config   {config[0] if config else 'nothing in it that says what this is'}"
    yield from (f"         {line}" for line in config[1:])
    if outline["index"]:
        tensors, files = outline["index"]
        yield f"index    {_count(tensors, 'tensor')} in {_count(files, 'file')}"
    for what, file, at in outline["problems"][:PROBLEMS]:
        yield f"wrong    {one_line(file)}{f' byte {at}' if at is not None else ''}: {one_line(what)}"
    if len(outline["problems"]) > PROBLEMS:
        yield f"         and {len(outline['problems']) - PROBLEMS} more"
    if outline["problems"]:
        yield f"         -> deploy ckpt check {one_line(outline['path'])}"


def _cells(row: Row) -> tuple[str, ...]:
    name, dtype, shape, count, size, file, files = row
    many = f"  x {count}" if count > 1 else ""
    rest = f" and {files - 1} more" if files > 1 else ""
    return one_line(f"{name}{many}"), one_line(dtype), str(list(shape)), f"{size:,}", one_line(f"{file}{rest}")


def _table(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (
            cell.rjust(width) if number == RIGHT else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()


def _words(totals: Mapping[str, int]) -> str:
    tensors, parameters, size = totals["tensors"], totals["parameters"], totals["bytes"]
    return f"{_count(tensors, 'tensor')}, {_short(parameters, 'kMGT')} parameters, {_short(size, 'kMGT', ' ')}B"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _short(number: float, units: str, gap: str = "") -> str:
    unit = ""
    for following in units:
        if number < 1000:
            break
        number, unit = number / 1000, following
    return f"{number:.4g}{gap}{unit}"


def _glance(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys that matter, of the model that reads text where config.json has another one beside it."""
    text = config.get("text_config")
    keys = [*GLANCE, *(f"{config.get('general.architecture')}.{key}" for key in GGUF)]
    for where in (config, text if isinstance(text, dict) else {}):
        for key in keys:
            if key in where and (where is config or key not in config):
                value = where[key]
                yield key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:300]
