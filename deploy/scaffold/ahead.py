"""What is to be done between a new profile and its first `up`."""

from __future__ import annotations

from dataclasses import replace

from deploy.inventory import LOCAL
from deploy.scaffold.making import Made
from deploy.scaffold.said import Fields


def tell(made: Made, fields: Fields, *, here: bool = False) -> Made:
    """With what is to be done before the first `up`: secrets to export, and hosts to name where nobody did (`here`)."""
    names = sorted({key[1] for key in fields.said if key[0] == "secrets" and len(key) > 1})
    hosts = fields.said.get(("hosts",))
    notes = []
    if names:
        exports = " ".join(f"{name}=..." for name in names)
        notes.append(f"before `deploy up`: export {exports}   (secrets are taken from your environment)")
    if here and hosts and hosts.value == LOCAL:
        notes.append("hosts: localhost, this machine, as nothing else was said; hosts=gpu1 if it runs there")
    return replace(made, notes=(*made.notes, *notes))
