"""Decoders of whole nodes: the signature is that of ONNX's schema, and what they refuse."""

from __future__ import annotations

import onnx
import onnx.defs
import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.op_arguments import CANONICAL_OPSET, DECODERS, arguments_of, defaults_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.diagnostics import Inexpressible


def arguments(text: str) -> dict[str, object]:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]>\ng {text}'))
    infer_shapes(model)
    return arguments_of(model.graph.node(0))


@pytest.mark.parametrize("op", DECODERS)
def test_an_op_has_the_attributes_of_its_schema(op: str) -> None:
    assert set(defaults_of(op)) == set(onnx.defs.get_schema(op, CANONICAL_OPSET).attributes)


def test_defaults_are_the_numbers_of_the_specification() -> None:
    assert defaults_of("LayerNormalization") == {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
    conv = defaults_of("Conv")
    assert (conv["auto_pad"], conv["group"], conv["pads"], conv["kernel_shape"]) == ("NOTSET", 1, None, None)
    assert defaults_of("Selu")["alpha"] == 1.67326319217681884765625


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
