"""coremltools, imported in one module and without its noise.

Off macOS it writes eight lines "Failed to load _ML..." to stderr when it is imported, for the parts that run
models; none of them is used here.
"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from edgekit.errors import need_package


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
    with needed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import coremltools as package
    return package
