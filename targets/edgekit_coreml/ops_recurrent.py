"""LSTM; another form of it, GRU and RNN are written out step by step (compiler.passes.decompositions)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_coreml.builder import NARROW_IOS, Builder, Value, lower


def _constant(value: Value | None, description: str) -> Array | None:
    if value is None:
        return None
    if value.const is None:
        raise Inexpressible(f"the model computes its {description}; they must be constant")
    return np.asarray(value.const, np.float32)


def _batch_first(b: Builder, state: Value | None, directions: int, batch: int, hidden: int) -> Value:
    """Return a state [directions, batch, hidden] as [batch, directions * hidden]; zeros if there is none."""
    if state is None:
        return b.constant(np.zeros((batch, directions * hidden), np.float32))
    return b.reshape(b.transpose(state, (1, 0, 2)), (batch, directions * hidden))


def _refuse_options(
    clip: float | None,
    layout: int,
    activations: Sequence[str] | None,
    defaults: Sequence[str],
    sequence_lens: Value | None,
    steps: int,
) -> None:
    if clip:
        raise Inexpressible(f"clip={clip} is not supported by Core ML")
    if layout:
        raise Inexpressible("layout=1 is not supported by Core ML", "export it with layout 0")
    if activations and [a.lower() for a in activations] != [*defaults]:
        raise Inexpressible(f"activations {list(activations)} are not {', '.join(defaults)}")
    if sequence_lens is not None and (sequence_lens.const is None or np.any(sequence_lens.const != steps)):
        raise Inexpressible("sequence_lens that differ from the length are not supported by Core ML")


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
) -> tuple[Value, Value, Value]:
    """lstm, in one direction or both."""
    weights, recurrent = _constant(W, "weights"), _constant(R, "weights")
    biases = _constant(B, "biases")
    assert weights is not None
    assert recurrent is not None
    directions, hidden = weights.shape[0], recurrent.shape[2]
    steps, batch, _ = X.shape
    defaults = ["sigmoid", "tanh", "tanh"] * directions
    _refuse_options(clip, layout, activations, defaults, sequence_lens, steps)
    if P is not None or input_forget:
        raise Inexpressible("peepholes and input_forget are not supported")
    order = _order(
        (0, 2, 1, 3), hidden
    )  # ONNX: input, output, forget, cell. MIL: input, forget, output, cell
    options: dict[str, Value] = {}
    for index, suffix in zip(range(directions), ("", "_back"), strict=False):
        options[f"weight_ih{suffix}"] = b.constant(weights[index][order])
        options[f"weight_hh{suffix}"] = b.constant(recurrent[index][order])
        if biases is not None:
            both = biases[index][: 4 * hidden] + biases[index][4 * hidden :]
            options[f"bias{suffix}"] = b.constant(both[order])
    with b.in_float32() if b.ios < NARROW_IOS else nullcontext():
        out, last_h, last_c = b.emit_many(
            "lstm", x=X, initial_h=_batch_first(b, initial_h, directions, batch, hidden),
            initial_c=_batch_first(b, initial_c, directions, batch, hidden), direction=direction,
            output_sequence=True, **options,
        )  # fmt: skip
    sequence = b.transpose(b.reshape(out, (steps, batch, directions, hidden)), (0, 2, 1, 3))
    states = (
        b.transpose(b.reshape(state, (batch, directions, hidden)), (1, 0, 2)) for state in (last_h, last_c)
    )
    return (sequence, *states)  # type: ignore[return-value]


def _order(gates: Sequence[int], hidden: int) -> Array:
    """Return the row indices that put a stack of gates into another order of the gates."""
    return np.concatenate([np.arange(gate * hidden, (gate + 1) * hidden) for gate in gates])
