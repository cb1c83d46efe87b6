"""Decompositions of ops that have no ONNX function body, or only an inefficient one.

``expand_functions`` applies them to nodes that a target does not support. A decomposition depends on one node
with known shapes and constants. It returns None if it does not support the node, in which case ONNX's
function body is used if there is one; or raises ``Inexpressible`` with the reason.
"""

from __future__ import annotations

from edgekit.compiler.passes.decompositions import (  # noqa: F401  (importing them fills the table)
    attention,
    classifiers,
    contributed,
    convolutions,
    linear_algebra,
    normalization,
    pooling,
    quantized,
    recurrent,
    sampling,
    selection,
    tables,
    trees,
)
from edgekit.compiler.passes.decompositions.tape import BODIES

__all__ = ["BODIES"]
