"""The JSON schemas of a profile's file and of the inventory, for editors that complete and check YAML as it is
written.
"""

from __future__ import annotations

from typing import Any

from deploy import registry
from deploy.inventory import Host, Inventory
from deploy.profile import Profile

SCALAR = ["string", "number", "boolean"]  # what is text for us may look like a number in YAML: OMP_NUM_THREADS: 1


SWITCH = [True, False, "yes", "no", "on", "off"]  # in YAML 1.2 the last four are text, which a switch takes as well
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """A profile's: its name is its file's, and what it extends may say what it leaves out."""
    whole = _relaxed(Profile.model_json_schema())
    engine = whole["$defs"]["Engine"]["anyOf"]
    engines = {"examples": registry.names("deploy.engines")}
    engine[0] |= engines
    engine[1]["properties"]["name"] |= engines
    environments = [name.replace("_", "-") for name in registry.names("deploy.environments")]
    engine[1]["properties"]["environment"] |= {"examples": [*environments, "self"]}
    whole["properties"]["waive"]["items"] |= {"examples": registry.names("deploy.checks")}
    properties = {key: value for key, value in whole["properties"].items() if key != "name"}
    extends = {"type": "string", "description": "Another profile, whose values hold where this one says nothing."}
    secrets = properties["secrets"]
    listed = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": DIALECT,
        **whole,
        "properties": {
            "extends": extends,
            **properties,
            "secrets": {"description": secrets.pop("description"), "anyOf": [listed, secrets]},
        },
    }


def inventory() -> dict[str, Any]:
    """The inventory's: a host's name is its key."""
    whole = _relaxed(Inventory.model_json_schema())
    for made in Host.made:
        del whole["$defs"]["Host"]["properties"][made]
    return {"$schema": DIALECT, **whole}


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
    if isinstance(relaxed.get("default"), dict):  # of a part: each of its keys has its own
        del relaxed["default"]
    if relaxed.get("type") == "string":
        return _scalar(relaxed)
    if relaxed.get("type") == "boolean":
        return {**{key: value for key, value in relaxed.items() if key != "type"}, "enum": SWITCH}
    if "patternProperties" in relaxed:
        relaxed.setdefault("additionalProperties", False)
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
