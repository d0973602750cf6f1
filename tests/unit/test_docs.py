"""The tables of keys in the documentation are those of the models, and its examples are valid."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from deploy import inventory, registry, settings
from deploy.config import schema
from deploy.config.nccl import Nccl
from deploy.inventory import Host
from deploy.measuring import causes
from deploy.profile import Profile
from deploy.project import Project

DOCS = Path(__file__).parents[2] / "docs"


def table(model: type[BaseModel], prefix: str = "") -> list[str]:
    return ["| key | default | what |", "|---|---|---|", *rows(model, prefix)]


def rows(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """A row for each key: its default as YAML would have it, its description."""
    for name in schema.names(model):
        field = model.model_fields[name]
        inner = schema.part(field.annotation)
        default = "" if inner or field.is_required() else shown(field.get_default(call_default_factory=True))
        default = "its name" if name == "address" else "needed" if field.is_required() else default
        yield f"| `{prefix}{name}` | {default} | {field.description} |"
        if inner and inner is not Nccl and inner is not model:
            yield from rows(inner, f"{prefix}{name}.")
        if name == "hooks":
            yield from rows(schema.part(schema.element(schema.at(Profile, ("hooks", "ready")))), "hooks.*.")  # type: ignore[arg-type]


def shown(default: object) -> str:
    if default is None or default in ({}, []):
        return ""
    text = yaml.safe_dump(default, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
    return (
        "three general ones"
        if isinstance(default, list) and isinstance(default[0], str)
        else f"`{text}`".replace("|", "\\|")
    )


@pytest.mark.parametrize(
    ("page", "model", "prefix"),
    [("profiles.md", Profile, ""), ("profiles.md", Nccl, "nccl."), ("inventory.md", Host, "")],
)
def test_the_table_of_keys_is_that_of_the_model(page, model, prefix):
    assert "\n".join(table(model, prefix)) in (DOCS / page).read_text()


def blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_inventory_of_the_documentation_is_valid(tmp_path):
    (tmp_path / "inventory.yaml").write_text(blocks("inventory.md")[0])
    found = inventory.load(tmp_path / "inventory.yaml")
    assert [host.name for host in found.select("all-but-one")] == ["gate", "gpu1", "gpu2", "gpu4", "workstation"]


def test_the_profiles_of_the_documentation_are_valid(tmp_path):
    smallest, drafted, extending, other_engine, secrets = blocks("profiles.md")
    (tmp_path / "inventory.yaml").write_text("hosts: {gpu1: , gpu2: }")
    (tmp_path / "profiles").mkdir()
    files = {
        "small": smallest,
        "llama-eagle3": drafted,
        "debug": extending,
        "llama-vllm": other_engine,
        "secret": f"{smallest}{secrets}",
    }
    for name, text in files.items():
        (tmp_path / f"profiles/{name}.yaml").write_text(text)
    found = {name: settings.load(name, [], Project(tmp_path), {}, tmp_path) for name in files}
    assert found["debug"].profile().env == {}
    assert "mem-fraction-static" not in found["llama-vllm"].profile().args
    assert found["llama-eagle3"].profile().gates.keys() == {"accept_length", "tok_s"}
    assert found["secret"].profile().secrets == {"HF_TOKEN": "env", "DEPLOY_KEY": "api-key"}


def test_each_check_and_each_measurement_has_its_row():
    page = (DOCS / "hosts-and-gpus.md").read_text()
    for heading, package in (("Checks", "deploy.checks"), ("Measurements", "deploy.probes")):
        section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == registry.names(package)


@pytest.mark.parametrize("rows", [causes.DEAD, causes.PARTIAL], ids=["dead", "partial"])
def test_the_causes_of_little_acceptance_are_those_of_the_table(rows):
    lines = [f"| {row.name} | {row.title} | {row.looks_like} | {row.next} |" for row in rows]
    assert "\n".join(lines) in (DOCS / "acceptance.md").read_text()
