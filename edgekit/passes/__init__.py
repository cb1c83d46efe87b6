"""The passes that bring an opened model to the canonical graph, in the order they run, with a reason for each
place.

A pass is one function in a file of its own: ``(ir.Model) -> bool``, in place, True if it changed something.
It keeps the meaning and the signature: inputs and outputs with their names, types, shapes and order
(docs/add-a-pass.md).
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from edgekit.passes.canonical_opset import canonical_opset
from edgekit.passes.fold_constants import fold_constants
from edgekit.passes.remove_dead_code import remove_dead_code
from edgekit.passes.static_shapes import static_shapes

PASSES: tuple[tuple[Callable[[ir.Model], bool], str], ...] = (
    (
        static_shapes,
        "the old forms of some ops (Softmax before 13) can be rewritten only where shapes are known",
    ),
    (canonical_opset, "every later pass then knows one spelling of each op"),
    (fold_constants, "what follows looks for weights; a shape chain or a Constant node hides them"),
    (remove_dead_code, "last: the sources of what was fused are dead by now"),
)


def run_passes(model: ir.Model) -> list[str]:
    """Bring the model to the canonical form, in place.

    Args:
        model: From ``open_model``; the caller's own, its weights may be replaced.

    Returns:
        Names of the passes that changed it, in order.

    Raises:
        ModelError: a node has no canonical form; its name is in the text.
    """
    return [one.__name__ for one, _ in PASSES if one(model)]
