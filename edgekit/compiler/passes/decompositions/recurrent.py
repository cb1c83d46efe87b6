"""Unrolls LSTM, GRU and RNN over sequences of static length.

The whole sequence is multiplied by W at once; each step has one product with R and the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, float_of, input_of, int_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

MOST_STEPS = 256
"""Most steps of one direction; a step has up to 20 nodes."""
X, W, R, B, LENGTHS, H, C, P = range(8)
"""Inputs of an LSTM; GRU and RNN have the first six (ONNX LSTM-22, GRU-22, RNN-22)."""

Activation = Callable[[str], str]
Step = Callable[[str, tuple[str, ...]], tuple[str, ...]]
"""A row of x W' [batch, gates * hidden] and the previous states [batch, hidden] -> the next states."""
KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@dataclass(frozen=True)
class _Direction:
    """One direction of a node.

    Attributes:
        gates: The number of gates stacked in W, R and B.
        activations: f, g and h, each with the clip before it.
    """

    tape: Tape
    node: ir.Node
    number: int
    gates: int
    hidden: int
    swapped: bool
    activations: Sequence[Activation]

    def slice_of(self, index: int) -> str:
        dims = dims_of(self.node.inputs[index])
        assert dims is not None
        source = f"i{index}"
        if self.swapped and index in (H, C):
            source, dims = self.tape("Transpose", source, perm=[1, 0, 2]), (dims[1], dims[0], dims[2])
        part = self.tape.part(source, 0, self.number, self.number + 1) if dims[0] > 1 else source
        return self.tape.reshape(part, dims[1:])

    def biases(self) -> tuple[str, str] | None:
        """Return the biases of x W' and of h R', [gates * hidden] each."""
        if input_of(self.node, B) is None:
            return None
        both, size = self.slice_of(B), self.gates * self.hidden
        return self.tape.part(both, 0, 0, size), self.tape.part(both, 0, size, 2 * size)

    def bias(self) -> str | None:
        """Return the sum of the two biases, which is all that most gates need."""
        both = self.biases()
        return None if both is None else self.tape("Add", *both)

    def recurrent(self, begin: int, end: int) -> Callable[[str, str | None], str]:
        """Compute ``x R'`` of the gates from ``begin`` to ``end``, plus a bias."""
        rows = self.slice_of(R)
        if (begin, end) != (0, self.gates):
            rows = self.tape.part(rows, 0, begin * self.hidden, end * self.hidden)
        columns = self.tape("Transpose", rows, perm=[1, 0])
        return lambda x, bias: self.tape("Gemm", x, columns, *([] if bias is None else [bias]))

    def gate(self, x: str, number: int, count: int = 1, axis: int = 1) -> str:
        return self.tape.part(x, axis, number * self.hidden, (number + count) * self.hidden)


@decomposes("LSTM")
def lstm(node: ir.Node) -> onnx.GraphProto | None:
    """i = f(x Wi + h Ri + Pi c + bi), forget likewise or 1 - i, c' = forget c + i g(x Wc + h Rc + bc),
    o = f(x Wo + h Ro + Po c' + bo), h' = o h(c')."""
    if float_of(node, "clip", 0.0):
        raise Inexpressible("an LSTM with clip is not supported", "export it without clip")
    return _unrolled(node, 4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step)


@decomposes("GRU")
def gru(node: ir.Node) -> onnx.GraphProto | None:
    """z, r = f(x W + h R + b), new = g(x Wh + r (h Rh + bh)) or g(x Wh + (r h) Rh + bh),
    h' = z (h - new) + new."""
    return _unrolled(node, 3, ("Sigmoid", "Tanh"), _gru_step)


@decomposes("RNN")
def rnn(node: ir.Node) -> onnx.GraphProto | None:
    """h' = f(x W + h R + b)."""
    return _unrolled(node, 1, ("Tanh",), _rnn_step)


