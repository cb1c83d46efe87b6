"""One op case: a small ONNX model as ONNX text, the values it is fed, and how close an answer must be."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
from onnx import helper, numpy_helper

from edgekit.tensor_spec import Array

OPSET = 23
IR_VERSIONS = ((23, 11), (21, 10), (19, 9), (15, 8), (13, 7), (10, 5), (9, 4))
"""(opset, IR version of the ONNX release that brought it); since IR 4 a weight need not be an input too."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Case:
    """One small model and what is asked of it.

    Attributes:
        name: Unique in its family.
        inputs: Graph inputs in ONNX text, e.g. ``float[1,3,8,8] x``; shapes are static.
        body: The nodes in ONNX text, one a line.
        weights: Constants in ONNX text. One without a value is filled with seeded normal numbers over
            the root of the fan-in, so that the outputs stay near 1 in size.
        outputs: Names of the graph outputs; with a type where shape inference finds none.
        opset: Opset of the model.
        ranges: Input or weight -> uniform range ``[low, high)`` of its values, instead of normal numbers
            (floats) or -5..5 (integers; 0..10 when unsigned).
        snr_db: Least signal-to-noise ratio of each float output. 100 dB is a relative error of 1e-5; a case
            that needs less says why where it is written.
        steps: How far an integer output may be off; only for quantized outputs, where a value on the border
            of two steps may go either way.
    """

    name: str
    inputs: str
    body: str
    weights: str = ""
    outputs: str = "y"
    opset: int = OPSET
    ranges: Mapping[str, Range] = field(default_factory=dict)
    snr_db: float = 100.0
    steps: int = 0

    def model(self) -> onnx.ModelProto:
        """The model, with weights filled, nodes named after their op, and shapes inferred."""
        ir_version = next(ir for opset, ir in IR_VERSIONS if self.opset >= opset or opset == 9)
        constants = f"<{self.weights}>" if self.weights else ""
        text = f'<ir_version: {ir_version}, opset_import: ["" : {self.opset}]>\n'
        text += f"g_{_plain(self.name)} ({self.inputs}) => ({self.outputs}) {constants} {{\n{self.body}\n}}"
        model = onnx.parser.parse_model(text)
        draw = np.random.default_rng(zlib.crc32(self.name.encode()))
        for value in model.graph.value_info:
            model.graph.initializer.append(
                numpy_helper.from_array(_weight(value, self.ranges.get(value.name), draw), value.name)
            )
        del model.graph.value_info[:]
        for index, node in enumerate(model.graph.node):
            node.name = node.name or f"{node.op_type}_{index}"
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)

    def feeds(self, seed: int) -> dict[str, Array]:
        """Values for every input, the same for the same seed."""
        draw = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return {
            value.name: _values(*_type_of(value), self.ranges.get(value.name), draw)
            for value in self.model().graph.input
        }


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _type_of(value: onnx.ValueInfoProto) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    tensor = value.type.tensor_type
    return helper.tensor_dtype_to_np_dtype(tensor.elem_type), tuple(d.dim_value for d in tensor.shape.dim)


def _weight(value: onnx.ValueInfoProto, limits: Range | None, draw: np.random.Generator) -> Array:
    dtype, shape = _type_of(value)
    weight = _values(dtype, shape, limits, draw)
    if limits is None and dtype.kind == "f" and len(shape) > 1:
        weight = np.asarray(weight / np.sqrt(np.prod(shape[1:])), dtype)
    return weight


def _values(
    dtype: np.dtype[np.generic], shape: tuple[int, ...], limits: Range | None, draw: np.random.Generator
) -> Array:
    if dtype.kind == "b":
        return np.asarray(draw.integers(0, 2, shape), dtype)
    if dtype.kind == "f":
        return np.asarray(
            draw.standard_normal(shape) if limits is None else draw.uniform(*limits, shape), dtype
        )
    low, high = limits or ((0, 11) if dtype.kind == "u" else (-5, 6))
    return np.asarray(draw.integers(int(low), int(high), shape), dtype)
