"""The passes that bring an opened model to the canonical graph, in their order, with the reason for it.

A pass is one function in its own file: ``(ir.Model) -> bool``, in place, True if it changed something. It
keeps the model's results and its signature: names, types, shapes and order of inputs and outputs
(docs/add-a-pass.md).
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from edgekit.compiler.model.work_budget import check_time, one_budget
from edgekit.compiler.passes.broadcast_distances import broadcast_distances
from edgekit.compiler.passes.canonical_opset import canonical_opset
from edgekit.compiler.passes.expand_functions import write_out_contributed, write_out_einsum
from edgekit.compiler.passes.explicit_padding import explicit_padding
from edgekit.compiler.passes.explicit_resize import explicit_resize
from edgekit.compiler.passes.fold_affine import fold_affine
from edgekit.compiler.passes.fold_constants import fold_constants
from edgekit.compiler.passes.fold_focus import fold_focus
from edgekit.compiler.passes.fold_pad import fold_pad
from edgekit.compiler.passes.inline_if import inline_if
from edgekit.compiler.passes.merge_duplicates import merge_duplicates
from edgekit.compiler.passes.merge_moves import merge_moves
from edgekit.compiler.passes.recognize_attention import recognize_attention
from edgekit.compiler.passes.recognize_clip import recognize_clip
from edgekit.compiler.passes.recognize_gelu import recognize_gelu
from edgekit.compiler.passes.recognize_hard_swish import recognize_hard_swish
from edgekit.compiler.passes.recognize_normalization import recognize_normalization
from edgekit.compiler.passes.recognize_sigmoid import recognize_sigmoid
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.compiler.passes.remove_dropout import remove_dropout
from edgekit.compiler.passes.remove_identities import remove_identities
from edgekit.compiler.passes.static_shapes import static_shapes
from edgekit.compiler.passes.unambiguous_forms import unambiguous_forms
from edgekit.compiler.passes.unroll_loops import unroll_loops
from edgekit.compiler.passes.write_out_newer import write_out_newer

Pass = Callable[[ir.Model], bool]

PASSES: tuple[tuple[Pass, str], ...] = (
    (
        static_shapes,
        "old forms of some ops (Softmax before 13) can only be rewritten with known shapes",
    ),
    (
        unroll_loops,
        "needs shapes and the file's own opset: only the Scan of opset 8 has a batch axis",
    ),
    (write_out_newer, "ops newer than opset 23; needs shapes and the file's own opset"),
    (canonical_opset, "so later passes support one form of each op only"),
    (fold_constants, "later passes look for weights, which shape chains and Constant nodes hide"),
    (inline_if, "its condition is a weight only after folding; later passes look at one graph"),
    (broadcast_distances, "after folding: the weights of a Scan's body; what follows has shapes only then"),
    (
        write_out_contributed,
        "after folding, for scales that are weights; before any pass that looks for ONNX's ops",
    ),
    (
        write_out_einsum,
        "after folding, for shapes; later passes match its output",
    ),
    (remove_dropout, "its training_mode is a weight now; remove_identities removes the Identity it leaves"),
    (
        unambiguous_forms,
        "after folding, for slopes and axes; before the Identities that it leaves are removed",
    ),
    (explicit_resize, "after folding, for sizes and scales; before a Resize by 1 is removed"),
    (remove_identities, "they separate nodes that later passes match as neighbours"),
    (merge_moves, "Transposes and Reshapes are neighbours once the identities between them are removed"),
    (merge_duplicates, "two Sigmoids of one value would hide a SiLU: its x would have too many consumers"),
    (explicit_padding, "fold_pad and fold_focus add numbers to pads"),
    (fold_pad, "before fold_affine, which looks for a Conv right after a scale"),
    (recognize_clip, "Min, Max and Clip in one form: the gates below consist of Clips"),
    (recognize_sigmoid, "x / (1 + Exp(-x)) contains constants that fold_affine would fold"),
    (recognize_hard_swish, "the same: the /6 of a HardSwish must not be folded into the next Conv"),
    (recognize_gelu, "the same: its 0.5 and 1 / sqrt(2)"),
    (recognize_attention, "the same: its scale"),
    (recognize_normalization, "the same: gamma and beta belong to the normalization, not to the next layer"),
    (fold_affine, "the scales and shifts that are left after matching formulas belong to their Conv"),
    (fold_focus, "after fold_affine, which may rewrite the same weight"),
    (remove_identities, "folding may leave a Mul by 1 or an Add of 0"),
    (remove_dead_code, "last: the inputs of fused nodes are unused now"),
)


def run_passes(model: ir.Model) -> list[str]:
    """Bring the model to the canonical form, in place.

    Args:
        model: From ``open_model``; its weights may be replaced.

    Returns:
        Names of the passes that changed it, in order.

    Raises:
        ModelError: a node has no canonical form (the text names it), or the passes exceed the work budget
            (edgekit/compiler/model/work_budget.py).
    """
    changed = []
    with one_budget():
        for one, _ in PASSES:
            check_time("simplifying it")
            if one(model):
                changed.append(one.__name__)
    return changed
