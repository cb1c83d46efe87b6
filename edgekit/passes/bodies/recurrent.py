"""LSTM, step by step."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.passes.bodies.tape import Tape
from edgekit.passes.rewriting import dims_of, input_of, int_of, text_of

MOST_STEPS = 64
"""Of one direction; a step becomes 20 nodes."""
GATES = {"i": 0, "o": 1, "f": 2}
"""Input, output and forget gate: their order in W, R, B and P (ONNX LSTM-22); the cell's is last."""


def lstm(node: ir.Node) -> onnx.FunctionProto | None:
    """Of all directions and layouts, with or without biases, lengths, initial states and peepholes.

    i = s(x Wi + h Ri + Pi c + bi), f likewise, c' = f c + i tanh(x Wc + h Rc + bc),
    o = s(x Wo + h Ro + Po c' + bo), h' = o tanh(c')
    """
    x, r = dims_of(node.inputs[0]), dims_of(node.inputs[2])
    known = {"direction", "hidden_size", "layout"}
    if x is None or r is None or set(node.attributes) - known:
        return None  # other activations, clip, input_forget
    kind = node.inputs[0].dtype if node.inputs[0] is not None else None
    swapped, size = bool(int_of(node, "layout", 0)), r[2]
    steps, batch = (x[1], x[0]) if swapped else (x[0], x[1])
    if kind != ir.DataType.FLOAT or steps > MOST_STEPS or 0 in x:
        return None
    tape, direction = Tape(node), text_of(node, "direction", "forward")
    sequence = tape("Transpose", "i0", perm=[1, 0, 2]) if swapped else "i0"
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    rows: list[list[str]] = [[] for _ in range(steps)]
    ends: tuple[list[str], list[str]] = ([], [])
    for number, back in enumerate(backward):
        own = _Direction(tape, node, number, size, swapped, batch)
        hidden, cell = own.initial(5), own.initial(6)
        for step in reversed(range(steps)) if back else range(steps):
            element = tape("Gather", sequence, np.array(step, np.int64), axis=0)
            made = own.step(element, hidden, cell)
            if input_of(node, 4) is None:
                hidden, cell = made
                rows[step].append(hidden)
                continue
            # Behind the end of its own sequence a sample keeps its states, and answers zero.
            within = tape("Less", np.array([[step]], np.int32), tape.reshape("i4", (batch, 1)))
            hidden, cell = (tape("Where", within, *pair) for pair in zip(made, (hidden, cell), strict=True))
            rows[step].append(tape("Where", within, hidden, np.zeros((), np.float32)))
        for end, value in zip(ends, (hidden, cell), strict=True):
            end.append(value)
    at = 1 if swapped else 0
    pairs = [_stacked(tape, row, at) for row in rows]
    last = [_stacked(tape, end, at) for end in ends]
    return tape.body(_stacked(tape, pairs, 1 if swapped else 0), *last)


def _stacked(tape: Tape, values: list[str], axis: int) -> str:
    """Side by side along a new axis."""
    place = np.array([axis], np.int64)
    return tape("Concat", *(tape("Unsqueeze", value, place) for value in values), axis=axis)


class _Direction:
    """The weights of one direction, and one step with them."""

    def __init__(self, tape: Tape, node: ir.Node, number: int, size: int, swapped: bool, batch: int) -> None:
        self._tape, self._node, self._number = tape, node, number
        self._size, self._swapped, self._batch = size, swapped, batch
        self._w = tape("Transpose", self._own(1), perm=[1, 0])
        self._r = tape("Transpose", self._own(2), perm=[1, 0])
        bias = input_of(node, 3) is not None
        both = self._own(3) if bias else ""
        halves = (0, 4 * size), (4 * size, 8 * size)
        self._bias = tape("Add", *(tape.part(both, 0, a, b) for a, b in halves)) if bias else ""
        self._peephole = self._own(7) if input_of(node, 7) is not None else ""

    def _own(self, at: int, axis: int = 0) -> str:
        return self._tape("Gather", f"i{at}", np.array(self._number, np.int64), axis=axis)

    def initial(self, at: int) -> str:
        """State ``h`` (input 5) or ``c`` (input 6): [batch, hidden]."""
        if input_of(self._node, at) is None:
            return self._tape.constant(np.zeros((self._batch, self._size), np.float32))
        return self._own(at, 1 if self._swapped else 0)

    def step(self, x: str, hidden: str, cell: str) -> tuple[str, str]:
        """The states behind one more element of the sequence."""
        tape = self._tape
        gates = tape("Add", tape("MatMul", x, self._w), tape("MatMul", hidden, self._r))
        gates = tape("Add", gates, self._bias) if self._bias else gates
        entering, forgetting = self._gate(gates, "i", cell), self._gate(gates, "f", cell)
        new = tape("Tanh", tape.part(gates, 1, 3 * self._size, 4 * self._size))
        cell = tape("Add", tape("Mul", forgetting, cell), tape("Mul", entering, new))
        return tape("Mul", self._gate(gates, "o", cell), tape("Tanh", cell)), cell

    def _gate(self, gates: str, name: str, cell: str) -> str:
        start = GATES[name] * self._size
        made = self._tape.part(gates, 1, start, start + self._size)
        if self._peephole:
            seen = self._tape("Mul", self._tape.part(self._peephole, 0, start, start + self._size), cell)
            made = self._tape("Add", made, seen)
        return self._tape("Sigmoid", made)
