"""The controller may be a Mac: whole runs over ssh, with all that only Linux has hidden from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import over_ssh, project_on
from tests.project import EXAMPLES, Project

# What Python does not have there, and what it says of itself; before anything else is imported.
SITE = """
import sys, sysconfig
sysconfig.get_config_vars()  # read from a file that has the real platform in its name
sys.platform = "darwin"
import errno, fcntl, os, select, signal
for module, names in {
    fcntl: ["flock", "lockf"],
    os: ["copy_file_range", "memfd_create", "pidfd_open", "posix_fadvise", "posix_fallocate", "sched_getaffinity",
         "getxattr", "setxattr", "listxattr", "splice", "eventfd", "unshare", "setns"],
    select: ["epoll"],
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
def sendfile(*_):
    raise OSError(errno.ENOTSOCK, "Socket operation on non-socket")
os.sendfile = sendfile
"""
# The options of rsync 2.6.9 and of openrsync that we may use; they hand paths to the shell of the host.
RSYNC = """#!{bash}
[ "$*" = --version ] && {{ echo "openrsync: protocol version 29"; echo "rsync version 2.6.9 compatible"; exit; }}
for word; do
    case $word in
    -rLt | -W | -e | --progress | --partial-dir=* | --timeout=* | --rsync-path=* | --) ;;
    -*) echo "rsync: $word: unknown option" >&2; exit 1 ;;
    esac
done
exec {rsync} --old-args "$@"
"""
HIDDEN = 'mount -t tmpfs tmpfs /proc && exec "$@"'


@pytest.fixture
def mac(fleet, tmp_path: Path) -> Iterator[Project]:
    """A project whose command line runs without /proc, without GNU tools, with an old rsync."""
    bin_, site = tmp_path / "bin", tmp_path / "site"
    bin_.mkdir()
    site.mkdir()
    bash, rsync = (shutil.which(name) for name in ("bash", "rsync"))
    (bin_ / "sh").symlink_to(str(bash))
    for name in ("ssh", "env"):
        (bin_ / name).symlink_to(str(shutil.which(name)))
    (bin_ / "rsync").write_text(RSYNC.format(bash=bash, rsync=rsync))
    (bin_ / "rsync").chmod(0o755)
    (site / "sitecustomize.py").write_text(SITE)
    with project_on(tmp_path / "pro ject", over_ssh(fleet(1)[0])) as project:
        project.environ["PATH"] = str(bin_)
        project.environ["PYTHONPATH"] = f"{site}:{project.environ['PYTHONPATH']}"
        words = [str(shutil.which("unshare")), "--mount", "--propagation", "private", str(shutil.which("sh")), "-c"]
        mount = HIDDEN.replace("mount", str(shutil.which("mount")), 1)
        project.before = [*words, mount, "sh"]
        yield project


def test_the_disguise_holds(mac: Project) -> None:
    look = "import fcntl, os, shutil, sys; print(sys.platform, hasattr(fcntl, 'flock'), os.path.exists('/proc/self'))"
    done = subprocess.run(
        [*mac.before, sys.executable, "-c", f"{look}; print(shutil.which('timeout'), shutil.which('setsid'))"],
        env=mac.environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["darwin", "False", "False", "None", "None"]


def test_a_whole_life_from_a_mac(mac: Project, tmp_path: Path) -> None:
    hook = mac.folder / "hook"
    hook.write_text("#!/bin/sh\nread -r _; exit 0\n")
    hook.chmod(0o755)
    mac.fake(hooks={"prepare": [{"run": "hook", "on": "controller"}]})
    done = mac.run("up", "profile=fake")
    assert done.code == 0, done.err + done.out
    assert [row["state"] for row in mac.run("status", "--json").json] == ["serving"]
    other = tmp_path / "it's 2 files"
    shutil.copytree(EXAMPLES / "draft", other)
    done = mac.run("restart", "--ckpt", str(other))
    assert done.code == 0, done.err + done.out
    for words in (["smoke"], ["logs"], ["rollback"], ["history"], ["check", "profile=fake"], ["down"]):
        done = mac.run(*words)
        assert done.code == 0, (words, done.err)


def test_a_hook_that_hangs_is_ended_on_a_mac_too(mac: Project) -> None:
    hook = mac.folder / "hook"
    hook.write_text("#!/bin/sh\necho $$ >pid\nexec /bin/sleep 60\n".replace("pid", f"'{mac.folder}/pid'"))
    hook.chmod(0o755)
    mac.fake(hooks={"prepare": [{"run": "hook", "timeout": 1, "on": "controller"}]})
    done = mac.run("up", "profile=fake")
    assert (done.code, "still ran after 1 s" in done.err) == (1, True), done.err
    assert not Path(f"/proc/{(mac.folder / 'pid').read_text().strip()}").exists()


def test_a_mac_itself_is_no_host(mac: Project) -> None:
    mac.fake(hosts="localhost")
    done = mac.run("up", "profile=fake")
    assert (done.code, "runs no Linux" in done.err) == (3, True), done.err
