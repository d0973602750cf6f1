"""Modules found by their names, by several threads at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy import registry
from deploy.errors import ConfigError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of its own, whose module `slow` is loaded as soon as the event that it waits for is set."""
    folder = tmp_path / "a_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("import threading\nasked = threading.Event()\ngo = threading.Event()\n")
    (folder / "slow.py").write_text("import a_package\na_package.asked.set()\na_package.go.wait(60)\ndone = True\n")
    (folder / "_part.py").write_text("")
    (folder / "notes.txt").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_package"
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_package"]:
        del sys.modules[name]


def test_who_asks_for_a_module_that_another_thread_is_loading_waits_for_it(package):
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(registry.load, package, "slow", "thing")
        events = sys.modules[package] if package in sys.modules else __import__(package)
        assert events.asked.wait(60)
        began = threading.Event()

        def ask() -> bool:
            began.set()
            return bool(registry.load(package, "slow", "thing").done)

        second = pool.submit(ask)
        assert began.wait(60)
        events.go.set()
        assert first.result(60).done
        assert second.result(60)


@pytest.mark.parametrize("name", ["notes", "_part", "__init__", "slow.x", "", "os"])
def test_what_is_no_module_of_the_package_is_told_with_the_nearest(package, name):
    with pytest.raises(ConfigError, match=f"there is no thing {name!r}"):
        registry.load(package, name, "thing")
    assert registry.names(package) == ["slow"]
