"""Compile a small model given as ONNX text, and run it on LiteRT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
import onnx_ir as ir
from edgekit_tflite.compile import FILE, compile_model
from onnx import helper, numpy_helper

from edgekit.target import Artifact
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Array

PROFILE = Profile("tflite", "tflite", "LiteRT", {})


def model_of(inputs: str, body: str, weights: str = "", outputs: str = "y") -> ir.Model:
    """A canonical model: opset 23, shapes inferred; a weight without a value is zeros."""
    constants = f"<{weights}>" if weights else ""
    text = '<ir_version: 10, opset_import: ["" : 23]>\n'
    text += f"g ({inputs}) => ({outputs}) {constants} {{\n{body}\n}}"
    model = onnx.parser.parse_model(text)
    for value in model.graph.value_info:
        kind = value.type.tensor_type
        zeros = np.zeros(
            [d.dim_value for d in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type)
        )
        model.graph.initializer.append(numpy_helper.from_array(zeros, value.name))
    del model.graph.value_info[:]
    return canonical(model)


def canonical(model: onnx.ModelProto) -> ir.Model:
    """The model with shapes inferred."""
    return ir.from_proto(onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True))


def with_weights(model: ir.Model, weights: Mapping[str, Array]) -> ir.Model:
    """The model with values for the initializers, which ONNX text can hold only number by number."""
    for name, array in weights.items():
        model.graph.initializers[name].const_value = ir.tensor(array)
    return model


def compiled(model: ir.Model, precision: str = "fp32") -> Artifact:
    return compile_model(model, PROFILE, precision)


def files_of(artifact: Artifact) -> dict[str, bytes]:
    return {name: bytes(content) for name, content in artifact.files.items()}


def ran(artifact: Artifact, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by source name, on one thread, XNNPACK as LiteRT applies it."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=bytes(artifact.files[FILE]), num_threads=1)
    run = interpreter.get_signature_runner(artifact.options["signature"])
    dtypes = {row["signature_name"]: row["dtype"] for row in artifact.options["inputs"]}
    outputs: dict[str, Any] = run(**{name: x.astype(dtypes[name]) for name, x in feeds.items()})
    return {name: np.array(x) for name, x in outputs.items()}


def ops_of(artifact: Artifact) -> dict[str, int]:
    """Operator -> how many the file has."""
    counts: dict[str, int] = artifact.facts["ops"]
    return counts


def snr_db(expected: Array, actual: Array) -> float:
    x, y = expected.astype(np.float64), actual.astype(np.float64)
    noise = float(np.square(x - y).sum())
    return float("inf") if noise == 0 else float(10 * np.log10(np.square(x).sum() / noise))
