"""One small graph for each row of a target's ``quant_rules.py``.

tests/targets/*/test_quant_rules.py go through all rows, so that a row without a case fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.target.quant_rules import OpRule
from tests.fixtures.graphs import Graph

SHAPE = (1, 8, 8, 8)
Make = Callable[[Graph, str], str]
INT64 = np.int64


def _ints(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(numbers, INT64)


BETWEEN: Mapping[str, Make] = {
    "Add": lambda g, x: g("Add", x, g.conv(x, 8, 8)),
    "AveragePool": lambda g, x: g("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]),
    "Concat": lambda g, x: g("Concat", x, g.conv(x, 8, 8), axis=1),
    "Conv": lambda g, x: g.conv(x, 8, 8, 3),
    "ConvTranspose": lambda g, x: g("ConvTranspose", x, g.weights(8, 8, 2, 2), g.weights(8), strides=[2, 2]),
    "DepthToSpace": lambda g, x: g("DepthToSpace", x, blocksize=2),
    "Flatten": lambda g, x: g("Flatten", x, axis=1),
    "GlobalAveragePool": lambda g, x: g("GlobalAveragePool", x),
    "HardSwish": lambda g, x: g("HardSwish", x),
    "LeakyRelu": lambda g, x: g("LeakyRelu", x, alpha=0.1),
    "MatMul": lambda g, x: g("MatMul", g("Reshape", x, _ints(64, 8)), g.weights(8, 8)),
    "MaxPool": lambda g, x: g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]),
    "Mul": lambda g, x: g("Mul", x, g.conv(x, 8, 8)),
    "Pad": lambda g, x: g("Pad", g("Add", x, x), _ints(0, 0, 1, 1, 0, 0, 1, 1)),
    "ReduceMean": lambda g, x: g("ReduceMean", x, _ints(3), keepdims=1),
    "Relu": lambda g, x: g("Relu", g("MaxPool", x, kernel_shape=[1, 2], strides=[1, 2])),
    "Reshape": lambda g, x: g("Reshape", x, _ints(1, 16, 4, 8)),
    "Resize": lambda g, x: g(
        "Resize",
        x,
        "",
        np.array([1, 1, 2, 2], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "Sigmoid": lambda g, x: g("Sigmoid", x),
    "Slice": lambda g, x: g("Slice", x, _ints(0), _ints(4), _ints(1)),
    "Softmax": lambda g, x: g("Softmax", x, axis=-1),
    "SpaceToDepth": lambda g, x: g("SpaceToDepth", x, blocksize=2),
    "Split": lambda g, x: g("Split", x, outputs=2, num_outputs=2, axis=1),
    "Squeeze": lambda g, x: g("Squeeze", g("MaxPool", x, kernel_shape=[8, 1]), _ints(2)),
    "Sub": lambda g, x: g("Sub", x, g.conv(x, 8, 8)),
    "Tanh": lambda g, x: g("Tanh", x),
    "Transpose": lambda g, x: g("Transpose", x, perm=[0, 2, 1, 3]),
    "Unsqueeze": lambda g, x: g("Unsqueeze", x, _ints(0)),
}
"""Op -> how it is put behind a Conv; another kernel with weights follows, so that it is no tail."""


def model_for(rule: OpRule, folder: Path) -> ir.Model:
    """Conv, the op, Conv (or MatMul, where no image is left)."""
    g = Graph({"x": SHAPE})
    first = g.conv("x", 8, 8)
    if rule.op == "Gemm":
        transposed = dict(rule.where).get("transB", (0,))[0]
        made = g("Gemm", g("Reshape", first, _ints(64, 8)), g.weights(8, 8), g.weights(8), transB=transposed)
    else:
        made = BETWEEN[rule.op](g, first)
    apart = g("Add", made, made)  # or the passes would merge two reshapes
    last = g("MatMul", g("Reshape", apart, _ints(-1, 8)), g.weights(8, 8))
    return g.model(folder, last)
