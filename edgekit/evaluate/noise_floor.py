"""The noise floor of a model whose inputs are not floats: what rounding in another order does to its outputs.

Token ids, bytes and pixels can't be moved by a unit in the last place, as ``verify.nudged`` moves floats.
What engines do differently is to sum in another order, so that is where the copy of the model is disturbed.

    Gather -> MatMul -> Add            before
    Gather -> MatMul -> Mul -> Add     after; the Mul's constant is 1 or 1 +- eps, seeded
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.model.node_checks import static_dims

SUMMING_OPS = frozenset(
    {
        "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm",
        "GlobalAveragePool", "GroupNormalization", "InstanceNormalization", "LSTM", "LayerNormalization",
        "MatMul", "MeanVarianceNormalization", "RNN", "ReduceL2", "ReduceLogSumExp", "ReduceMean",
        "ReduceSum", "ReduceSumSquare", "Softmax", "Sum",
    }
)  # fmt: skip
"""Whose result depends on the order in which an engine sums."""


def with_nudged_sums(model: ir.Model, seed: int = 0) -> ir.Model:
    """A copy of the model where half of the values of each sum are moved by a unit in the last place, as
    another order of summation may do: float outputs of SUMMING_OPS are multiplied by 1 or 1 +- eps.

    Zeros stay zeros, and what is exact in every engine, such as (1 - mask) x -1e9, is not touched.
    """
    rng = np.random.default_rng(seed)
    moved = model.clone()
    for node in [n for n in moved.graph if n.op_type in SUMMING_OPS]:
        value = node.outputs[0]
        shape = static_dims(value)
        if shape is None or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
            continue
        dtype = value.dtype.numpy()
        units = rng.integers(0, 2, shape) * rng.choice((-1, 1), shape) * np.finfo(dtype).eps
        factor = ir.val(f"{value.name}/units", const_value=ir.tensor((1 + units).astype(dtype)))
        moved.graph.register_initializer(factor)
        users = list(value.uses())
        times = ir.node("Mul", [value, factor])
        result = times.outputs[0]
        result.name, result.dtype, result.shape = f"{value.name}/nudged", value.dtype, value.shape
        moved.graph.insert_after(node, times)
        for user, index in users:
            user.replace_input_with(index, result)
        for place, output in enumerate(moved.graph.outputs):
            if output is value:
                moved.graph.outputs[place] = result
                value.name, result.name = f"{value.name}/sum", value.name
    return moved
