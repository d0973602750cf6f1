"""The fake server as an interpreter, in which a distribution `sglang` is installed that has flags."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from fake_sglang.errors import SITE  # type: ignore[import-not-found]

VERSION = "0.5.20"  # the last whose draft cannot be swapped
MODULES = ("sglang", "sglang.srt", "sglang.srt.server_args")


class Installed(metadata.DistributionFinder):
    """Makes importlib.metadata find a distribution `sglang` of the wanted version, and import its flags."""

    def __init__(self, version, code):
        self.version = version
        self.code = code

    def find_spec(self, name, *_):
        """Of its modules only the one that defines flags: it has no loader to be asked."""
        if not self.version or name not in MODULES or "ServerArgs" not in self.code:
            return None
        spec = ModuleSpec(name, self, is_package=name != MODULES[-1])  # type: ignore[arg-type]
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(SITE)
        return spec

    def create_module(self, _):
        return None

    def exec_module(self, module):
        from fake_sglang.flags import ServerArgs  # type: ignore[import-not-found]

        module.ServerArgs = ServerArgs

    def find_distributions(self, context=None):
        if context and context.name == "sglang" and self.version:
            yield Sglang(self.version)


class Sglang(metadata.Distribution):
    """Nothing but a name and a version."""

    def __init__(self, version):
        self._text = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        return Path(path)


def interpret(words):
    """Play the interpreter: run the code after `-c`."""
    version = json.loads(os.environ.get("FAKE") or "{}").get("version", VERSION)
    code, sys.argv = words[words.index("-c") + 1], ["-c", *words[words.index("-c") + 2 :]]
    sys.meta_path.insert(0, Installed(version, code))
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
