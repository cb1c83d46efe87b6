"""Decoders of whole nodes: the signature is that of ONNX's schema, and what they refuse."""

from __future__ import annotations

import inspect

import onnx
import onnx.defs
import onnx.helper
import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.op_arguments import DECODERS, _frame, arguments_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.diagnostics import Inexpressible

OPSET = 23


def arguments(text: str) -> dict[str, object]:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]>\ng {text}'))
    infer_shapes(model)
    return arguments_of(model.graph.node(0))


@pytest.mark.parametrize("op", DECODERS)
def test_a_decoder_has_the_attributes_and_defaults_of_onnx(op: str) -> None:
    schema = onnx.defs.get_schema(op, OPSET)
    parameters = dict(inspect.signature(DECODERS[op]).parameters)
    if "sliding" in parameters:
        parameters |= {
            n: p for n, p in inspect.signature(_frame).parameters.items() if p.kind is p.KEYWORD_ONLY
        }
    named = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    if op in ("Cast", "CastLike"):
        named["to"] = inspect.Parameter.empty
    assert set(schema.attributes) <= set(named)
    for name, attribute in schema.attributes.items():
        if attribute.required:
            assert named[name] is inspect.Parameter.empty, name
        elif attribute.default_value.type:
            default = onnx.helper.get_attribute_value(attribute.default_value)
            default = default.decode() if isinstance(default, bytes) else default
            assert named[name] == (pytest.approx(default) if isinstance(default, float) else default)


def test_a_node_outside_of_a_table() -> None:
    pool = "(float[1,2,7,7] x) => (float[1,2,4,4] y) { y = AveragePool<%s>(x) }"
    made = arguments(pool % "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1")
    assert made["count_include_pad"] is True
    assert made["frame"].pads == ((1, 1), (1, 1))  # type: ignore[attr-defined]
    reduced = (
        "(float[2,3,4] x) => (float[2,3] y) <int64[1] axes = {-1}> { y = ReduceSum<keepdims=0>(x, axes) }"
    )
    assert arguments(reduced) == {"axes": (2,), "keepdims": False}


def test_batch_normalization_in_training_is_refused() -> None:
    with pytest.raises(Inexpressible) as caught:
        arguments(
            "(float[1,2,3,3] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[1,2,3,3] y, "
            "float[2] n, float[2] w) { y, n, w = BatchNormalization<training_mode=1>(x, s, b, m, v) }"
        )
    assert caught.value.reason == "training_mode=1 updates statistics; export the model for inference"
