"""A node written out by its body, against ONNX Runtime's kernel for it."""

from __future__ import annotations

from edgekit.compiler.passes.decompositions import BODIES
from edgekit.compiler.passes.expand_functions import expand_functions
from tests.compiler.passes.meaning import Weight, answers, folded, ops, snr_db


def written_out(text: str, minimum_db: float = 110, /, **weights: Weight) -> list[str]:
    model = folded(text, 23, **weights)
    named = {node.op_type for node in model.graph if (node.domain, node.op_type) in BODIES}
    want = answers(model)
    assert expand_functions(model, lambda node: node.op_type in named)
    assert not (named - {"Conv"}) & set(ops(model))
    for wanted, got in zip(want, answers(model), strict=True):
        for name, array in wanted.items():
            assert array.dtype == got[name].dtype
            assert array.shape == got[name].shape
            assert snr_db(array, got[name]) >= minimum_db
    return ops(model)
