"""coremltools, imported in one module, without its noise and without the frameworks that it converts.

Off macOS it writes eight lines "Failed to load _ML..." to stderr when it is imported, for the parts that run
models; none of them is used here.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edgekit.errors import need_package

FRAMEWORKS = ("libsvm", "sklearn", "tensorflow", "torch", "torchaudio", "torchvision", "xgboost")
"""Packages that coremltools imports if it finds them (its ``_deps``); only its converters read them, and a
program for Core ML is built without those."""


def coremltools() -> Any:
    """Import and return the package ``coremltools``.

    Raises:
        MissingDependency: it is not installed.
    """
    loaded = sys.modules.get("coremltools")
    if loaded is not None:
        return loaded
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    needed = need_package("coremltools", "writing an .mlpackage", extra="coreml", module="coremltools")
    with needed, warnings.catch_warnings(), _hidden_frameworks():
        warnings.simplefilter("ignore")
        import coremltools as package
    return package


@contextmanager
def _hidden_frameworks() -> Iterator[None]:
    """Hide FRAMEWORKS in a process of EdgeKit's own: PyTorch takes 300 MB to 1 GB of the memory that the
    process of a model may use, and seconds. In other processes the user may convert models with coremltools.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    is_own = spec is not None and spec.name.partition(".")[0] == "edgekit"
    hidden = [name for name in FRAMEWORKS if is_own and name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: the import fails
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
