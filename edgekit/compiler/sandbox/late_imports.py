"""Load modules when they are first used, not when they are imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

SYMBOLIC = ("sympy", "onnx_ir._symbolic_shapes")
"""Modules of onnx-ir's arithmetic with symbolic dimensions. Builds need none; they take 0.4 s and 32 MB."""


class _LateFinder:
    """Finder of ``sys.meta_path`` for the modules of some names.

    Args:
        names: Full names of modules.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of these modules, whose loader waits for the first attribute; else None."""
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_late(*names: str) -> None:
    """Load these modules when an attribute of them is first used, in this process, if nothing has yet.

    Args:
        names: Full names of modules.
    """
    sys.meta_path.insert(0, _LateFinder(names))
