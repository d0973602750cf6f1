"""`deploy ckpt fix host:path`: repaired where it lies; the weights do not cross the network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from subprocess import PIPE

import pytest

from tests.fleet import TestHost
from tests.project import EXAMPLES, ROOT, Project

# The trained draft with its layer spelled as Speculators does, and 40 MB of a tensor that no server minds.
MAKE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from deploy.host import header
source, folder = sys.argv[2:]
found = header.read(f"{source}/model.safetensors")
end = found.size - found.data_start
fields = {
    name.replace("midlayer", "layers.0"): {"dtype": t.dtype, "shape": t.shape, "data_offsets": [t.start, t.end]}
    for name, t in found.tensors.items()
}
fields["rotary_emb.inv_freq"] = {"dtype": "U8", "shape": [40 << 20], "data_offsets": [end, end + (40 << 20)]}
text = json.dumps(fields).encode()
os.makedirs(folder)
with open(f"{source}/model.safetensors", "rb") as old, open(f"{folder}/model.safetensors", "wb") as new:
    new.write(len(text).to_bytes(8, "little") + text)
    old.seek(found.data_start)
    new.write(old.read() + os.urandom(40 << 20))
open(f"{folder}/config.json", "w").write(open(f"{source}/config.json").read())
"""
# What a repair that was killed leaves of a release, perhaps of another plan.
LEFT = 'id=$(cat /etc/machine-id 2>/dev/null); mkdir "$1/.0123-fixed.${id:-$(uname -n)}.incoming"'
SUMS = 'cd "$1" && sha256sum config.json model.safetensors'


@pytest.fixture
def host(fleet: Callable[[int], list[TestHost]]) -> Iterator[TestHost]:
    (far,) = fleet(1)
    far.inside(sys.executable, "-c", MAKE, str(ROOT), str(EXAMPLES / "draft"), "/srv/draft")
    yield far
    far.inside("sh", "-c", "rm -rf /srv/draft* /home/op/.deploy-fix")


@pytest.fixture
def project(host: TestHost, tmp_path) -> Project:
    told = {
        "address": host.address,
        "user": host.user,
        "key": host.key,
        "work": "~/.deploy-fix",
        "lock": "/tmp/fix.lock",
    }
    return Project(tmp_path / "project", {host.name: told})


def sent(host: TestHost) -> int:
    """Bytes that left the host, and that came to it."""
    folder = "/sys/class/net/eth0/statistics"
    return sum(int(host.inside("cat", f"{folder}/{way}_bytes")) for way in ("tx", "rx"))


def test_a_new_folder_beside_it_and_little_on_the_wire(project, host):
    before, moved = host.inside("sh", "-c", SUMS, "sh", "/srv/draft"), sent(host)
    done = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--json")
    assert (done.code, done.json["folder"]) == (0, "/srv/draft-fixed"), done.err
    assert f"{host.name}:/srv/draft-fixed --target" in done.json["check"], "what to run next, as one types it"
    assert sent(host) - moved < 2 << 20
    names = {
        tensor["name"]
        for tensor in project.run("ckpt", "show", f"{host.name}:/srv/draft-fixed", "--json").json["tensors"]
    }
    assert {name.split(".")[0] for name in names} == {
        "d2t", "fc", "lm_head", "midlayer", "norm", "rotary_emb", "t2d"
    }  # fmt: skip
    assert host.inside("sh", "-c", SUMS, "sh", "/srv/draft") == before
    again = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--json")
    assert (again.code, again.json["did"]) == (0, "is there already")
    named = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--out", "draft-other", "--json")
    assert (named.code, named.json["folder"]) == (0, "/srv/draft-other"), named.err
    elsewhere = project.run("ckpt", "fix", str(EXAMPLES / "draft"), "--out", f"{host.name}:/srv/x")
    assert (elsewhere.code, "where the checkpoint does not lie" in elsewhere.err) == (2, True)


def test_in_place_and_back_again(project, host):
    before = host.inside("sh", "-c", SUMS, "sh", "/srv/draft")
    done = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--in-place", "--json")
    assert (done.code, done.json["did"]) == (0, "changed in place"), done.err
    assert host.inside("sh", "-c", SUMS, "sh", "/srv/draft") != before
    undone = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--undo")
    assert (undone.code, "was taken back" in undone.out) == (0, True), undone.err
    assert host.inside("sh", "-c", SUMS, "sh", "/srv/draft") == before


def test_a_release_becomes_another_release(project, host):
    releases = "/home/op/.deploy-fix/releases"
    host.inside("sh", "-c", 'mkdir -p "$1" && cp -r /srv/draft "$1/0123" && echo "{}" >"$1/0123.json"', "sh", releases)
    refused = project.run("ckpt", "fix", f"{host.name}:{releases}/0123", "--in-place")
    assert (refused.code, "is a release" in refused.err) == (2, True), refused.err
    host.inside("sh", "-c", LEFT, "sh", releases)
    done = project.run("ckpt", "fix", f"{host.name}:{releases}/0123", "--json")
    assert done.code == 0, done.err
    noted = json.loads(host.inside("cat", f"{done.json['folder']}.json"))
    assert noted["from"] == f"{releases}/0123, repaired"
    assert done.json["folder"] == f"{releases}/{noted['digest'][:16]}"
    again = project.run("ckpt", "fix", f"{host.name}:{releases}/0123", "--json")
    assert (again.code, again.json["folder"]) == (0, done.json["folder"]), again.err
    names = host.inside("ls", "-A", releases).split()
    assert sorted(names) == sorted(["0123", "0123.json", noted["digest"][:16], f"{noted['digest'][:16]}.json"])


def test_nothing_is_changed_while_somebody_else_has_the_lock(project, host):
    before = host.inside("sh", "-c", SUMS, "sh", "/srv/draft")
    inside = ["nsenter", "--target", str(host.pid), "--all", "--wd=/", "--"]
    script = 'exec 9>>"$0" && flock 9 && echo locked && exec cat'
    with subprocess.Popen([*inside, "sh", "-c", script, "/tmp/fix.lock"], stdin=PIPE, stdout=PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        done = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--in-place")
        looked = project.run("ckpt", "fix", f"{host.name}:/srv/draft", "--dry-run")
        holder.kill()
    assert (done.code, looked.code) == (4, 0), done.err + looked.err
    assert host.inside("sh", "-c", SUMS, "sh", "/srv/draft") == before
