"""What an engine's own `load_weights` does with tensors of which only names, dtypes and shapes are known: a part of
`loadcheck`.

Parameters and tensors lie on torch's meta device, which has shapes and no data, so each real weight loader runs to its
end: it looks at shapes, cuts out its shard and copies nothing. Each is wrapped in a recorder.
"""

# Runs in the engine's own interpreter: the standard library and torch, which is imported when it is needed.

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
LARGEST_MAP = 1 << 24  # entries of a vocabulary map that are made for real
HOT = "hot_token_id"  # SGLang keeps d2t here, as a plain attribute of the model
DRAFT_MAP = "draft_id_to_target_id"  # vLLM here, as a parameter
STACKED = {"QKVParallelLinear": ("q", "k", "v")}  # shards by class; a merged one numbers its own
HALVES = (("kv_a_proj", "kv_a"), ("q_a_proj", "q_a"))


class NoSuchClass(Exception):
    """There is no class of that name in the installed version."""


class Unsupported(Exception):
    """It cannot be told here, whatever the checkpoint is like; the message says why."""


def tensors(question: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The checkpoint as `load_weights` is given it: on the meta device, `d2t` with its numbers."""
    torch = importlib.import_module("torch")
    for name, (code, shape) in question["tensors"].items():
        dtype = getattr(torch, DTYPES.get(code, ""), None)
        if dtype is None:
            raise Unsupported(f"{name} has the dtype {code}, which torch {torch.__version__} does not know")
        tensor = torch.empty(shape, dtype=dtype, device="meta")
        if tensor.numel() == 1 or ("d2t" in name and tensor.numel() <= LARGEST_MAP):  # loaders look into these
            tensor = torch.zeros(shape, dtype=dtype, device="cpu")
            if "d2t" in name and question.get("d2t") is not None and list(shape) == [len(question["d2t"])]:
                tensor = torch.tensor(question["d2t"], dtype=dtype, device="cpu")
        yield name, tensor


class Recorder:
    """Hears what each parameter's weight loader is given."""

    def __init__(self, model: Any, default_loader: Any) -> None:
        self.model = model
        self.default_loader = default_loader
        self.placed: list[list[str | None]] = []  # tensor, parameter, shard, what is not as it should be
        self.refused: list[list[str | None]] = []  # tensor, parameter, shard, the loader's own words
        self.copied: list[list[int]] = []  # shapes of what is written, while one loader runs
        self.parameters = dict(model.named_parameters())
        self._filled: dict[str, set[str | None]] = {}  # the shards of each; None: all
        self.forget()
        for name, parameter in self.parameters.items():
            self._wrap(name, parameter)

    def forget(self) -> None:
        """What was loaded so far counts for nothing."""
        self.placed, self.refused = [], []
        self._filled = {name: set() for name in self.parameters}

    def load(self, question: dict[str, Any]) -> None:
        """Run the class's own `load_weights`. Whatever it raises but for the loaders' refusals is raised here too."""
        with _watched(self.copied):
            self.model.load_weights(self._weights(question))

    def unfilled(self) -> list[str]:
        """Parameters that stay as they were made, whole or in part."""
        needed = _shards(self.model)
        whole = {name for name, got in self._filled.items() if None in got or needed.get(name, {""}) <= got}
        return [name for name in self.parameters if name not in whole]

    def _weights(self, question: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, tensor in tensors(question):
            tensor.sources = (name,)
            before = getattr(self.model, HOT, None)
            yield name, tensor
            if getattr(self.model, HOT, None) is not before:
                self.placed.append([name, HOT, None, ""])

    def _wrap(self, name: str, parameter: Any) -> None:
        loader = getattr(parameter, "weight_loader", self.default_loader)

        def record(param: Any, loaded: Any, *shard: Any, **named: Any) -> Any:
            sources = getattr(loaded, "sources", ())
            del self.copied[:]
            try:
                told = loader(param, loaded, *shard, **named)
            except Exception as error:  # noqa: BLE001 - the engine would stop here; all of them are wanted
                words = str(error) or "{} in {}".format(type(error).__name__, getattr(loader, "__qualname__", loader))
                self.refused += [[source, name, _shard(source, sources, shard, named), words] for source in sources]
                return None
            why = _in_part(list(loaded.shape), self.copied, list(param.shape))
            self.placed += [[source, name, _shard(source, sources, shard, named), why] for source in sources]
            self._filled[name].add(_given(shard, named))
            return told

        try:
            parameter.weight_loader = record
        except AttributeError:  # a property without a setter (layers/parameter.py BasevLLMParameter)
            parameter._weight_loader = record  # noqa: SLF001


def _shard(source: str, sources: tuple[str, ...], shard: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    if len(sources) > 1:  # joined before they were loaded
        return next((half for part, half in HALVES if part in source), str(sources.index(source)))
    return _given(shard, named)


def _given(shard: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    """The shard that a loader was called with."""
    given = [*shard, *named.values()]
    return None if not given or given[0] is None else str(given[0])


def _shards(model: Any) -> dict[str, set[str]]:
    """The shards of each stacked parameter, by the class of its layer."""
    found = {}
    for prefix, module in model.named_modules():
        names = {base.__name__ for base in type(module).__mro__}
        shards = next((set(shards) for kind, shards in STACKED.items() if kind in names), None)
        if shards is None and "MergedColumnParallelLinear" in names:
            shards = {str(number) for number in range(len(module.output_sizes))}
        if shards:
            found.update({f"{prefix}.{name}": shards for name, _ in module.named_parameters(recurse=False)})
    return found


def _in_part(given: list[int], copied: list[list[int]], whole: list[int]) -> str:
    """Whether the loader wrote as many numbers as it was given: some cut what is too large, and fill up with zeros."""
    written, size = sum(_size(shape) for shape in copied), _size(given)
    if not copied or written == size:
        return ""
    rest = "what is over is cut off" if written < size else "the rest is filled with zeros"
    return f"{given}, the server builds {copied[0] if len(copied) == 1 else whole}: {rest}"


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _watched(copied: list[list[int]]) -> Any:
    """While it is entered, what torch computes from a tensor of the checkpoint keeps the names it came from, and the
    shapes of what is copied are noted.
    """
    torch = importlib.import_module("torch")

    class Watch(importlib.import_module("torch.overrides").TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            if getattr(function, "__name__", "") == "copy_":
                copied.append(list(args[0].shape))
            inner = [part for part in args if isinstance(part, (list, tuple))]
            given = [*args, *(part for parts in inner for part in parts)]
            found = [name for part in given if isinstance(part, torch.Tensor) for name in getattr(part, "sources", ())]
            if found and isinstance(made, torch.Tensor) and not hasattr(made, "sources"):
                made.sources = tuple(dict.fromkeys(found))
            return made

    return Watch()
