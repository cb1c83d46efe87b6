"""Values that are held as integers: the form that a node gets, and conversions between forms.

A float of the ONNX graph may be held as int8 with a scale (``Value.quantization``). Integer kernels read
it directly; for nodes that read floats it is dequantized once, for the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_tflite.emitter import Emitter
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.integer import IntegerPlan
from edgekit_tflite.integer_rules import Form
from edgekit_tflite.layout import Perm, Shape
from edgekit_tflite.pairs import PAIR
from edgekit_tflite.values import Value

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


class StoredValues(Emitter):
    """Operands of a node: floats, or the integers that they are held as."""

    def __init__(self, precision: str) -> None:
        super().__init__(precision)
        self.plan = IntegerPlan()
        self.form: Form | None = None
        self.table: TensorQuantization | None = None
        self.reads_integers = False
        self.requantized_nodes: list[tuple[str, str]] = []
        self._converted: dict[tuple[int, str], Value] = {}

    def begin(self, node: ir.Node) -> None:
        self.node = node
        form = self.plan.forms.get(node)
        self.table = form.output if form is not None and form.table else None
        self.form = form if self.table is None else None
        self.reads_integers = form is not None or node.op_type in PAIR

    @property
    def computes_on_integers(self) -> bool:
        return self.form is not None

    @property
    def is_taken(self) -> bool:
        """Return whether the node being lowered is fused into the previous one."""
        return self.node in self.plan.fused

    # Between forms

    def real(self, x: Value) -> Value:
        """Convert ``x`` to float32."""
        if x.quantization is None or x.dtype == "float32":
            return x
        if x.const is not None:
            return self.constant(dequantized(x.const, x.quantization))
        key = (x.tensor, "float32")
        if key not in self._converted:
            result = self.new(x.shape, "float32", x.perm)
            self._converted[key] = self.emit("DEQUANTIZE", [replace(x, view=None)], result)
        return replace(self._converted[key], shape=x.shape, perm=x.perm, columns=x.columns)

    def own_real(self, x: Value) -> Value:
        """Convert ``x`` to float32 for one reader only: a table begins with its own DEQUANTIZE."""
        if x.const is not None or x.quantization is None:
            return self.real(x)
        result = self.new(x.shape, "float32", x.perm)
        return replace(self.emit("DEQUANTIZE", [x], result), columns=x.columns)

    def quantized(self, x: Value, quantization: TensorQuantization) -> Value:
        """Quantize ``x``, float32, to int8."""
        return self.emit("QUANTIZE", [x], self.new(x.shape, "int8", x.perm, quantization))

    def signed(self, x: Value) -> Value:
        """Convert ``x`` to int8: uint8 less 128."""
        if x.dtype != "uint8" or x.quantization is None:
            return x
        quantization = shifted(x.quantization, -128)
        if x.const is not None:
            array = (x.const.astype(np.int16) - 128).astype(np.int8)
            return replace(self.constant(array), quantization=quantization)
        return self.converted(x, "int8", quantization)

    def converted(self, x: Value, dtype: str, quantization: TensorQuantization) -> Value:
        """Convert ``x`` to other integers by QUANTIZE."""
        key = (x.tensor, f"{dtype} {quantization}")
        if key not in self._converted:
            self._converted[key] = self.emit("QUANTIZE", [x], self.new(x.shape, dtype, x.perm, quantization))
        return replace(self._converted[key], shape=x.shape, perm=x.perm, columns=x.columns)

    def requantized(self, x: Value, quantization: TensorQuantization) -> Value:
        """Requantize ``x``, int8 or int16, to int8 by another scale; the report counts it."""
        if x.quantization == quantization:
            return x
        new = (x.tensor, f"int8 {quantization}") not in self._converted
        result = self.converted(x, "int8", quantization)
        if new and self.node is not None:
            assert x.quantization is not None
            reason = f"{_words(x.quantization)} to {_words(quantization)}"
            self.requantized_nodes.append((node_name(self.node), reason))
        return result

    # What the kernel of the node being lowered is given

    def result(self, shape: Shape, perm: Perm, like: Value | None = None) -> Value:
        """Create the node's output value: float32 (or like ``like``), or integers by the plan's scale."""
        if self.form is not None and self.form.output is not None:
            return self.new(shape, self.form.dtype, perm, self.form.output)
        if like is None:
            return self.new(shape, "float32", perm)
        return self.new(shape, like.dtype, perm, like.quantization)

    def kernel(self, weights: Value, order: Sequence[int], axis: int, shape: Shape | None = None) -> int:
        """Return the tensor of a constant by which a node multiplies.

        Args:
            weights: Float, or int8 with one scale or one for each index of an axis.
        """
        assert weights.const is not None
        stored = weights.const.transpose(order)
        stored = stored if shape is None else stored.reshape(shape)
        if weights.quantization is None:
            return self.weights(stored)
        scale = weights.quantization.scale
        quantization = TensorQuantization(scale, (0,) * len(scale), axis if len(scale) > 1 else 0)
        placed = self.place(stored, quantization)
        if self.form is not None or self.precision == "int8-dynamic":
            return placed
        full = self.new(stored.shape, "float32")  # XNNPACK folds it when it packs the weights
        self.emit_op("DEQUANTIZE", (placed,), (full.tensor,), {})
        return full.tensor

    def keeps(self, x: Value) -> bool:
        """Check whether the node being lowered reads its int8 weights as stored, at a weight precision."""
        if self.precision not in ("int8-weights", "int8-dynamic") or self.node is None or x.const is None:
            return False
        return self.node.op_type in ("Conv", "Gemm", "MatMul") and x.dtype == "int8"

    def bias(self, values: Value | None, channels: int, x: Value, weights: Value) -> int:
        """Return the tensor of a constant bias, or of zeros; int32 by s_x * s_w for integers."""
        if x.quantization is None or weights.quantization is None:
            floats: Array = np.zeros(channels, np.float32)
            if values is not None and values.const is not None:
                floats = np.broadcast_to(np.asarray(self.real(values).const, np.float32).ravel(), (channels,))
            return self.place(np.ascontiguousarray(floats))
        scale = np.float64(x.quantization.scale[0]) * np.asarray(weights.quantization.scale, np.float64)
        scale = scale.astype(np.float32)
        quantization = TensorQuantization(tuple(map(float, scale)), (0,) * scale.size, 0)
        return self.place(self._bias_integers(values, channels, scale), quantization)

    def fitted(self, x: Value, weights: Value, bias: Value | None) -> Value:
        """Return ``weights`` with a scale for each output channel in which its bias fits 32 bits.

        Only a channel without weights may get another scale, and only such a channel needs one: its scale is
        some minimum, too small for its bias.

        Raises:
            Inexpressible: the bias of a channel with nonzero weights does not fit 32 bits.
        """
        scheme = weights.quantization
        if scheme is None or x.quantization is None or bias is None or bias.const is None:
            return weights
        assert weights.const is not None
        scale = np.asarray(scheme.scale, np.float64)
        limit = 2**31 - 1 - weights.size // scale.size * 2**15  # the sum is added to it in 32 bits
        needed = (
            np.abs(np.asarray(self.real(bias).const, np.float64).ravel()) / x.quantization.scale[0] / limit
        )
        if np.all(needed <= scale):
            return weights
        others = tuple(axis for axis in range(weights.rank) if axis != scheme.axis)
        if scale.size == 1 or np.any(weights.const.any(axis=others) & (needed > scale)):
            raise Inexpressible("its bias does not fit 32 bits in steps of input scale x weight scale")
        raised = np.maximum(scale, needed).astype(np.float32)
        return replace(weights, quantization=replace(scheme, scale=tuple(map(float, raised))))

    def _bias_integers(self, values: Value | None, channels: int, scale: Array) -> Array:
        if values is None or values.const is None:
            return np.zeros(channels, np.int32)
        scheme = values.quantization
        whole_steps = scheme is not None and values.dtype == "int32" and not any(scheme.zero_point)
        if scheme is not None and whole_steps and np.allclose(scheme.scale, scale, rtol=1e-5, atol=0):
            return np.broadcast_to(values.const.ravel(), (channels,)).astype(np.int32)
        real = np.broadcast_to(np.asarray(self.real(values).const, np.float64).ravel(), (channels,))
        return np.rint(real / scale).astype(np.int32)


def dequantized(stored: Array, quantization: TensorQuantization) -> Array:
    """Return float32 of stored integers; one scale, or one for each index of ``quantization.axis``."""
    shape = [1] * stored.ndim
    if len(quantization.scale) > 1:
        shape[quantization.axis] = -1
    scale = np.asarray(quantization.scale, np.float32).reshape(shape)
    zero_point = np.asarray(quantization.zero_point, np.int64).reshape(shape)
    if stored.dtype == np.int8 and not zero_point.any():
        return stored * scale
    return np.asarray((stored.astype(np.int64) - zero_point).astype(np.float32) * scale, np.float32)


def shifted(quantization: TensorQuantization, amount: int) -> TensorQuantization:
    """Return the quantization of the same reals, stored ``amount`` higher."""
    return replace(quantization, zero_point=tuple(z + amount for z in quantization.zero_point))


def _words(quantization: TensorQuantization) -> str:
    return f"scale {quantization.scale[0]:.6g}, zero point {quantization.zero_point[0]}"
