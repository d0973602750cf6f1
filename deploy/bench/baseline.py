"""The same server without speculation: what it is, how fast it was, and what a measurement gains over it.

<work>/<machine-id>/<deployment>/baselines/<key>.json    its Measurement, on the head, kept by `deploy bench --baseline`
"""

from __future__ import annotations

import json
import re
from hashlib import sha256

from deploy import environments, plan
from deploy.errors import ConfigError
from deploy.measuring import quality, statistics
from deploy.measuring.measurement import Figure, Measurement, On
from deploy.plan import Installed, Node
from deploy.profile import Hooks, Profile
from deploy.remote import LONG, Remote

FLAG = re.compile(r"spec(ulative)?-|.*-draft\b|.*\bdraft-", re.IGNORECASE)  # an engine's further words about drafts
FOLDER = 'umask 077; mkdir -p -- "$1"'


def speculates(node: Node) -> bool:
    """Whether the node's server drafts tokens, as far as its profile says."""
    return node.draft is not None or node.profile.speculative is not None


def plain(profile: Profile) -> Profile:
    """The same profile without draft and speculation; nobody is told of its server, and nothing is asked of its speed.

    ConfigError where the draft stands in the middle of a command line of the user's own.
    """
    argv = profile.args.get("argv")
    if profile.engine.name == "command" and isinstance(argv, list) and "{draft}" in argv:
        raise ConfigError(
            "args.argv says how the draft is used, so there is no telling how the server goes without it",
            remedy="a profile of its own, without the draft, is the baseline here",
        )
    args = {flag: value for flag, value in profile.args.items() if not FLAG.match(flag.replace("_", "-"))}
    changed = {"draft": None, "speculative": None, "gates": {}, "args": args, "hooks": Hooks(), "on_failure": "leave"}
    return profile.model_copy(update=changed)


def installed(profile: Profile) -> Installed | None:
    """The environment that the profile names; None where it names none, or it is not there any more."""
    found = environments.locate(profile.engine.environment) if profile.engine.environment else None
    return Installed(found.python, found.env) if found else None


def key(node: Node, on: On) -> str:
    """What a baseline is kept by: the server without speculation, its engine and its model, and the hosts.

    `node` is the head, whether or not it speculates; `on` is of a measurement of it.
    """
    alone = plan.node([node.host], 0, plain(node.profile), None, installed(node.profile))
    told = [alone.digest, on.engine_version, on.model_id, sorted(on.hosts)]
    return sha256(json.dumps(told).encode()).hexdigest()[:16]


def keep(measured: Measurement, node: Node, remote: Remote) -> str:
    """Keep a measurement without speculation on the host; where it is."""
    folder, name = _folder(remote), f"{key(node, measured.on)}.json"
    remote.change(FOLDER, folder)
    remote.write(folder, {name: measured.model_dump_json(indent=1)})
    return f"{folder}/{name}"


def find(node: Node, on: On, remote: Remote) -> Measurement | None:
    """The baseline of what was measured, whatever was asked of it; None where there is none that can be read."""
    try:
        text = remote.run("cat", "--", f"{_folder(remote)}/{key(node, on)}.json", ok=(0, 1), limit=LONG)
        return Measurement.model_validate_json(text) if text else None
    except (ConfigError, ValueError):  # pydantic's error is a ValueError
        return None


def _folder(remote: Remote) -> str:
    return f"{remote.place.deployment_folder}/baselines"


def compared(measured: Measurement, node: Node, remote: Remote) -> Measurement:
    """The measurement with its baseline, what it gains over that, and whether it answers the same; as it is where
    nothing was measured, nothing is drafted, or there is no baseline. One that was asked otherwise is told as a note.
    """
    base = None if measured.why or not speculates(node) else find(node, measured.on, remote)
    if base is None:
        return measured
    if base.on.question != measured.on.question:
        remedy = "deploy bench --baseline with the same words measures it anew"
        note = f"the baseline, run {base.on.run}, was asked otherwise: no speed-up; {remedy}"
        return measured.model_copy(update={"notes": tuple(dict.fromkeys((*measured.notes, note)))})
    told = quality.compared(measured.answers, base.answers) if not measured.on.temperature else None
    gain = speedup(measured, base)
    return measured.model_copy(update={"baseline": base.against(measured), "speedup": gain, "quality": told})


def speedup(measured: Measurement, base: Measurement) -> dict[str, Figure]:
    """{concurrency: tokens a second over those of the baseline}, where both were measured."""
    before = {rung.concurrency: rung.tok_s for rung in base.rungs}
    pairs = ((rung, before.get(rung.concurrency)) for rung in measured.rungs)
    ratios = ((str(rung.concurrency), statistics.ratio(rung.tok_s, then)) for rung, then in pairs if then)
    return {concurrency: figure for concurrency, figure in ratios if figure}
