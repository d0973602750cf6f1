from __future__ import annotations

from deploy.deployment import releases, secret
from deploy.errors import CheckFailed
from deploy.plan import Node
from deploy.remote import Remote

# Everything that was written before that run's launch, its secrets included, and nothing that came of it.
COPY = """\
umask 077
mkdir -p -- "$2" || exit 1
cd -- "$1" || exit 1
to=$2; shift 2
for name; do [ ! -e "$name" ] || cp -p -- "$name" "$to/$name" || exit 1; done
"""
KEPT = ("env", "launch.sh", "secrets", "secrets.yaml", secret.FILE)


def recall(node: Node, remote: Remote) -> str:
    """Bring back the files, the secrets and the draft of an earlier run"""
    place, source = remote.place, remote.place.source
    if source is None:
        raise RuntimeError("no run is gone back to")
    if source.draft and not releases.is_whole(source.draft, remote):
        raise CheckFailed(
            f"{remote.host.name}: the draft of run {source.id} is gone from the host",
            evidence=f"{source.draft} is not there, or not whole",
            remedy="push it again: deploy restart --ckpt PATH",
        )
    remote.change(COPY, source.folder, place.folder, *KEPT, *(name for name, _ in node.files))
    if source.draft:
        releases.link(source.draft, place, remote)
    return (
        f"as run {source.id}, with draft {source.draft.rpartition('/')[2]}" if source.draft else f"as run {source.id}"
    )
