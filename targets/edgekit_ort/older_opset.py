"""Label a model with an older opset where that says the same.

ONNX Runtime knows its fast forms by opset: 1.23, the last for CPython 3.10 and Intel Macs, reads opset 23 but
fuses no Conv of opset 22, and has no kernel for QuantizeLinear of 23. Milliseconds on it, one core, by the
label of the file; 1.31 gives the same for both, to the last bit:

                            opset 23    opset 21
    YOLOX-nano              29.6        22.5
    EfficientNet-Lite0      30.4        11.9
    ResNet-8 with Q/DQ      refused      0.45

Opsets 22 and 23 revised operators for new element types only, and added operators and attributes. One
revision says more: pooling ignores windows that would start in the padding at the end; that needs ceil_mode.
(Compared by program: the schemas of onnx 1.23.2 at 21 and 23; attributes, inputs, texts.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

OLDER_OPSET = 21
OLDER_IR_VERSION = 10
"""What came with opset 21: https://github.com/onnx/onnx/blob/main/docs/Versioning.md"""


def with_older_opset(model: ir.Model) -> ir.Model:
    """A copy of the model with opset 21, or the model itself where a node would not be the same in it."""
    if model.functions or not all(_same(node) for node in model.graph.all_nodes()):
        return model
    older = model.clone()
    older.opset_imports[""] = OLDER_OPSET
    older.ir_version = min(model.ir_version, OLDER_IR_VERSION)
    return older


def _same(node: ir.Node) -> bool:
    """Whether opset 21 has this operator, with these attributes and none of the newer element types."""
    import onnx_ir as ir
    from onnx import defs

    if node.domain not in ("", "ai.onnx"):
        return True  # versioned apart
    try:
        schema = defs.get_schema(node.op_type, OLDER_OPSET, "")
    except defs.SchemaError:
        return False
    rounds_up = node.attributes.get("ceil_mode")
    if not set(node.attributes) <= set(schema.attributes) or (rounds_up and rounds_up.as_int()):
        return False
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(value.dtype is None or value.dtype <= ir.DataType.UINT64 for value in values)
