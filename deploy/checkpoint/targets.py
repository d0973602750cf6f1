"""Targets of SGLang's EAGLE-3: which classes can hand out the hidden states of their aux layers, and which they count.

Read from the wheels 0.5.8, 0.5.11, 0.5.12.post1, 0.5.18 and 0.5.23: classes of srt/models that are registered and
have, or inherit, `set_eagle3_layers_to_capture`. A target without it ends the start (srt/model_executor/
model_runner.py:588, 0.5.8; model_runner_components/attention_backend_setup.py:55, 0.5.23).
"""

from __future__ import annotations

from packaging.version import Version

from deploy.host import counting

AS_THEY_ARE = counting.AS_THEY_ARE

# First version that was read with the hook, and the last one without it; empty: there was none.
SINCE: dict[tuple[str, str], str] = {
    ("", "0.5.8"): (
        "Apertus DeepseekV2 DeepseekV32 DeepseekV3 Glm4Moe Glm4MoeLite GptOss IQuestCoder InternLM3 Llama4 Llama"
        " LongcatFlash MiniMaxM2 Ministral3 Mistral MistralLarge3 Phi3 Qwen2 Qwen2Moe Qwen3 Qwen3Moe TeleFLM"
        " Llama4+ Qwen2_5_VL+"
    ),
    ("0.5.9", "0.5.10"): "KimiK25+",
    ("0.5.8", "0.5.11"): (
        "BailingMoE BailingMoe BailingMoeV2 ExaoneMoE GlmMoeDsa MindSpore Qwen3Next SarvamMoE InternS1Pro+ Qwen3VL+"
        " Qwen3VLMoe+ Qwen3_5+ Qwen3_5Moe+"
    ),
    ("0.5.11", "0.5.12"): "Gemma3 Gemma3+ Gemma4 Gemma4+ InternS2Preview+",
    ("0.5.12", "0.5.18"): "Mellum MiniMaxM3Sparse MiniMaxM3Sparse+ Gemma4Unified+ InternS2Mobius+",
    ("0.5.18", "0.5.23"): "ExaoneMoe Qwen3_5 Qwen3_5Moe Cosmos3+ Glm5Next+ Qwen4Exp+",
}
SUFFIXES = {"": "ForCausalLM", "+": "ForConditionalGeneration"}
HOOK = {
    word.rstrip("+") + SUFFIXES["+" if word.endswith("+") else ""]: span
    for span, words in SINCE.items()
    for word in words.split()
}

# Of these the states behind the last layer can be had (gpt_oss.py:732, gemma3_causal.py:671, gemma4_causal.py:1093,
# minimax_m3.py:1962, 0.5.23); of the others, the input of a layer that is there, and no more (llama.py:492).
TO_THE_END = {
    "GptOssForCausalLM",
    *(f"{name}{kind}" for name in ("Gemma3", "Gemma4", "MiniMaxM3Sparse") for kind in SUFFIXES.values()),
}


def hook(architecture: str, version: Version) -> bool | None:
    """Whether the class hands out aux states in this version of SGLang; None: between two versions that were read."""
    if architecture not in HOOK:
        return False
    without, having = HOOK[architecture]
    release = Version(version.base_version)
    if release >= Version(having):
        return True
    return False if without and release <= Version(without) else None if without else True


def captured(architecture: str, ids: list[int], layers: int, version: Version) -> list[int]:
    """The layers whose input is handed out, for ids as the draft's config has them; none named: the default."""
    if not ids:
        return [2, layers // 2, layers - 3]
    as_they_are = architecture in AS_THEY_ARE and Version(version.base_version) >= Version("0.5.13") and ids[0] != 1
    if as_they_are or (architecture == "GptOssForCausalLM" and max(ids) == layers):
        return ids
    return [number + 1 for number in ids]