def _lstm_step(layer: _Direction) -> tuple[str | None, Step]:
    tape, (f, g, bend) = layer.tape, layer.activations
    product = layer.recurrent(0, 4)
    peepholes = layer.slice_of(P) if input_of(layer.node, P) is not None else None
    coupled = bool(int_of(layer.node, "input_forget", 0))

    def gate(gates: str, number: int, cell: str) -> str:
        gate_input = layer.gate(gates, number)
        if peepholes is not None:  # in the order i, o, f, as the gates
            gate_input = tape("Add", gate_input, tape("Mul", layer.gate(peepholes, number, axis=0), cell))
        return f(gate_input)

    def step(row: str, states: tuple[str, ...]) -> tuple[str, ...]:
        hidden, cell = states
        gates = tape("Add", row, product(hidden, None))
        entering = gate(gates, 0, cell)
        one = np.ones((), _dtype(layer.node))
        forget = tape("Sub", one, entering) if coupled else gate(gates, 2, cell)
        cell = tape("Add", tape("Mul", forget, cell), tape("Mul", entering, g(layer.gate(gates, 3))))
        return tape("Mul", gate(gates, 1, cell), bend(cell)), cell

    return layer.bias(), step


def _gru_step(layer: _Direction) -> tuple[str | None, Step]:
    tape, (f, g) = layer.tape, layer.activations
    both, new = layer.recurrent(0, 2), layer.recurrent(2, 3)
    biases = layer.biases()
    both_bias = None if biases is None else layer.gate(biases[1], 0, 2, axis=0)
    new_bias = None if biases is None else layer.gate(biases[1], 2, axis=0)
    resets_last = bool(int_of(layer.node, "linear_before_reset", 0))

    def step(row: str, states: tuple[str, ...]) -> tuple[str, ...]:
        (hidden,) = states
        gates = f(tape("Add", layer.gate(row, 0, 2), both(hidden, both_bias)))
        update, reset = layer.gate(gates, 0), layer.gate(gates, 1)
        if resets_last:
            inner = tape("Mul", reset, new(hidden, new_bias))
        else:
            inner = new(tape("Mul", reset, hidden), new_bias)
        candidate = g(tape("Add", layer.gate(row, 2), inner))
        return (tape("Add", tape("Mul", update, tape("Sub", hidden, candidate)), candidate),)

    return None if biases is None else biases[0], step


def _rnn_step(layer: _Direction) -> tuple[str | None, Step]:
    product, (f,) = layer.recurrent(0, 1), layer.activations

    def step(row: str, states: tuple[str, ...]) -> tuple[str, ...]:
        return (f(layer.tape("Add", row, product(states[0], None))),)

    return layer.bias(), step


def _unrolled(
    node: ir.Node, gates: int, defaults: Sequence[str], cell: Callable[[_Direction], tuple[str | None, Step]]
) -> onnx.GraphProto | None:
    x, r, source = dims_of(node.inputs[X]), dims_of(node.inputs[R]), node.inputs[X]
    kind = None if source is None else source.dtype
    if x is None or r is None or kind is None or kind not in KINDS or 0 in x:
        return None
    swapped, hidden = bool(int_of(node, "layout", 0)), r[2]
    steps, batch = (x[1], x[0]) if swapped else (x[0], x[1])
    if steps > MOST_STEPS:
        reason = f"it has {steps} steps; at most {MOST_STEPS} are unrolled"
        raise Inexpressible(reason, "export it with shorter sequences")
    tape = Tape(node)
    sequence = tape("Transpose", "i0", perm=[1, 0, 2]) if swapped else "i0"
    flat = tape.reshape(sequence, (steps * batch, x[2]))
    functions = _activations(tape, node, defaults, r[0])
    wholes: list[str] = []
    ends: list[tuple[str, ...]] = []
    for number in range(r[0]):
        layer = _Direction(tape, node, number, gates, hidden, swapped, functions[number])
        bias, step = cell(layer)
        weights = tape("Transpose", layer.slice_of(W), perm=[1, 0])
        rows = tape("Gemm", flat, weights, *([] if bias is None else [bias]))
        zeros = np.zeros((batch, hidden), kind.numpy())
        states = tuple(
            layer.slice_of(k) if input_of(node, k) is not None else tape.constant(zeros)
            for k in ((H, C) if node.op_type == "LSTM" else (H,))
        )
        hidden_at: dict[int, str] = {}
        back = number == 1 or text_of(node, "direction", "forward") == "reverse"
        for k in reversed(range(steps)) if back else range(steps):
            row = tape.part(rows, 0, k * batch, (k + 1) * batch) if steps > 1 else rows
            new = step(row, states)
            within = _within(tape, node, k, batch)
            if within is None:
                states, hidden_at[k] = new, new[0]
                continue
            # After the end of its sequence a sample keeps its states and outputs zero.
            states = tuple(tape("Where", within, n, o) for n, o in zip(new, states, strict=True))
            hidden_at[k] = tape("Where", within, new[0], np.zeros((), kind.numpy()))
        stacked = tape("Concat", *(hidden_at[k] for k in range(steps)), axis=0) if steps > 1 else hidden_at[0]
        wholes.append(tape.reshape(stacked, (steps, 1, batch, hidden)))
        ends.append(states)
    whole = _concat(tape, wholes, 1)
    lasts = [
        _concat(tape, [tape.reshape(end, (1, batch, hidden)) for end in same], 0)
        for same in zip(*ends, strict=True)
    ]
    if swapped:
        whole = tape("Transpose", whole, perm=[2, 0, 1, 3])
        lasts = [tape("Transpose", last, perm=[1, 0, 2]) for last in lasts]
    return tape.body(whole, *lasts)


