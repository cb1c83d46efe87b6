"""Recurrent networks: an LSTM over a sequence.

Source: the inputs as tensorflow/lite/kernels/unidirectional_sequence_lstm.cc numbers them.
"""

from __future__ import annotations

import numpy as np

from edgekit.tensor_spec import Array
from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import need_rank, reads

WEIGHTS, RECURRENT, PEEPHOLES, BIASES, PROJECTION, STATES = 1, 5, 9, 12, 16, (18, 19)
"""Where each group of inputs begins; four gates each, in the order input, forget, cell, output."""
ONNX_GATES = (0, 3, 1, 2)
"""TFLite's gates in ONNX's order: input, output, forget, cell."""
STATE = "one of its LSTMs keeps its state between runs; in ONNX each run begins at zero"


@reads("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(g: OnnxGraph, op: Op) -> None:
    """LSTM with tanh, from a state of zeros; not what has a projection, peepholes or normalized gates."""
    x, out, options = op.inputs[0], op.outputs[0], op.options
    shape = need_rank(g, x, 3)
    left_out = [*range(PEEPHOLES, BIASES), *range(PROJECTION, STATES[0]), *range(STATES[1] + 1, 24)]
    if not all(map(g.is_left_out, left_out)):
        raise UnreadableError(
            op, "it has a projection, peepholes or normalized gates, which ONNX's LSTM does not support"
        )
    if options["fused_activation_function"] != "TANH" or options["cell_clip"] or options["proj_clip"]:
        raise UnreadableError(op, "it has another activation than tanh, or clips its cells")
    for position in STATES:
        state = -1 if g.is_left_out(position) else op.inputs[position]
        content = None if state < 0 else g.content(state)
        if state >= 0 and state not in g.variables and (content is None or np.any(content)):
            raise UnreadableError(op, "its first state is not zero")
        if state in g.variables:
            g.notes[STATE] = None
    w, r = (_gates(g, start) for start in (WEIGHTS, RECURRENT))
    if g.is_dynamic_range(x, op.inputs[WEIGHTS]):
        raise UnreadableError(op, "it multiplies floats with integer weights; export it in float")
    units = w.shape[1] // 4
    if w.shape != (1, 4 * units, shape[2]) or r.shape != (1, 4 * units, units):
        raise UnreadableError(op, f"its weights are {w.shape} and {r.shape}, its data {shape}")
    has_biases = not all(g.is_left_out(BIASES + gate) for gate in range(4))
    b = _gates(g, BIASES) if has_biases else np.zeros((1, 4 * units), np.float32)
    if b.shape != (1, 4 * units):
        raise UnreadableError(op, f"its biases are {b.shape}, its weights {w.shape}")
    bias = np.concatenate([b, np.zeros_like(b)], axis=1)
    value = g.value(x) if options["time_major"] else g.node("Transpose", [g.value(x)], perm=(1, 0, 2))
    constants = [g.constant(array, name) for array, name in ((w, "W"), (r, "R"), (bias, "B"))]
    y = g.node("LSTM", [value, *constants], hidden_size=units)
    # T, 1, B, units: one direction
    y = g.node("Squeeze", [y, g.int64([1])])
    g.set(out, y if options["time_major"] else g.node("Transpose", [y], perm=(1, 0, 2)))


def _gates(g: OnnxGraph, start: int) -> Array:
    """Return the weights or biases of four gates, stacked in ONNX's order: 1, 4 x units ..."""
    arrays = []
    for gate in ONNX_GATES:
        if g.is_left_out(start + gate):
            raise UnreadableError(g.op, "a gate has no weights or no bias: one that is coupled to another")
        content = g.constant_floats(g.op.inputs[start + gate])
        if content is None or content.dtype != np.float32 or not content.ndim:
            raise UnreadableError(g.op, "the model computes its weights, or they are not floats")
        arrays.append(content)
    if len({array.shape for array in arrays}) > 1:
        raise UnreadableError(g.op, "the weights of its gates have different sizes")
    return np.concatenate(arrays)[None]
