"""Label a model with an older opset where that says the same.

ONNX Runtime knows its fast forms by opset: 1.23, the last for CPython 3.10 and Intel Macs, reads opset 23 but
fuses no Conv of opset 22, and has no kernel for QuantizeLinear of 23. Milliseconds on it, one core, by the
label of the file; 1.31 gives the same for both, to the last bit:

                            opset 23    opset 20
    YOLOX-nano              29.6        22.7
    EfficientNet-Lite0      30.4        11.9
    ResNet-8 with Q/DQ      refused      0.45

20 and not 21, whose QuantizeLinear has output_dtype: ONNX Runtime 1.31 sets it wrongly when it moves Q/DQ
pairs on chips without VNNI, and refuses its own graph.

The schemas of onnx 1.23.2 at 20 and 23, compared by program (attributes, inputs, texts): the opsets between
add operators, attributes and element types, and change what is said of two. The scale of GroupNormalization
became one a channel; pooling ignores windows that would start in the padding at the end: with ceil_mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

OLDER_OPSET = 20
OLDER_IR_VERSION = 9
"""What came with opset 20: https://github.com/onnx/onnx/blob/main/docs/Versioning.md"""


def with_older_opset(model: ir.Model) -> ir.Model:
    """A copy of the model with opset 20, or the model itself where a node would not be the same in it."""
    if model.functions or not all(_same(node) for node in model.graph.all_nodes()):
        return model
    older = model.clone()
    older.opset_imports[""] = OLDER_OPSET
    older.ir_version = min(model.ir_version, OLDER_IR_VERSION)
    return older


def _same(node: ir.Node) -> bool:
    """Whether opset 20 has this operator, with these attributes and element types, and means the same."""
    from onnx import defs

    if node.domain not in ("", "ai.onnx"):
        return True  # versioned apart
    try:
        schema = defs.get_schema(node.op_type, OLDER_OPSET, "")
    except defs.SchemaError:
        return False
    rounds_up = node.attributes.get("ceil_mode")
    if node.op_type == "GroupNormalization" or (rounds_up and rounds_up.as_int()):
        return False
    if not set(node.attributes) <= set(schema.attributes):
        return False
    return _fits(node.inputs, schema.inputs) and _fits(node.outputs, schema.outputs)


def _fits(values: Sequence[ir.Value | None], formals: Sequence[Any]) -> bool:
    """Whether the schema's parameters take the element types of the values; the last one may take many."""
    for place, value in enumerate(values):
        if value is None or value.dtype is None:
            continue
        types = formals[min(place, len(formals) - 1)].types if formals else ()
        if f"tensor({value.dtype.name.lower()})" not in types:
            return False
    return True
