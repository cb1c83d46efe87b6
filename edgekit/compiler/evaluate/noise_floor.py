"""The noise floor of a model whose inputs are not floats: how the order of summation changes its outputs;
and what kernels of the reference lose in precision.

Float inputs are perturbed by a unit in the last place (``verify.perturbed``); token ids, bytes and pixels
cannot be. Engines differ in the order of summation, so the results of sums in a copy of the model are
perturbed.

    Gather -> MatMul -> Add            before
    Gather -> MatMul -> Mul -> Add     after; the Mul's constant is 1 or 1 +- eps, seeded
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.passes.canonical_opset import canonical_opset
from edgekit.compiler.passes.decompositions.linear_algebra import TRANSFORMS, is_inexact
from edgekit.compiler.passes.expand_functions import expand_functions
from edgekit.compiler.passes.fold_constants import fold_constants

SUMMING_OPS = frozenset(
    {
        "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm",
        "GlobalAveragePool", "GroupNormalization", "InstanceNormalization", "LSTM", "LayerNormalization",
        "MatMul", "MeanVarianceNormalization", "RNN", "ReduceL2", "ReduceLogSumExp", "ReduceMean",
        "ReduceSum", "ReduceSumSquare", "Softmax", "Sum",
    }
)  # fmt: skip
"""Ops whose result depends on the order of summation."""


def with_perturbed_sums(model: ir.Model, seed: int = 0) -> ir.Model:
    """Return a copy of the model in which half of the values of each sum differ by a unit in the last place,
    as another order of summation may do: float outputs of SUMMING_OPS are multiplied by 1 or 1 +- eps.

    Zeros stay zeros, and ops that are exact in every engine, such as (1 - mask) x -1e9, are not changed.
    """
    rng = np.random.default_rng(seed)
    perturbed = model.clone()
    for node in [n for n in perturbed.graph if n.op_type in SUMMING_OPS]:
        value = node.outputs[0]
        shape = static_dims(value)
        if shape is None or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
            continue
        dtype = value.dtype.numpy()
        units = rng.integers(0, 2, shape) * rng.choice((-1, 1), shape) * np.finfo(dtype).eps
        factor = ir.val(f"{value.name}/units", const_value=ir.tensor((1 + units).astype(dtype)))
        perturbed.graph.register_initializer(factor)
        users = list(value.uses())
        times = ir.node("Mul", [value, factor])
        result = times.outputs[0]
        result.name, result.dtype, result.shape = f"{value.name}/nudged", value.dtype, value.shape
        perturbed.graph.insert_after(node, times)
        for user, index in users:
            user.replace_input_with(index, result)
        for index, output in enumerate(perturbed.graph.outputs):
            if output is value:
                perturbed.graph.outputs[index] = result
                value.name, result.name = f"{value.name}/sum", value.name
    return perturbed


def with_broken_ties(model: ir.Model, seed: int = 0) -> ir.Model:
    """Return a copy of the model whose TopK nodes sort scores that differ by a unit in the last place.

    The order of equal scores is each framework's own: of an untrained detector all scores may be equal.
    """
    rng = np.random.default_rng(seed)
    perturbed = model.clone()
    for node in [n for n in perturbed.graph if n.op_type == "TopK"]:
        scores = node.inputs[0]
        shape = static_dims(scores) if scores is not None else None
        if scores is None or shape is None or scores.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
            continue
        dtype = scores.dtype.numpy()
        units = rng.uniform(-1, 1, shape)
        result = scores
        for kind, factor in (
            ("Mul", 1 + 2 * units * np.finfo(dtype).eps),
            ("Add", units * np.finfo(dtype).tiny),
        ):
            name = f"{scores.name}/{node.outputs[0].name}/{kind}"
            constant = ir.val(f"{name}/units", const_value=ir.tensor(factor.astype(dtype)))
            perturbed.graph.register_initializer(constant)
            step = ir.node(kind, [result, constant])
            result = step.outputs[0]
            result.name, result.dtype, result.shape = name, scores.dtype, scores.shape
            perturbed.graph.insert_before(node, step)
        node.replace_input_with(0, result)
    return perturbed


def with_exact_transforms(model: ir.Model) -> ir.Model | None:
    """Return a copy whose DFT and STFT are products, where ONNX Runtime's kernels for them lose precision;
    None without such nodes. What they lose is a part of the reference's noise floor."""
    if not any(node.op_type in TRANSFORMS and not node.domain for node in model.graph):
        return None
    copy = model.clone()
    canonical_opset(copy)  # until opset 19 the axis of a DFT is an attribute
    fold_constants(copy)
    return copy if expand_functions(copy, is_inexact) else None
