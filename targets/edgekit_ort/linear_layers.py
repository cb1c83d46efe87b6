"""Linear layers on integers as ONNX Runtime has a kernel for them: com.microsoft.QGemm.

    x (uint8) -> DQ ------------> MatMul -> Add(b) [-> Relu or Clip -> Q]
                 w (int8) -> DQ ->
        =>
    x -> Reshape(rows, K) -> DQ ---> Gemm [-> Relu or Clip -> Q] -> Reshape
                      w -> DQ -------^
                b (int32) -> DQ -----^

ONNX Runtime 1.32 makes Reshape, Gemm, Reshape of MatMul and Add before it looks for Q/DQ pairs. Its Reshape
then stands between the DequantizeLinear and the Gemm, which becomes MatMulNBits on floats. Minima on one
x86-64 core with VNNI, 40 rows, 120 by 120 and 120 by 1000 weights: float 26 and 120 us, MatMulNBits 60 and
479, QGemm 26 and 96.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    free_name,
    input_of,
    int_of,
    new_node,
    only_consumer,
    producer_of,
    put_before,
    replace_node,
)
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.tensor_spec import Array

INT32_MAX = float(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class _Layer:
    """A MatMul of integers and the Add of its bias. ``bias``: int32, in units of ``scale``, both [N]."""

    x: ir.Node
    weights: ir.Value
    add: ir.Node
    bias: Array
    scale: Array
    rows: tuple[int, ...]


def with_integer_gemms(model: ir.Model) -> ir.Model:
    """Return a copy in which MatMul and Add on integers are a Gemm with an int32 bias, or ``model`` itself if
    it has none.

    The bias is rounded to steps of (scale of x) * (scale of w), the step of the products' int32 sums.
    """
    if next(_layers(model), None) is None:
        return model
    copy = model.clone()
    for layer in list(_layers(copy)):
        _replace(copy, layer)
    remove_dead_code(copy)
    return copy


def _layers(model: ir.Model) -> Iterator[_Layer]:
    for node in model.graph:
        if node.op_type == "MatMul" and not node.domain and (layer := _layer(node)) is not None:
            yield layer


def _layer(matmul: ir.Node) -> _Layer | None:
    x, weights = (producer_of(value, "DequantizeLinear") for value in matmul.inputs)
    add = only_consumer(matmul.outputs[0])
    if x is None or weights is None or add is None or add.op_type != "Add":
        return None
    stored, scale, zero = (array_of(input_of(weights, index)) for index in range(3))
    step, dims = array_of(x.inputs[1]), static_dims(matmul.inputs[0])
    if stored is None or scale is None or step is None or dims is None or len(dims) < 2:
        return None
    if stored.dtype != np.int8 or stored.ndim != 2 or step.size != 1 or (zero is not None and zero.any()):
        return None
    columns = stored.shape[1]
    if scale.size not in (1, columns) or (scale.size > 1 and int_of(weights, "axis", 1) not in (1, -1)):
        return None
    bias = next((array for value in add.inputs if (array := array_of(value)) is not None), None)
    if bias is None or static_dims(add.outputs[0]) != (*dims[:-1], columns):
        return None
    if bias.size != 1 and (bias.size != columns or bias.shape[-1] != columns):  # one for each column
        return None
    unit = np.broadcast_to(step.reshape(1) * scale.reshape(-1), (columns,)).astype(np.float32)
    sums = np.rint(bias.reshape(-1).astype(np.float64) / unit)
    if not np.all(np.abs(sums) <= INT32_MAX):
        return None
    return _Layer(x, weights.outputs[0], add, sums.astype(np.int32), unit, dims[:-1])


def _replace(model: ir.Model, layer: _Layer) -> None:
    add, name = layer.add, str(layer.add.outputs[0].name)
    count, columns = math.prod(layer.rows), len(layer.bias)
    bias, unit, zeros = (
        add_constant(model, array, f"{name}/{suffix}")
        for array, suffix in (
            (layer.bias, "bias"),
            (layer.scale, "bias_scale"),
            (np.zeros(columns, np.int32), "bias_zero"),
        )
    )
    addend = put_before(model, add, "DequantizeLinear", [bias, unit, zeros], (columns,), "bias_float", axis=0)
    product = new_node(add, "Gemm", [_in_rows(model, layer, count), layer.weights, addend])
    replace_node(add, product)
    if len(layer.rows) > 1:
        _out_of_rows(model, product, count, (*layer.rows, columns))


def _in_rows(model: ir.Model, layer: _Layer, count: int) -> ir.Value:
    """Return the layer's input as [rows, K], reshaped while it holds integers."""
    if len(layer.rows) == 1:
        return layer.x.outputs[0]
    stored, scale, *zero = layer.x.inputs
    dims = static_dims(layer.x.outputs[0])
    assert stored is not None
    assert dims is not None
    flat = (count, dims[-1])
    earlier = producer_of(stored, "Reshape")
    if earlier is not None and static_dims(earlier.inputs[0]) == flat:
        rows = earlier.inputs[0]
    else:
        shape = add_constant(model, np.array(flat, np.int64), f"{stored.name}/in_rows")
        rows = put_before(model, layer.add, "Reshape", [stored, shape], flat, "rows", stored.dtype)
    return put_before(model, layer.add, "DequantizeLinear", [rows, scale, *zero], flat, "rows_float")


