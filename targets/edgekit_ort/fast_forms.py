"""Rewrites into forms that ONNX Runtime computes faster, with the same results.

The integers that a Conv of fewer than eight channels reads are padded to a multiple of four:

    Q -> DQ -> Conv (3 channels)      =>      Q -> Pad -> DQ -> Conv (4 channels)

ONNX Runtime's QLinearConv copies the channels at each position of its window. It copies 4 of them in less
time than 1 to 3, and 8 than 5 to 7. The added integers are the zero point and their weights 0, so the sums
stay the same. Networks for images begin with such a Conv.

``with_quick_gelu``: ONNX Runtime fuses x * Sigmoid(x) to QuickGelu by itself, but if x comes from a
DequantizeLinear it has given each reader one of its own by then, and the two no longer read the same value:
YOLOX-nano ran Sigmoid and Mul apart on 217 DequantizeLinear nodes, 10.7 ms instead of 8.2.

com.microsoft.QuickGelu(x) = x * Sigmoid(alpha * x), in every version since 1.11:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#commicrosoftquickgelu

``with_prelu_written_out``: its kernel of PRelu branches on each element's sign, which is slow on inputs that
the branch predictor has not seen; a benchmark that repeats one small input hides it. The operators here are
vectorized, the first Relu is fused into a Conv before it, and the result is equal bit for bit, because one of
the two terms is zero. ``python -m tests.benchmarks.scoreboard cell palm-full ort`` measures it: "EdgeKit,
fp32" is written out, and "source model, fp32" is not.

``with_older_opset``: ONNX Runtime knows its fast forms by opset: 1.23, the last for CPython 3.10 and Intel
Macs, reads opset 23 but fuses no Conv of opset 22, and has no kernel for QuantizeLinear of 23. Milliseconds
on it, one core, by the label of the file; 1.31 gives the same for both, to the last bit:

                            opset 23    opset 20
    YOLOX-nano              29.6        22.7
    EfficientNet-Lite0      30.4        11.9
    ResNet-8 with Q/DQ      refused      0.45

20 and not 21, whose QuantizeLinear has output_dtype: ONNX Runtime 1.31 sets it wrongly when it moves Q/DQ
pairs on chips without VNNI, and refuses its own graph.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.opset_downgrade import with_opset
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    int_of,
    new_node,
    producer_of,
    put_before,
    remove_unread,
    replace_node,
    rewritten_copy,
)
from edgekit.compiler.quantize.placement.kernels import silu_of

MULTIPLE, MOST_CHANNELS = 4, 7
"""Most channels to pad."""
MOST_ADDED = 75
"""Most added channels times positions of the window; beyond it, their multiplications cost more than the
copies save (docs/measured/quantization.md)."""
DOMAIN = "com.microsoft"
LEAST_ELEMENTS = 512
"""Below this, four more nodes cost more than the kernel."""
OLDER_OPSET = 20


def with_padded_channels(model: ir.Model) -> ir.Model:
    """Return a copy of the model with such Convs padded, or the model itself."""
    return rewritten_copy(model, _added_channels, _pad)


def _added_channels(node: ir.Node) -> int:
    """Return the number of channels to add to a Conv of 8-bit integers with constant weights; 0 for none."""
    if node.op_type != "Conv" or node.domain or int_of(node, "group", 1) != 1:
        return 0
    data, weights = (producer_of(value, "DequantizeLinear") for value in node.inputs[:2])
    if data is None or weights is None or len(data.inputs) < 3 or len(weights.inputs) < 3:
        return 0
    stored, dims = data.inputs[0], static_dims(data.inputs[0])
    zero, weight_zeros = array_of(data.inputs[2]), array_of(weights.inputs[2])
    matrix = array_of(weights.inputs[0])
    if dims is None or zero is None or weight_zeros is None or matrix is None or array_of(stored) is not None:
        return 0
    if zero.ndim or zero.dtype.itemsize != 1 or weight_zeros.any() or dims[1] > MOST_CHANNELS:
        return 0
    added = -dims[1] % MULTIPLE
    return added if added * prod(matrix.shape[2:]) <= MOST_ADDED else 0


def _pad(model: ir.Model, node: ir.Node, added: int) -> None:
    """Add channels to the data and the weights of a Conv, each with a DequantizeLinear of its own."""
    for index, name in enumerate(("data/padded", "weights/padded")):
        pair = producer_of(node.inputs[index], "DequantizeLinear")
        assert pair is not None
        stored, scale, zero = pair.inputs[:3]
        assert stored is not None
        assert zero is not None
        dims, array = static_dims(stored) or (), array_of(stored)
        wider = (dims[0], dims[1] + added, *dims[2:])
        ends = np.zeros((len(dims), 2), np.int64)
        ends[1, 1] = added
        if array is not None:
            padded = add_constant(model, np.pad(array, ends), f"{node.name}/{name}")
        else:
            pads = add_constant(model, ends.T.ravel(), f"{node.name}/{name}/ends")
            padded = put_before(model, node, "Pad", [stored, pads, zero], wider, name, zero.dtype)
        inputs, axis = [padded, scale, zero], int_of(pair, "axis", 1)
        real = put_before(model, node, "DequantizeLinear", inputs, wider, f"{name}/real", axis=axis)
        node.replace_input_with(index, real)
        if not pair.outputs[0].uses():
            remove_unread(pair)
            if array is not None and not stored.uses():
                del model.graph.initializers[str(stored.name)]


def with_quick_gelu(model: ir.Model) -> ir.Model:
    """Return a copy with QuickGelu for every SiLU after a DequantizeLinear, or the model itself."""
    return rewritten_copy(model, _silu_after_integers, _fuse)


def _silu_after_integers(node: ir.Node) -> tuple[ir.Node, ir.Node] | None:
    return silu_of(node.outputs[0]) if node.op_type == "DequantizeLinear" and not node.domain else None


def _fuse(model: ir.Model, node: ir.Node, silu: tuple[ir.Node, ir.Node]) -> None:
    x, product = node.outputs[0], silu[1]
    fused = ir.node("QuickGelu", [x], attributes={"alpha": 1.0}, domain=DOMAIN, name=product.name)
    replace_node(product, fused)
    model.opset_imports.setdefault(DOMAIN, 1)


def with_prelu_written_out(model: ir.Model) -> ir.Model:
    """Return a copy with float32 PRelus of at least LEAST_ELEMENTS written out, or the model itself."""
    return rewritten_copy(model, _is_slow, _write_out)


def _is_slow(node: ir.Node) -> bool:
    if node.op_type != "PRelu" or node.domain:
        return False
    x = node.inputs[0]
    dims = static_dims(x)
    return dims is not None and x is not None and str(x.dtype) == "FLOAT" and prod(dims) >= LEAST_ELEMENTS


def _write_out(model: ir.Model, node: ir.Node, is_slow: bool) -> None:
    x, slope = node.inputs
    dims = static_dims(x) or ()
    above = put_before(model, node, "Relu", [x], dims, "above")
    negated = put_before(model, node, "Neg", [x], dims, "negated")
    below = put_before(model, node, "Relu", [negated], dims, "below")
    scaled = put_before(model, node, "Mul", [below, slope], dims, "scaled")
    replace_node(node, new_node(node, "Sub", [above, scaled]))


def with_older_opset(model: ir.Model) -> ir.Model:
    """Return a copy of the model with opset 20, or the model itself if a node would change in it."""
    return with_opset(model, OLDER_OPSET) or model
