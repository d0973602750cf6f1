"""SGLang's class of an architecture on the meta device, alone in its process: a part of `loadcheck`.

It is built as the server builds its draft (model_loader/loader.py `_initialize_model`): config.json through the
engine's own ModelConfig, then the class that `models/` registers under that name. What the constructors want of a
running server is the least that does: server arguments for a model called "dummy", which resolve to nothing, and
process groups of this process alone. Tried with 0.5.8, 0.5.11, 0.5.12.post1, 0.5.18 and 0.5.23.
"""

# Runs in the engine's own interpreter: the standard library, torch and sglang, imported when they are needed.

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from deploy.host.loader_record import NoSuchClass

# Kernels are imported by name while modules are loaded, and none is called. They need a GPU, or the right one.
# The last registers shapes of C++ operators, which are not there beside a torch without CUDA.
KERNELS = ("sgl_kernel", "sgl_kernel_npu", "flashinfer", "deep_gemm", "torchvision._meta_registrations")
ABSENT = ("vllm",)  # asked for where there is no GPU (layers/rotary_embedding.py), and seldom installed
RANKS = ("tp", "pp", "attn_tp", "attn_dp", "attn_cp", "moe_ep", "moe_tp", "moe_dp")


class Anything:
    """Stands for whatever is imported from a module of kernels."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StubModule(types.ModuleType):
    """A module in which everything is found."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Stubs:
    """Finds stubs in the place of packages."""

    def __init__(self, names: Any) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - the protocol's
        known = name in self.names or name.partition(".")[0] in self.names
        return ModuleSpec(name, self, is_package=True) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        return StubModule(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def boot_sglang() -> None:
    """Once a process: server arguments, process groups of one."""
    sys.meta_path.insert(0, Stubs(KERNELS))
    sys.meta_path.append(Stubs(ABSENT))
    arguments = importlib.import_module("sglang.srt.server_args")
    server = arguments.ServerArgs(model_path="dummy", device="cuda")  # as on a GPU: on a CPU MLA wants another rope
    context: Any = None
    with contextlib.suppress(ImportError):  # since 0.5.14 or so
        context = importlib.import_module("sglang.srt.runtime_context")
    if hasattr(context, "publish"):
        context.publish(server, role="scheduler")
    else:
        arguments.set_global_server_args_for_scheduler(server)
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group(backend="gloo", store=distributed.HashStore(), rank=0, world_size=1)
    state = importlib.import_module("sglang.srt.distributed.parallel_state")
    state.init_distributed_environment(1, 0, "unused: there is a process group", 0, "gloo")
    state.initialize_model_parallel(backend="gloo")
    parallel: Any = context.get_parallel() if hasattr(context, "get_parallel") else None
    if hasattr(parallel, "override_permanently"):  # 0.5.22: ranks are told, not looked up
        parallel.override_permanently(**{f"{name}_rank": 0 for name in RANKS})
    else:
        _alone_in_attention(importlib.import_module("sglang.srt.layers.dp_attention"), server)


def _alone_in_attention(module: Any, server: Any) -> None:
    """No attention data parallelism; the config is asked for its width and dtype alone."""
    torch = importlib.import_module("torch")
    hf = types.SimpleNamespace(hybrid_override_pattern=None)
    module.initialize_dp_attention(server, types.SimpleNamespace(hidden_size=1, dtype=torch.float32, hf_config=hf))


def build_sglang(question: dict[str, Any], device: str = "meta") -> Any:
    """The class of the checkpoint's architecture, made of its config.json. Raises what the engine raises."""
    torch = importlib.import_module("torch")
    architecture = question["architecture"]
    made = getattr(importlib.import_module("sglang.srt.models." + sglang_module(architecture)), architecture)
    models = importlib.import_module("sglang.srt.configs.model_config")
    with _folder(question["config"]) as folder:
        config = models.ModelConfig(folder, trust_remote_code=False, is_draft_model=True)
    loader = importlib.import_module("sglang.srt.model_loader.loader")
    loading = importlib.import_module("sglang.srt.configs.load_config").LoadConfig()
    quantised = loader._get_quantization_config(config, loading) if config.quantization else None  # noqa: SLF001
    utilities = importlib.import_module("sglang.srt.model_loader.utils")
    with utilities.set_default_torch_dtype(config.dtype), torch.device(device):
        return made(config.hf_config, quant_config=quantised)


def sglang_module(architecture: str) -> str:
    """The module that has the class. The registry imports all modules to find it, which takes seconds."""
    pattern = re.compile(rf"^class {re.escape(architecture)}\b", re.MULTILINE)
    root = Path(str(importlib.import_module("sglang").__file__)).parent / "srt" / "models"
    for path in sorted(root.glob("*.py")):
        if pattern.search(path.read_text(encoding="utf-8", errors="replace")):
            return path.stem
    raise NoSuchClass(f"there is no class {architecture} in it")


def default_loader_sglang() -> Any:
    return importlib.import_module("sglang.srt.model_loader.weight_utils").default_weight_loader


def borrowed_sglang(model: Any, config: dict[str, Any]) -> Any:
    """Parameters that are the target's in the end (speculative/eagle_worker*.py `set_embed`, `set_embed_and_head`)."""
    wide = config.get("target_hidden_size")
    found = {"model.embed_tokens.weight"} if wide is None or wide == config.get("hidden_size") else set()
    if getattr(model, "load_lm_head_from_target", False):
        found.add("lm_head.weight")
    return found


@contextlib.contextmanager
def _folder(config: dict[str, Any]) -> Iterator[str]:
    """A folder with the config.json, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="deploy-loadcheck-") as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        yield folder
