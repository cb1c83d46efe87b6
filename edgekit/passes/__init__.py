"""The passes that bring an opened model to the canonical graph, in the order they run, with a reason for each
place.

A pass is one function in a file of its own: ``(ir.Model) -> bool``, in place, True if it changed something.
It keeps the meaning and the signature: inputs and outputs with their names, types, shapes and order
(docs/add-a-pass.md).
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from edgekit.model.work_budget import check_time, one_budget
from edgekit.passes.canonical_opset import canonical_opset
from edgekit.passes.explicit_padding import explicit_padding
from edgekit.passes.explicit_resize import explicit_resize
from edgekit.passes.fold_affine import fold_affine
from edgekit.passes.fold_constants import fold_constants
from edgekit.passes.fold_focus import fold_focus
from edgekit.passes.fold_pad import fold_pad
from edgekit.passes.inline_if import inline_if
from edgekit.passes.merge_duplicates import merge_duplicates
from edgekit.passes.merge_moves import merge_moves
from edgekit.passes.recognize_attention import recognize_attention
from edgekit.passes.recognize_clip import recognize_clip
from edgekit.passes.recognize_gelu import recognize_gelu
from edgekit.passes.recognize_hard_swish import recognize_hard_swish
from edgekit.passes.recognize_normalization import recognize_normalization
from edgekit.passes.recognize_sigmoid import recognize_sigmoid
from edgekit.passes.remove_dead_code import remove_dead_code
from edgekit.passes.remove_dropout import remove_dropout
from edgekit.passes.remove_identities import remove_identities
from edgekit.passes.static_shapes import static_shapes
from edgekit.passes.unambiguous_forms import unambiguous_forms
from edgekit.passes.unroll_loops import unroll_loops
from edgekit.passes.write_out_einsum import write_out_einsum
from edgekit.passes.write_out_newer import write_out_newer

Pass = Callable[[ir.Model], bool]

PASSES: tuple[tuple[Pass, str], ...] = (
    (
        static_shapes,
        "the old forms of some ops (Softmax before 13) can be rewritten only where shapes are known",
    ),
    (
        unroll_loops,
        "needs shapes, in the file's own opset: a Scan of 8 has a batch axis that no later one has",
    ),
    (write_out_newer, "what opset 23 does not have; it needs shapes, and the opset that the file is in"),
    (canonical_opset, "every later pass then knows one spelling of each op"),
    (fold_constants, "what follows looks for weights; a shape chain or a Constant node hides them"),
    (inline_if, "its condition is a weight only after folding; what follows looks at one graph"),
    (
        write_out_einsum,
        "after folding, for shapes; the next ones look for what it leaves",
    ),
    (remove_dropout, "its training_mode is a weight by now; the Identity it leaves goes next"),
    (
        unambiguous_forms,
        "after folding, for slopes and axes; before the Identities that it leaves are removed",
    ),
    (explicit_resize, "after folding, for sizes and scales; before a Resize by 1 is removed"),
    (remove_identities, "they stand between the nodes that the next ones want to see side by side"),
    (merge_moves, "Transposes and Reshapes meet once the identities between them are gone"),
    (merge_duplicates, "two Sigmoids of one value would hide a SiLU: its x would be read in too many places"),
    (explicit_padding, "fold_pad and fold_focus add numbers to pads"),
    (fold_pad, "before fold_affine, which looks for a Conv right after a scale"),
    (recognize_clip, "Min, Max and Clip in one form: the gates below are made of Clips"),
    (recognize_sigmoid, "x / (1 + Exp(-x)) holds constants that fold_affine would take away"),
    (recognize_hard_swish, "the same: the /6 of a HardSwish must not be scaled into the next Conv"),
    (recognize_gelu, "the same: its 0.5 and 1 / sqrt(2)"),
    (recognize_attention, "the same: its scale"),
    (recognize_normalization, "the same: gamma and beta belong to the normalization, not to the next layer"),
    (fold_affine, "what scales and shifts are left after the formulas belong to their Conv"),
    (fold_focus, "after fold_affine, which may rewrite the same weight"),
    (remove_identities, "folding leaves a x1 or +0 now and then"),
    (remove_dead_code, "last: the sources of what was fused are dead by now"),
)


def run_passes(model: ir.Model) -> list[str]:
    """Bring the model to the canonical form, in place.

    Args:
        model: From ``open_model``; the caller's own, its weights may be replaced.

    Returns:
        Names of the passes that changed it, in order.

    Raises:
        ModelError: a node has no canonical form; its name is in the text. Or the passes cost more than a
            model may (edgekit/model/work_budget.py).
    """
    changed = []
    with one_budget():
        for one, _ in PASSES:
            check_time("simplifying it")
            if one(model):
                changed.append(one.__name__)
    return changed