def _within(tape: Tape, node: ir.Node, index: int, batch: int) -> str | Array | None:
    """Return a mask of the samples that have a step ``index``, [batch, 1], or None if all have."""
    lengths = input_of(node, LENGTHS)
    if lengths is None:
        return None
    length_array = array_of(lengths)
    if length_array is None:
        return tape("Less", np.array([[index]], np.int32), tape.reshape(f"i{LENGTHS}", (batch, 1)))
    return None if np.all(length_array > index) else (length_array > index).reshape(batch, 1)


def _concat(tape: Tape, values: Sequence[str], axis: int) -> str:
    return tape("Concat", *values, axis=axis) if len(values) > 1 else values[0]


def _dtype(node: ir.Node) -> np.dtype[Any]:
    return node.inputs[X].dtype.numpy()  # type: ignore[union-attr]


_PLAIN = {name.lower(): name for name in ("Sigmoid", "Tanh", "Relu", "Softplus", "Softsign")}
_ALPHA = {name.lower(): name for name in ("Elu", "LeakyRelu", "ThresholdedRelu")}


def _activations(
    tape: Tape, node: ir.Node, defaults: Sequence[str], directions: int
) -> list[list[Activation]]:
    """Return the activations of each direction, with the clip before them.

    ``activation_alpha`` and ``activation_beta`` hold numbers only for those activations that take them.
    """
    attribute = node.attributes.get("activations")
    names = list(attribute.as_strings()) if attribute is not None else [*defaults] * directions
    alphas, betas = (
        list(node.attributes[name].as_floats()) if name in node.attributes else []
        for name in ("activation_alpha", "activation_beta")
    )
    clip, functions = float_of(node, "clip", 0.0), []
    for name in names:
        kind = name.lower()
        takes = 0 if kind in _PLAIN else 1 if kind in _ALPHA else 2
        alpha = alphas.pop(0) if takes >= 1 and alphas else None
        beta = betas.pop(0) if takes == 2 and betas else None
        functions.append(_clipped(tape, _activation(tape, node, name, alpha, beta), clip, _dtype(node)))
    return [functions[k * len(defaults) : (k + 1) * len(defaults)] for k in range(directions)]


def _activation(tape: Tape, node: ir.Node, name: str, alpha: float | None, beta: float | None) -> Activation:
    kind = name.lower()
    numbers = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
    if kind in _PLAIN or kind in _ALPHA or kind == "hardsigmoid":
        op = _PLAIN.get(kind) or _ALPHA.get(kind) or "HardSigmoid"
        return lambda x: tape(op, x, **numbers)
    dtype = _dtype(node)
    a, b = np.array(1.0 if alpha is None else alpha, dtype), np.array(beta or 0.0, dtype)
    if kind == "affine":
        return lambda x: tape("Add", tape("Mul", x, a), b)
    if kind == "scaledtanh":
        inner = np.array(1.0 if beta is None else beta, dtype)
        return lambda x: tape("Mul", tape("Tanh", tape("Mul", x, inner)), a)
    raise Inexpressible(f"activation {name} is not defined by ONNX")


def _clipped(tape: Tape, activation: Activation, bound: float, dtype: np.dtype[Any]) -> Activation:
    if not bound:
        return activation
    low, high = np.array(-bound, dtype), np.array(bound, dtype)
    return lambda x: activation(tape("Clip", x, low, high))
