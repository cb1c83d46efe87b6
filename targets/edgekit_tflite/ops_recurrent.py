"""LSTM, GRU and RNN, unrolled: sequences have a static length.

TFLite's fused kernels keep their state between runs and know no initial states; one step is a FULLY_CONNECTED
and a few element-wise operators, all of which XNNPACK takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from edgekit.lowering import Inexpressible
from edgekit.target import Array
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.ops_activation import (
    elu,
    hard_sigmoid,
    leaky_relu,
    softplus,
    softsign,
    thresholded_relu,
)
from edgekit_tflite.ops_matmul import matmul
from edgekit_tflite.ops_shape import joined, strided_slice

UNROLLED_STEPS = 256
"""Longer sequences make a program of thousands of operators."""

Activation = Callable[[Value], Value]


@dataclass(frozen=True)
class Layer:
    """What one direction computes with; gates are stacked along the last axis.

    Attributes:
        projected: x W' + the bias, [steps, batch, gates * hidden].
        recurrent: R', [hidden, gates * hidden].
        recurrent_bias: [gates * hidden], what is added behind ``recurrent`` (GRU), or None.
        state: Initial hidden state, [batch, hidden].
        activations: f, g, h. backward: whether it runs from the end.
        lengths: Steps of each sequence in the batch, where they differ.
    """

    projected: Value
    recurrent: Value
    recurrent_bias: Value | None
    state: Value
    activations: Sequence[Activation]
    backward: bool
    lengths: Array | None


def _part(b: Builder, x: Value, axis: int, begin: int, count: int) -> Value:
    start = tuple(begin if a == axis else 0 for a in range(x.rank))
    shape = tuple(count if a == axis else n for a, n in enumerate(x.shape))
    return strided_slice(b, x, start, (1,) * x.rank, shape)


def _row(b: Builder, x: Value, index: int) -> Value:
    """``x[index]``."""
    return b.reshape(_part(b, x, 0, index, 1), x.shape[1:])


def _activation(b: Builder, name: str, alpha: float | None, beta: float | None) -> Activation:
    given = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
    match name.lower():
        case "sigmoid":
            return lambda x: b.unary("LOGISTIC", x)
        case "tanh":
            return lambda x: b.unary("TANH", x)
        case "relu":
            return lambda x: b.unary("RELU", x)
        case "elu":
            return lambda x: elu(b, x, **given)
        case "hardsigmoid":
            return lambda x: hard_sigmoid(b, x, **given)
        case "leakyrelu":
            return lambda x: leaky_relu(b, x, **given)
        case "thresholdedrelu":
            return lambda x: thresholded_relu(b, x, **given)
        case "softplus":
            return lambda x: softplus(b, x)
        case "softsign":
            return lambda x: softsign(b, x)
        case "affine":
            return lambda x: b.binary(
                "ADD", b.binary("MUL", x, b.scalar(1.0 if alpha is None else alpha)), b.scalar(beta or 0.0)
            )
        case "scaledtanh":
            return lambda x: b.binary(
                "MUL",
                b.unary("TANH", b.binary("MUL", x, b.scalar(1.0 if beta is None else beta))),
                b.scalar(1.0 if alpha is None else alpha),
            )
    raise Inexpressible(f"activation {name} is none of ONNX's")


_TAKES = {"affine": 2, "scaledtanh": 2, "hardsigmoid": 2, "elu": 1, "leakyrelu": 1, "thresholdedrelu": 1}
"""Activation -> how many of activation_alpha and activation_beta it takes."""


def _activations(
    b: Builder,
    names: Sequence[str] | None,
    usual: Sequence[str],
    directions: int,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[list[Activation]]:
    """For each direction, its activations with the clip before them."""
    listed = list(names) if names else [*usual] * directions
    left_alphas, left_betas = list(alphas or ()), list(betas or ())
    made: list[Activation] = []
    for name in listed:
        takes = _TAKES.get(name.lower(), 0)
        alpha = left_alphas.pop(0) if takes >= 1 and left_alphas else None
        beta = left_betas.pop(0) if takes == 2 and left_betas else None
        inner = _activation(b, name, alpha, beta)
        made.append(inner if not clip else _clipped(b, inner, clip))
    size = len(usual)
    return [made[k * size : (k + 1) * size] for k in range(directions)]


def _clipped(b: Builder, inner: Activation, bound: float) -> Activation:
    return lambda x: inner(b.binary("MINIMUM", b.binary("MAXIMUM", x, b.scalar(-bound)), b.scalar(bound)))


def _layers(
    b: Builder,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    direction: str,
    activations: list[list[Activation]],
    bias_apart: bool,
) -> list[Layer]:
    steps, batch, _ = X.shape
    if steps > UNROLLED_STEPS:
        raise Inexpressible(
            f"it has {steps} steps, and {UNROLLED_STEPS} are unrolled at most",
            "export it with shorter sequences",
        )
    if sequence_lens is not None and sequence_lens.const is None:
        raise Inexpressible("its sequence_lens are computed by the model; they must be constant")
    lengths = None if sequence_lens is None else np.asarray(sequence_lens.const, np.int64)
    if lengths is not None and np.all(lengths == steps):
        lengths = None
    hidden, gates = R.shape[2], W.shape[1]
    made = []
    for index in range(W.shape[0]):
        weights = b.transpose(_row(b, W, index), (1, 0))
        projected = matmul(b, X, weights) if weights.const is not None else _projected(b, X, weights)
        recurrent_bias = None
        if B is not None:
            both = _row(b, B, index)
            first, second = _part(b, both, 0, 0, gates), _part(b, both, 0, gates, gates)
            if bias_apart:
                recurrent_bias = second
            else:
                first = _sum(b, first, second)
            projected = b.binary("ADD", projected, first)
        state = b.constant(np.zeros((batch, hidden), np.float32))
        if initial_h is not None:
            state = _row(b, initial_h, index)
        backward = direction == "reverse" or index == 1
        recurrent = b.transpose(_row(b, R, index), (1, 0))
        made.append(Layer(projected, recurrent, recurrent_bias, state, activations[index], backward, lengths))
    return made


def _projected(b: Builder, x: Value, weights: Value) -> Value:
    """``x @ weights`` with weights that the model computes: one product of matrices."""
    steps, batch, size = x.shape
    flat = matmul(b, b.reshape(x, (steps * batch, size)), weights)
    return b.reshape(flat, (steps, batch, weights.shape[1]))


def _sum(b: Builder, x: Value, y: Value) -> Value:
    if x.const is not None and y.const is not None:
        return b.constant(x.const + y.const)
    return b.binary("ADD", x, y)


def _product(b: Builder, x: Value, y: Value) -> Value:
    """``x @ y``; of constants here."""
    if x.const is not None and not np.any(x.const):
        return b.constant(np.zeros((x.shape[0], y.shape[1]), np.float32))
    return matmul(b, x, y)


Step = Callable[[Value, tuple[Value, ...]], tuple[Value, ...]]


def _run(b: Builder, layer: Layer, states: tuple[Value, ...], step: Step) -> tuple[Value, tuple[Value, ...]]:
    """All hidden states [steps, batch, hidden] in the order of the input, and the last states."""
    steps, batch, _ = layer.projected.shape
    order = range(steps)
    outs: dict[int, Value] = {}
    for at in reversed(order) if layer.backward else order:
        new = step(_row(b, layer.projected, at), states)
        if layer.lengths is None:
            states, outs[at] = new, new[0]
            continue
        alive = (at < layer.lengths).reshape(batch, 1)
        zero = b.constant(np.zeros((1, 1), np.float32))
        mask = b.constant(np.broadcast_to(alive, new[0].shape).copy())
        outs[at] = b.elementwise("SELECT_V2", [mask, new[0], zero])
        states = tuple(b.elementwise("SELECT_V2", [mask, n, o]) for n, o in zip(new, states, strict=True))
    rows = [b.reshape(outs[at], (1, *outs[at].shape)) for at in order]
    return joined(b, [b.to(row, rows[0].perm) for row in rows], 0), states


def _stacked(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Values side by side along a new axis."""
    wide = [b.reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts]
    return joined(b, [b.to(p, wide[0].perm) for p in wide], axis)


