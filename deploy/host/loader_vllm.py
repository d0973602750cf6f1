"""vLLM's class of an EAGLE-3 draft on the meta device, alone in its process: a part of `loadcheck`.

It is built as the server builds its draft: config.json through the engine's own SpeculativeConfig, which turns a
Speculators config into its own form (config/speculative.py, transformers_utils/configs/speculators/base.py), then
`initialize_model` (model_executor/model_loader/utils.py), all of vllm 0.32.0. The target that the configs want is made
up to fit: a Llama as wide as the draft takes it to be. Tried with 0.32.0.
"""

# Runs in the engine's own interpreter: the standard library, torch and vllm, imported when they are needed.

from __future__ import annotations

import importlib
import json
import os
import tempfile
from typing import Any

from deploy.host.loader_record import DRAFT_MAP, NoSuchClass, Recorder, Unsupported

WIDE, LAYERS, POSITIONS = 64, 64, 4096  # of the target, where the draft does not say
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 1, "num_key_value_heads": 1,
    "num_hidden_layers": LAYERS, "intermediate_size": WIDE, "max_position_embeddings": POSITIONS, "head_dim": WIDE,
}  # fmt: skip


def boot_vllm() -> None:
    """Once a process: the platform of a machine without a GPU, a process group of one, classes looked at in here.

    Whatever GPU there is is hidden, and a platform that needs one would look for it; how weights are loaded does not
    depend on it. A class that is not imported yet would be looked at in a process of its own, and that be remembered
    in the user's cache (model_executor/models/registry.py `inspect_model_cls`).
    """
    platforms: Any = importlib.import_module("vllm.platforms")
    platforms._current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()  # noqa: SLF001
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    registry._LazyRegisteredModel.inspect_model_cls = (  # noqa: SLF001
        lambda self: registry._ModelInfo.from_model_cls(self.load_model_cls())  # noqa: SLF001
    )
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group(backend="gloo", store=distributed.HashStore(), rank=0, world_size=1)
    config = importlib.import_module("vllm.config")
    state = importlib.import_module("vllm.distributed.parallel_state")
    with config.set_current_vllm_config(config.VllmConfig()):
        state.init_distributed_environment(1, 0, "unused: there is a process group", 0, "gloo")
        state.initialize_model_parallel(backend="gloo")


def build_vllm(question: dict[str, Any], device: str = "meta") -> Any:
    """The class that the server would build of this config.json. Raises what the engine raises."""
    torch = importlib.import_module("torch")
    known = importlib.import_module("vllm.model_executor.models.registry").ModelRegistry.get_supported_archs()
    if question["architecture"] not in known and "speculators_model_type" not in question["config"]:
        what = "there is no class {} in it".format(question["architecture"])
        raise NoSuchClass(what)
    config = importlib.import_module("vllm.config")
    with tempfile.TemporaryDirectory(prefix="deploy-loadcheck-") as folder:
        target = config.ModelConfig(
            model=_written(folder, "target", _target(question["config"])), skip_tokenizer_init=True, dtype="bfloat16"
        )
        alone = config.ParallelConfig()
        drafting = config.SpeculativeConfig(
            model=_written(folder, "draft", question["config"]), method="eagle3", num_speculative_tokens=1,
            target_model_config=target, target_parallel_config=alone,
        )  # fmt: skip
        whole = config.VllmConfig(
            model_config=target, parallel_config=alone, speculative_config=drafting,
            device_config=config.DeviceConfig(device="cpu"),
        )  # fmt: skip
    utilities = importlib.import_module("vllm.model_executor.model_loader.utils")
    types = importlib.import_module("vllm.utils.torch_utils")
    with types.set_default_torch_dtype(target.dtype), torch.device(device):
        return utilities.initialize_model(vllm_config=whole, model_config=drafting.draft_model_config)


def load_vllm(recorder: Recorder, question: dict[str, Any]) -> None:
    """Run its `load_weights`. It stops at the first name that it does not know: which ones these are is found out by
    offering each tensor alone, and then the others are loaded together.
    """
    try:
        recorder.load(question)
    except Unsupported:
        raise
    except Exception as error:  # noqa: BLE001 - the engine would stop here; what else is wrong is wanted too
        _load_apart(recorder, question, error)


def _load_apart(recorder: Recorder, question: dict[str, Any], raised: Exception) -> None:
    unknown = {}
    for name, tensor in question["tensors"].items():
        try:
            recorder.load({**question, "tensors": {name: tensor}})
        except Exception as error:  # noqa: BLE001
            unknown[name] = str(error).partition(". The available parameters")[0] or type(error).__name__
    if not unknown:
        raise raised
    recorder.forget()
    known = {name: tensor for name, tensor in question["tensors"].items() if name not in unknown}
    recorder.load({**question, "tensors": known})
    recorder.refused += [[name, None, None, words] for name, words in unknown.items()]


def default_loader_vllm() -> Any:
    return importlib.import_module("vllm.model_executor.model_loader.weight_utils").default_weight_loader


def borrowed_vllm(model: Any, config: dict[str, Any]) -> Any:
    """Parameters that are the target's in the end (v1/spec_decode/llm_base_proposer.py `_maybe_share_embeddings`,
    `_maybe_share_lm_head`), and the map, which is made of zeros and not of whatever lay in memory.
    """
    wide = config.get("target_hidden_size")
    found = {DRAFT_MAP}
    if not model.has_own_embed_tokens and (wide is None or wide == config.get("hidden_size")):
        found.add("model.embed_tokens.weight")
    if not model.has_own_lm_head:
        found.add("lm_head.weight")
    return found


def _target(draft: dict[str, Any]) -> dict[str, Any]:
    """A config.json that the draft's states and tokens would come from."""
    inner = draft.get("transformer_layer_config")
    said = {**inner, **draft} if isinstance(inner, dict) else draft
    wide = said.get("target_hidden_size") or said.get("hidden_size")
    rows = said.get("vocab_size")
    told = {
        "hidden_size": wide if type(wide) is int and wide > 0 else WIDE,
        "vocab_size": rows if type(rows) is int and rows > 0 else WIDE,
    }
    return {**TARGET, **told}


def _written(folder: str, name: str, config: dict[str, Any]) -> str:
    """A folder with the config.json, and nothing else."""
    path = os.path.join(folder, name)
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return path
