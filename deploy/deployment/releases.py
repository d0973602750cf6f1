"""Checkpoints on a host: immutable folders named by what is in them, linked from the runs that serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from deploy import host
from deploy.checkpoint import manifest
from deploy.checkpoint.manifest import File, Manifest
from deploy.deployment.state import Place
from deploy.errors import DeployError
from deploy.plan import Draft
from deploy.remote import Remote

READ_BACK = 3600.0  # seconds: a target-sized draft from a slow disk
ABSENT = 9
FIND = 'find "$1" -type f -printf "%s %T@ %P\\0"'
LOOK = f'[ -d "$1" ] || exit {ABSENT}; cat -- "$1.json"; printf "\\0"; {FIND}'
# Of a folder, what is in it; of a file, those that are named on stdin: it and what goes with it.
COPY = """\
case $1 in "~/"*) set -- "$HOME/${1#"~/"}" "$2" ;; esac
[ ! -d "$1" ] || exec cp -RL --reflink=auto -- "$1/." "$2"
case $1 in */*) cd -- "${1%/*}/" || exit ;; esac
exec xargs -0 cp -L --reflink=auto -t "$2" --
"""
# Makes a run's folder, and clears away what an earlier push left: that of this very draft is gone on with where its
# release is not there yet, that of any other would lie there for ever.
BEGIN = """\
umask 077
mkdir -p -- "$1" || exit 1
for old in "$2"/.*."$3".incoming; do
    [ "$old" = "$2/.$4.$3.incoming" ] && [ ! -d "$2/$4" ] || rm -rf -- "$old"
done
"""
LINK = 'ln -sfn -- "$1" "$2.tmp" && mv -fT -- "$2.tmp" "$2"'


def bring(draft: Draft, folder: str, remote: Remote) -> tuple[str, str]:
    """(path of the release on the host, what was done). What is there already, complete, is not sent again."""
    target = f"{folder}/{draft.manifest.short}"
    there = _look(target, remote)
    if there == "complete":
        return target, f"release {draft.manifest.short} is there, {_amount(draft.manifest)}"
    if there == "damaged":
        aside = f"{folder}/.{draft.manifest.short}.damaged"
        remote.change('rm -rf -- "$2" && mv -T -- "$1" "$2"', target, aside)
        remote.say(f"release {draft.manifest.short} is not what it was; it is kept as {aside}, and sent again")
    incoming = f"{folder}/.{draft.manifest.short}.{remote.place.machine.id}.incoming"
    remote.change('mkdir -p -- "$1"', incoming)
    if draft.host == remote.host.name:
        names = "\0".join(file.path for file in draft.manifest.files)
        remote.change(COPY, draft.path, incoming, timeout=READ_BACK, stdin=names.encode(errors="surrogateescape"))
    else:
        _send(draft, incoming, remote)
    seal(draft.manifest, incoming, target, remote, origin=draft.source)
    return target, f"{_amount(draft.manifest)} sent, sha256 equal"


def is_whole(release: str, remote: Remote) -> bool:
    """Whether a release is on the host, with all its files in their sizes."""
    return _look(release, remote) == "complete"


def seal(wanted: Manifest, incoming: str, target: str, remote: Remote, *, origin: str) -> None:
    """Read every byte of `incoming` back on the host; if it is what was wanted, make it the release `target`."""
    arrived = digest(incoming, remote)
    if arrived.digest != wanted.digest:
        differing = _differing(wanted, arrived)
        # A file of the right size and time would be taken for sent.
        remote.change('cd -- "$1" || exit; shift; rm -f -- "$@"', incoming, *differing)
        raise DeployError(
            f"{remote.host.name}: what arrived is not what was sent",
            evidence="\n".join(f"differs: {name}" for name in differing),
            remedy="run the command again: what is wrong is sent anew; if it stays, suspect the host's disk",
        )
    _note(wanted, incoming, target, remote, origin)
    # Another host with the same work folder may have been faster; the content is the same then.
    remote.change('mv -T -- "$1" "$2" 2>/dev/null || { [ -d "$2" ] && rm -rf -- "$1"; }', incoming, target)


def digest(folder: str, remote: Remote) -> Manifest:
    """The manifest of a folder as its bytes are on the host's disk."""
    return Manifest.from_json(remote.python(host.source("digest"), folder, timeout=READ_BACK))


def link(release: str, place: Place, remote: Remote) -> None:
    """Let the run serve this release."""
    remote.change(LINK, release, f"{place.folder}/draft")


def _note(what: Manifest, folder: str, target: str, remote: Remote, origin: str) -> None:
    """Beside the release: what is in it, where it is from, and size and time of each file as they were read."""
    parent, _, name = target.rpartition("/")
    stamps = _visible(remote.sh(FIND, folder).split("\0"))
    document = {"from": origin, **what.to_json(), "stamps": sorted(stamps)}
    remote.write(parent, {f"{name}.json": json.dumps(document, indent=1)})


def _look(target: str, remote: Remote) -> Literal["absent", "complete", "damaged"]:
    """A release is renamed into place only after it was read back. Where sizes or times are not what they were then,
    it is read again; an edit in place would be served under the old digest otherwise.
    """
    listing = remote.sh(LOOK, target, ok=(0, ABSENT))
    if not listing:
        return "absent"
    text, *entries = listing.split("\0")
    there = _visible(entries)
    try:
        document = json.loads(text)
        wanted = Manifest.from_json(document)
    except (ValueError, KeyError, TypeError):
        return "damaged"
    if there == set(document.get("stamps", ())):
        return "complete"
    if {_sized(entry) for entry in there} != {_entry(file) for file in wanted.files}:
        return "damaged"
    if digest(target, remote).digest != wanted.digest:
        return "damaged"
    if remote.lease:
        _note(wanted, target, target, remote, str(document.get("from", "")))
    return "complete"


def _visible(entries: list[str]) -> set[str]:
    """`find`'s lines "SIZE TIME PATH", without those of hidden files."""
    return {entry for entry in entries if entry and "/." not in f"/{entry.split(' ', 2)[2]}"}


def _sized(entry: str) -> str:
    size, _, path = entry.split(" ", 2)
    return f"{size} {path}"


def _entry(file: File) -> str:
    """As `find` lists it; what is not Unicode in a name comes through `remote.sh` replaced."""
    return f"{file.size} {file.path}".encode(errors="surrogateescape").decode(errors="replace")


def _send(draft: Draft, incoming: str, remote: Remote) -> None:
    def progress(done: int, total: int) -> None:
        remote.say("sending", done=done, total=total, unit="B")

    with manifest.source(Path(draft.path)).staged() as staged:
        remote.push(staged, incoming, progress=progress, timeout=READ_BACK)


def _differing(wanted: Manifest, arrived: Manifest) -> list[str]:
    return sorted({file.path for file in set(wanted.files) ^ set(arrived.files)})


def _amount(what: Manifest) -> str:
    size, units = float(what.size), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]} in {len(what.files)} file{'s' * (len(what.files) != 1)}"