@overload
def _steps_first(b: Builder, x: Value, layout: int) -> Value: ...
@overload
def _steps_first(b: Builder, x: Value | None, layout: int) -> Value | None: ...
def _steps_first(b: Builder, x: Value | None, layout: int) -> Value | None:
    """Layout 1 has the batch first."""
    return x if x is None or not layout else b.transpose(x, (1, 0, 2))


def _outputs(
    b: Builder, layout: int, outs: Sequence[Value], lasts: Sequence[Sequence[Value]]
) -> tuple[Value, ...]:
    """Y [steps, directions, batch, hidden] and the last states, with the batch first where asked."""
    whole = _stacked(b, outs, 1)
    states = [_stacked(b, last, 0) for last in lasts]
    if layout:
        whole = b.transpose(whole, (2, 0, 1, 3))
        states = [b.transpose(state, (1, 0, 2)) for state in states]
    return (whole, *states)


@lower("RNN", since=14)
def rnn(
    b: Builder,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    """h' = f(x W' + h R' + b), unrolled."""
    x, initial_h = _steps_first(b, X, layout), _steps_first(b, initial_h, layout)
    functions = _activations(b, activations, ["Tanh"], W.shape[0], activation_alpha, activation_beta, clip)
    outs, lasts = [], []
    for layer in _layers(b, x, W, R, B, sequence_lens, initial_h, direction, functions, False):
        (f,) = layer.activations

        def step(
            x: Value, states: tuple[Value, ...], layer: Layer = layer, f: Activation = f
        ) -> tuple[Value, ...]:
            return (f(b.binary("ADD", x, _product(b, states[0], layer.recurrent))),)

        out, (last,) = _run(b, layer, (layer.state,), step)
        outs.append(out)
        lasts.append(last)
    return _outputs(b, layout, outs, [lasts])


@lower("LSTM", since=14)
def lstm(
    b: Builder,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    P: Value | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    """Unrolled, with peepholes, any activations, sequence_lens, input_forget; not clip."""
    if clip:
        raise Inexpressible(f"clip={clip} of an LSTM has no form in TFLite", "export it without")
    x, initial_h = _steps_first(b, X, layout), _steps_first(b, initial_h, layout)
    initial_c = _steps_first(b, initial_c, layout)
    usual = ["Sigmoid", "Tanh", "Tanh"]
    functions = _activations(b, activations, usual, W.shape[0], activation_alpha, activation_beta, None)
    outs, last_h, last_c = [], [], []
    hidden, batch = R.shape[2], x.shape[1]
    for index, layer in enumerate(
        _layers(b, x, W, R, B, sequence_lens, initial_h, direction, functions, False)
    ):
        cell = b.constant(np.zeros((batch, hidden), np.float32))
        if initial_c is not None:
            cell = _row(b, initial_c, index)
        peepholes = None if P is None else _row(b, P, index)

        def step(
            x: Value, states: tuple[Value, ...], layer: Layer = layer, peepholes: Value | None = peepholes
        ) -> tuple[Value, ...]:
            h, c = states
            f, g, bend = layer.activations
            gates = b.binary("ADD", x, _product(b, h, layer.recurrent))
            i, o, forget, new = (_part(b, gates, 1, k * hidden, hidden) for k in range(4))

            def seen(gate: Value, state: Value, k: int) -> Value:
                if peepholes is None:
                    return gate
                return b.binary(
                    "ADD", gate, b.binary("MUL", state, _part(b, peepholes, 0, k * hidden, hidden))
                )

            i = f(seen(i, c, 0))
            forget = b.binary("SUB", b.scalar(1.0), i) if input_forget else f(seen(forget, c, 2))
            made = b.binary("ADD", b.binary("MUL", forget, c), b.binary("MUL", i, g(new)))
            return b.binary("MUL", f(seen(o, made, 1)), bend(made)), made

        out, (h, c) = _run(b, layer, (layer.state, cell), step)
        outs.append(out)
        last_h.append(h)
        last_c.append(c)
    return _outputs(b, layout, outs, [last_h, last_c])


@lower("GRU", since=14)
def gru(
    b: Builder,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    """Unrolled, with any activations, sequence_lens and linear_before_reset."""
    x, initial_h = _steps_first(b, X, layout), _steps_first(b, initial_h, layout)
    usual = ["Sigmoid", "Tanh"]
    functions = _activations(b, activations, usual, W.shape[0], activation_alpha, activation_beta, clip)
    outs, lasts = [], []
    hidden = R.shape[2]
    for layer in _layers(b, x, W, R, B, sequence_lens, initial_h, direction, functions, True):

        def step(x: Value, states: tuple[Value, ...], layer: Layer = layer) -> tuple[Value, ...]:
            (h,) = states
            f, g = layer.activations
            both = _gru_product(b, layer, h, 0, 2 * hidden)
            gates = f(b.binary("ADD", _part(b, x, 1, 0, 2 * hidden), both))
            z, r = _part(b, gates, 1, 0, hidden), _part(b, gates, 1, hidden, hidden)
            if linear_before_reset:
                inner = b.binary("MUL", r, _gru_product(b, layer, h, 2 * hidden, hidden))
            else:
                inner = _gru_product(b, layer, b.binary("MUL", r, h), 2 * hidden, hidden)
            new = g(b.binary("ADD", _part(b, x, 1, 2 * hidden, hidden), inner))
            return (b.binary("ADD", b.binary("MUL", z, b.binary("SUB", h, new)), new),)

        out, (last,) = _run(b, layer, (layer.state,), step)
        outs.append(out)
        lasts.append(last)
    return _outputs(b, layout, outs, [lasts])


def _gru_product(b: Builder, layer: Layer, x: Value, begin: int, count: int) -> Value:
    """``x R'`` and the bias behind it, of some of the gates."""
    made = _product(b, x, _part(b, layer.recurrent, 1, begin, count))
    if layer.recurrent_bias is None:
        return made
    return _sum(b, made, _part(b, layer.recurrent_bias, 0, begin, count))
