"""Repairs and checks of opened models with ops of ai.onnx.ml: two ops are rewritten, outputs that no engine
supports are rejected."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from edgekit.compiler.model.ml_shapes import ML_DOMAIN
from edgekit.compiler.model.rewriting import text_of
from edgekit.errors import ModelError


def restate_normalizers(model: ir.Model) -> None:
    """Normalizer<norm = "L2">(x) [ai.onnx.ml]  =>  LpNormalization<p = 2, axis = -1>(x)

    ONNX Runtime's kernel may write over its own input, and then loses the signs of the numbers (1.31.1). It
    does so where shapes are known, so that EdgeKit's reference and its variants would be wrong by it, while
    the source file is right. Shapes must be inferred. Inputs of another type can't be written over.
    """
    for node in model.graph:
        if node.domain != ML_DOMAIN or node.op_type != "Normalizer" or text_of(node, "norm", "MAX") != "L2":
            continue
        if node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.FLOAT:
            node.domain, node.op_type = "", "LpNormalization"
            node.attributes.clear()
            node.attributes.add(ir.AttrInt64("p", 2))
            node.attributes.add(ir.AttrInt64("axis", -1))


def drop_dictionaries(proto: onnx.ModelProto) -> None:
    """ZipMap(scores) -> output [ai.onnx.ml]  =>  Identity(scores) -> output

    ZipMap returns each row's scores as a dictionary by class, which engines do not support. skl2onnx adds it
    to classifiers by default, CatBoost always. The tensor has a column for each class, in the same order.

    Raises:
        ModelError: a node reads the dictionaries.
    """
    outputs = {value.name: value for value in proto.graph.output}
    read = {name for node in proto.graph.node for name in node.input}
    for node in proto.graph.node:
        if node.op_type != "ZipMap" or node.domain != ML_DOMAIN:
            continue
        name = next(iter(node.output), "")
        if name not in outputs or name in read:
            raise ModelError(
                f"output {name}: node {node.name or 'ZipMap'} (ZipMap) returns each row's scores as a "
                "dictionary that other nodes read, which engines do not support; export again with "
                'skl2onnx\'s options={"zipmap": False} to get a tensor'
            )
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        outputs[name].type.Clear()
        outputs[name].type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def output_advice(value: ir.Value) -> str:
    """Return advice on an output that is not a numeric tensor, or "" if there is none."""
    if value.dtype == ir.DataType.STRING:
        return (
            "class names are strings, which engines do not support: train on integers "
            "(sklearn.preprocessing.LabelEncoder), and put the names into the card's labels"
        )
    return ""