def _out_of_rows(model: ir.Model, product: ir.Node, count: int, dims: tuple[int, ...]) -> None:
    """Reshape the product to ``dims`` after what ONNX Runtime computes in the same kernel."""
    flat, kernel = ir.Shape((count, dims[-1])), [product]
    while (after := only_consumer(kernel[-1].outputs[0])) is not None and after.op_type in ("Relu", "Clip"):
        kernel.append(after)
    kernel = [*kernel, after] if after is not None and _rounds_all_alike(after) else [product]
    for node in kernel:
        node.outputs[0].shape = flat
    last = kernel[-1]
    value, graph = last.outputs[0], last.graph
    assert graph is not None
    shape = add_constant(model, np.array(dims, np.int64), f"{value.name}/out_of_rows")
    reshape = ir.node("Reshape", [value, shape], name=f"{last.name}/out_of_rows")
    out = reshape.outputs[0]
    name, out.type, out.shape = value.name, value.type, ir.Shape(dims)
    graph.insert_after(last, reshape)
    value.replace_all_uses_with(out, replace_graph_outputs=True)
    reshape.replace_input_with(0, value)
    value.name = free_name(model, f"{name}/rows")
    out.name = name


def _rounds_all_alike(node: ir.Node) -> bool:
    scale = array_of(node.inputs[1]) if node.op_type == "QuantizeLinear" else None
    return scale is not None and scale.size == 1


# Products with stored weights as ONNX Runtime multiplies integers with a range that is found at each run.
#
#     w (int8) -> DequantizeLinear -> MatMul(x)
#         =>
#     x -> DynamicQuantizeLinear -> MatMulInteger(w) -> Cast -> Mul(scale of x * scales of w)
#
# ONNX Runtime makes one kernel of these four (com.microsoft.DynamicQuantizeMatMul).

PAIR_LIMIT = 128
"""Without VNNI, MLAS adds two products of uint8 by int8 in int16: 255 * (128 + 1) would be over 32767."""


def with_integer_products(model: ir.Model) -> ir.Model:
    """Return a copy in which MatMul and Gemm with int8 weights after a DequantizeLinear multiply integers.

    Weights: symmetric int8, one scale or one for each output channel. Gemm: neither alpha, beta nor transA.
    """
    copy = model.clone()
    for node in list(copy.graph):
        dq = producer_of(node.inputs[1], "DequantizeLinear") if node.op_type in ("Gemm", "MatMul") else None
        stored, scale = (array_of(dq.inputs[0]), array_of(dq.inputs[1])) if dq else (None, None)
        if stored is None or scale is None or stored.ndim != 2:
            continue
        zero = array_of(dq.inputs[2]) if dq is not None and len(dq.inputs) > 2 else None
        if stored.dtype != np.int8 or (zero is not None and zero.any()):
            continue
        if int_of(node, "transB", 0):
            stored = np.ascontiguousarray(stored.T)
        _replace_product(copy, node, stored, scale)
    remove_dead_code(copy)
    return copy


def has_large_pairs(model: ir.Model) -> bool:
    """Check whether sums of two products in int16 could saturate: two weights of one sign are over
    PAIR_LIMIT. The sums were off by up to 101,661 with 384 inputs, measured with AVX2."""
    for node in model.graph:
        weights = array_of(node.inputs[1]) if node.op_type == "MatMulInteger" else None
        if weights is None or weights.dtype != np.int8 or weights.ndim < 2:
            continue
        wide = weights.astype(np.int16)
        odd = wide[..., 1::2, :]
        even = wide[..., ::2, :][..., : odd.shape[-2], :]
        highest = np.maximum(even, 0) + np.maximum(odd, 0)
        lowest = np.minimum(even, 0) + np.minimum(odd, 0)
        if max(highest.max(initial=0), -lowest.min(initial=0)) > PAIR_LIMIT:
            return True
    return False


def _replace_product(model: ir.Model, node: ir.Node, stored: Array, scale: Array) -> None:
    x, bias = node.inputs[0], input_of(node, 2)
    rows, out = dims_of(x), dims_of(node.outputs[0])
    assert rows is not None
    assert out is not None
    name = str(node.outputs[0].name)
    weights, zeros, scales = (
        add_constant(model, array, f"{name}/{suffix}")
        for array, suffix in (
            (stored, "stored"),
            (np.zeros(scale.shape, np.int8), "zeros"),
            (scale, "scales"),
        )
    )
    ranged = ir.node("DynamicQuantizeLinear", [x], num_outputs=3, name=f"{node.name}/ranged")
    for value, suffix in zip(ranged.outputs, ("ranged", "scale", "zero"), strict=True):
        value.name, value.shape = free_name(model, f"{name}/{suffix}"), ir.Shape([])
        value.dtype = ir.DataType.FLOAT if suffix == "scale" else ir.DataType.UINT8
    integers, scale_of_x, zero = ranged.outputs
    integers.shape = ir.Shape(rows)
    assert node.graph is not None
    node.graph.insert_before(node, ranged)
    factor = put_before(model, node, "Mul", [scale_of_x, scales], scale.shape, "factor")
    summed = [integers, weights, zero, zeros]
    sums = put_before(model, node, "MatMulInteger", summed, out, "sums", ir.DataType.INT32)
    real = put_before(model, node, "Cast", [sums], out, "counts", ir.DataType.FLOAT, to=ir.DataType.FLOAT)
    if bias is None:
        replace_node(node, new_node(node, "Mul", [real, factor]))
    else:
        product = put_before(model, node, "Mul", [real, factor], out, "product")
        replace_node(node, new_node(node, "Add", [product, bias]))
