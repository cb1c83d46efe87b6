"""A node written out by its body, against ONNX Runtime's kernel for it."""

from __future__ import annotations

from edgekit.compiler.passes.decompositions import BODIES
from edgekit.compiler.passes.expand_functions import expand_functions
from tests.compiler.passes.meaning import Weight, answers, assert_same, folded, ops


def written_out(text: str, minimum_db: float = 110, /, **weights: Weight) -> list[str]:
    model = folded(text, 23, **weights)
    named = {node.op_type for node in model.graph if (node.domain, node.op_type) in BODIES}
    want = answers(model)
    assert expand_functions(model, lambda node: node.op_type in named)
    assert not (named - {"Conv"}) & set(ops(model))
    assert_same(want, model, minimum_db)
    return ops(model)
