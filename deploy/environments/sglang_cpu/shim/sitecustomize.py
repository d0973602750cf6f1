"""Let torchvision load beside a torch that has no CUDA.

PyPI's torchvision is built against CUDA: beside a CPU build of torch its C++ operators do not load, and its module
`_meta_registrations` dies of "operator torchvision::nms does not exist". SGLang uses none of these operators, so an
empty module takes that one's place. (A stand-in for all of torchvision does not do: transformers needs the real one.)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

SKIPPED = "torchvision._meta_registrations"


class EmptyModule(MetaPathFinder, Loader):
    """Finds the skipped module and loads nothing into it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == SKIPPED else None

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, EmptyModule())
