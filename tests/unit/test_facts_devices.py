"""Who has device files open, asked of this machine; and what the kernel says of ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import host
from deploy.facts import About, Answer, Command, devices, ephemeral
from deploy.facts.devices import Devices

OPEN = "import sys, time\nfiles = [open(path) for path in sys.argv[1:]]\nprint('open', flush=True)\ntime.sleep(600)"
ASK = "\nprint(json.dumps(answer({!r})))"


def asked(prefix: str, *before: str) -> Devices:
    source = host.source("devices").partition('\nif __name__ == "__main__"')[0] + ASK.format(prefix)
    done = subprocess.run([*before, sys.executable, "-I", "-c", source], capture_output=True, text=True, check=True)
    return devices.parse(json.loads(done.stdout))


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    return str(tmp_path / "nvidia")


def test_who_has_them_open_is_found_and_who_has_not_is_not(prefix: str) -> None:
    argv = [sys.executable, "-c", OPEN, f"{prefix}0", f"{prefix}ctl", f"{prefix}0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        found = asked(prefix)
        process.kill()
    assert found.files == {process.pid: (f"{prefix}0", f"{prefix}ctl")}
    assert os.getpid() not in found.files
    assert asked(prefix).files == {}
    assert (asked(prefix).there, asked(f"{prefix}-none-").there) == (True, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, so root")
def test_processes_of_others_are_counted_and_not_called_clean(prefix: str) -> None:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    assert os.getpid() in asked(prefix, *nobody).unread


@pytest.mark.parametrize(
    ("files", "minors", "uuid", "expected"),
    [
        ({1: ("/dev/nvidia3",), 2: ("/dev/nvidia4",)}, {"GPU-a": 3}, "GPU-a", (1,)),
        ({1: ("/dev/nvidia3",), 2: ("/dev/nvidiactl",)}, {}, "GPU-a", (1,)),
        ({1: ("/dev/nvidia13",)}, {"GPU-a": 3}, "GPU-a", ()),
        ({1: ("/dev/nvidia13",)}, {"GPU-a": 1}, "GPU-a", ()),
        ({1: ("/dev/nvidia-uvm", "/dev/nvidiactl")}, {"GPU-a": 0}, "GPU-a", ()),
    ],
)
def test_whose_file_it_is(
    files: dict[int, tuple[str, ...]], minors: dict[str, int], uuid: str, expected: tuple[int, ...]
) -> None:
    assert Devices(files, frozenset(), minors).on(uuid) == expected


@pytest.mark.parametrize(
    ("span", "reserved", "given", "kept"),
    [
        ("32768\t60999\n", "\n", [32768, 60999], [32767, 61000]),
        ("15000\t65000\n", "30000,31000-31010\n", [29999, 31011], [30000, 31000, 31010]),
    ],
)
def test_ports_that_are_given_to_anybody(span: str, reserved: str, given: list[int], kept: list[int]) -> None:
    found = ephemeral.parse({"range": Answer(0, span), "reserved": Answer(0, reserved)})
    assert found
    assert [port for port in given if not found.gives(port)] == []
    assert [port for port in kept if found.gives(port)] == []


def test_what_the_kernel_does_not_say_is_unknown() -> None:
    assert ephemeral.parse({"range": Answer(1, "", "No such file"), "reserved": Answer(0, "\n")}) is None


def test_it_is_asked_of_this_machine() -> None:
    told = {}
    for name, question in ephemeral.FACT.questions(About()).items():
        assert isinstance(question, Command)
        done = subprocess.run(question.argv, capture_output=True, text=True, check=False)
        told[name] = Answer(done.returncode, done.stdout, done.stderr)
    found = ephemeral.FACT.parse(told)
    assert found is not None
    assert found.first < found.last
