"""A model's config.json, read with suspicion: whatever stands there, a number is a number or it is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
TEXT = ("llm_config", "language_config", "text_config")
LIMIT = 1 << 40  # of a size; beyond it nothing is one, and products of it have more digits than Python prints


def number(config: Config, key: str) -> int | None:
    """A whole number of the config; None where there is none, or something else, or one beyond all belief."""
    value = config.get(key)
    return value if type(value) is int and -LIMIT < value < LIMIT else None


def mapping(config: Config, key: str) -> dict[str, Any]:
    """A mapping of the config; an empty one where there is none, or something else."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def text(config: Config) -> Config:
    """The part that describes the text model: of a model that sees or hears as well, it lies inside
    (`get_hf_text_config` in SGLang's srt/utils/hf_transformers/common.py, 0.5.23).
    """
    thinker = mapping(config, "thinker_config")
    inner = (mapping(thinker, "text_config"), thinker, *(mapping(config, key) for key in TEXT))
    return next((found for found in inner if found), config)


def architecture(config: Config) -> str:
    """The class that the config names first; an empty word where it names none."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else named
    return first if isinstance(first, str) else ""


def is_eagle3(config: Config) -> bool:
    """Whether the class is one of EAGLE-3's, under the names of SGLang, vLLM or Speculators."""
    return "eagle3" in architecture(config).lower() or config.get("speculators_model_type") == "eagle3"


def aux_ids(config: Config) -> list[Any]:
    """Ids of the aux layers in `eagle_config`: those at the top level do not steer SGLang's capture
    (srt/model_executor/model_runner.py, 0.5.8; model_runner_components/spec_aux_hidden_state.py, 0.5.23).
    """
    ids = mapping(config, "eagle_config").get("eagle_aux_hidden_state_layer_ids")
    return [int(one) if type(one) is float and one.is_integer() else one for one in ids] if type(ids) is list else []


def top_aux_ids(config: Config) -> list[Any]:
    """Ids at the top level, where Speculators and vLLM have them."""
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    return ids if isinstance(ids, list) else []
