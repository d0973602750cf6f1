"""The JSON schema of a profile's file, for editors that complete and check YAML as it is written."""

from __future__ import annotations

from typing import Any

from deploy.profile import Profile

SCALAR = ["string", "number", "boolean"]  # what is text for us may look like a number in YAML: OMP_NUM_THREADS: 1


def schema() -> dict[str, Any]:
    """A profile's name is its file's, and what it extends may say what it leaves out."""
    whole = _relaxed(Profile.model_json_schema())
    properties = {key: value for key, value in whole["properties"].items() if key != "name"}
    extends = {"type": "string", "description": "Another profile, whose values hold where this one says nothing."}
    secrets = properties["secrets"]
    listed = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "properties": {
            "extends": extends,
            **properties,
            "secrets": {"description": secrets.pop("description"), "anyOf": [listed, secrets]},
        },
    }


def _relaxed(part: Any) -> Any:
    """The schema as a file may be written: text without quotes, and null where an inherited value is taken away."""
    if isinstance(part, list):
        return [_relaxed(item) for item in part]
    if not isinstance(part, dict):
        return part
    relaxed = {key: _relaxed(value) for key, value in part.items() if key != "title" or isinstance(value, dict)}
    # the pieces of a file are merged with those of what it extends, so none of them has to be whole
    if isinstance(relaxed.get("properties"), dict):
        relaxed.pop("required", None)
    if relaxed.get("type") == "string":
        return _scalar(relaxed)
    for pattern, item in relaxed.get("patternProperties", {}).items():
        relaxed["patternProperties"][pattern] = {"anyOf": [item, {"type": "null"}]}
    if isinstance(relaxed.get("additionalProperties"), dict):
        relaxed["additionalProperties"] = {"anyOf": [relaxed["additionalProperties"], {"type": "null"}]}
    return relaxed


def _scalar(text: dict[str, Any]) -> dict[str, Any]:
    if "enum" not in text:
        return {**text, "type": SCALAR}
    numbers = [int(word) for word in text["enum"] if word.isdigit()]
    return {**{key: value for key, value in text.items() if key != "type"}, "enum": [*text["enum"], *numbers]}
