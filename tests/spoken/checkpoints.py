"""What checkpoints and flags let it say."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from deploy.host.loadcheck import ENGINES
from tests.spoken import alike, module, replaced, says

# ---- checkpoints

DRAFT = json.loads((Path(__file__).parents[2] / "examples/tiny-eagle3/draft/config.json").read_text())


def build(**keys: Any) -> Any:
    """The class of the tiny draft, its config.json changed."""
    config = {key: value for key, value in {**DRAFT, **keys}.items() if value is not ...}
    return ENGINES["sglang"][1]({"architecture": config["architectures"][0], "config": config}, "cpu")


@says("S30", "configs.model_config")
def short_draft() -> None:
    config = object.__new__(module("configs.model_config").ModelConfig)
    vars(config).update(is_draft_model=True, hf_text_config=alike(max_position_embeddings=4096))
    config._derive_context_length(262144)


@says("S32", "utils.hf_transformers_utils")  # up to 0.5.11
def unknown_type() -> None:
    """The last line is transformers' own; above it stands the key."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps({"model_type": "kimi_k2"}))
        module("utils.hf_transformers_utils").get_config(folder, trust_remote_code=False)


@says("S33", "models.llama_eagle3")
def no_draft_vocabulary() -> None:
    build(draft_vocab_size=...)


@says("S34", "models.llama_eagle3")
def null_hidden() -> None:
    build(target_hidden_size=None)


@says("S36", "models.llama_eagle3")  # up to 0.5.11
def two_layers() -> None:
    build(num_hidden_layers=2)


@says("S35", "model_loader.weight_utils")
def other_shape() -> None:
    torch = importlib.import_module("torch")
    module("model_loader.weight_utils").default_weight_loader(torch.empty(128, 384), torch.empty(128, 256))


@says("S17", "model_loader.loader")
def no_weights() -> None:
    loading = module("model_loader.loader")
    loader = loading.DefaultModelLoader(module("configs.load_config").LoadConfig())
    with tempfile.TemporaryDirectory() as folder:
        loader._prepare_weights(folder, None, fall_back_to_pt=True)


@says("S37", "model_executor.model_runner_components.attention_backend_setup")
def no_hook() -> None:
    setup = module("model_executor.model_runner_components.attention_backend_setup")
    keys = {"dflash_use_aux_hidden_state": False, "dflash_target_layer_ids": None, "is_dspark": False}
    target = type("KimiK25ForConditionalGeneration", (), {})()
    setup.configure_aux_hidden_state_capture(
        model=target, eagle_use_aux_hidden_state=True, eagle_aux_hidden_state_layer_ids=None, **keys
    )


@says("S37", "models.kimi_k25")
def no_hook_below() -> None:
    model = module("models.kimi_k25").KimiK25ForConditionalGeneration
    model.set_eagle3_layers_to_capture(alike(language_model=None))


@says("S39", "models.kimi_k25_eagle3")
def other_prefix() -> None:
    model = module("models.kimi_k25_eagle3").Eagle3DeepseekV2ForCausalLM
    tensor = importlib.import_module("torch").empty(1)
    empty = alike(named_parameters=list, config=alike(), model=alike(), hot_token_id=None)
    model.load_weights(empty, [("model.layers.0.self_attn.o_proj.weight", tensor)])


@says("S40", "models.qwen2")
def unknown_parameter() -> None:
    model = module("models.qwen2").Qwen2ForCausalLM
    tensor = importlib.import_module("torch").empty(1)
    empty = alike(named_parameters=list, config=alike(tie_word_embeddings=False), model=alike())
    vars(empty).update(pp_group=alike(is_last_rank=True, world_size=1))
    load = getattr(model, "_legacy_load_weights", model.load_weights)
    load(empty, [("model.layers.0.self_attn.o_proj.scale", tensor)])


@says("S41", "models.unlimited_ocr")
def uninitialised() -> None:
    model = module("models.unlimited_ocr").UnlimitedOCRForCausalLM
    torch = importlib.import_module("torch")
    empty = alike(named_parameters=lambda: [("model.layers.3.mlp.gate.weight", torch.nn.Parameter(torch.empty(1)))])
    vars(empty).update(config=alike(), post_load_weights=lambda: None)
    model.load_weights(empty, [])


@says("S28", "model_loader.loader")
def old_gpu() -> None:
    loading = module("model_loader.loader")
    fp8 = module("layers.quantization.fp8").Fp8Config()
    config = alike(quantization="fp8", dtype=None, nvfp4_moe_meta=None, hf_config=alike(architectures=[]))
    vars(config).update(is_fp4_experts=False)
    names = {"get_quant_config": lambda *_: fp8, "get_model_architecture": lambda _: (alike(), "")}
    with replaced(loading, **names, get_device_capability=lambda *_: (7, 0)):
        loading._get_quantization_config(config, module("configs.load_config").LoadConfig())


# ---- flags


@says("S51", "speculative.spec_info")
def no_such_algorithm() -> None:
    module("speculative.spec_info").SpeculativeAlgorithm.from_string("EAGEL3")


@says("S52", "arg_groups.validation_hook")
def pipeline() -> None:
    check = module("arg_groups.validation_hook").check_pipeline_parallel_compat
    check(alike(disable_overlap_schedule=True, speculative_algorithm="EAGLE3", enable_multi_layer_eagle=False))


@says("S52", "arg_groups.validation_hook")
def pipeline_overlap() -> None:
    module("arg_groups.validation_hook").check_pipeline_parallel_compat(alike(disable_overlap_schedule=False))


@says("S53", "utils")
def old_package() -> None:
    module("utils").assert_pkg_version("numpy", "99.0", "Please uninstall the old version and reinstall.")


@says("S53", "utils")
def no_package() -> None:
    module("utils").assert_pkg_version("no-such-package", "0.7.2", "Please install it.")
