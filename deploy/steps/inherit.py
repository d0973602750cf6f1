from __future__ import annotations

from deploy.bench import baseline, benching
from deploy.plan import Node
from deploy.remote import Remote

MEASURED = ("verdict.json", "good.json", "bench.json", "bench.jsonl", "prompts.jsonl")
# As it was there, absent where it was absent: a run that had failed its gates has not passed them by coming back.
TAKE_OVER = """\
umask 077
from=$1 to=$2; shift 2
for name; do
    if [ -e "$from/$name" ]; then cp -p -- "$from/$name" "$to/$name" || exit 1; else rm -f -- "$to/$name"; fi
done
"""


def inherit(node: Node, remote: Remote) -> str:
    """Take over the verdict and the measurement of the run that it is again"""
    source = remote.place.source
    if source is None:
        raise RuntimeError("no run is gone back to")
    remote.change(TAKE_OVER, source.folder, remote.place.folder, *MEASURED)
    if source.verdict is None:
        return f"run {source.id} had none"
    gates = f"as run {source.id}: its gates {'hold' if source.good else 'do not hold'}"
    return gates if node.rank else f"{gates}{_gain(node, remote)}"


def _gain(node: Node, remote: Remote) -> str:
    """What it gains over a baseline that may be newer than its measurement."""
    measured = benching.read(remote)
    if measured is None:
        return ""
    now = baseline.compared(measured, node, remote)
    if now != measured:
        remote.write(remote.place.folder, {"bench.json": now.model_dump_json(indent=1)})
    found = now.figures().get("speedup")
    return f"; {found.value:.2f} times as fast as without a draft" if found else ""
