"""Change of the layout in which a finished model takes an input.

x [1,3,h,w] -> TRANSPOSE -> [1,h,w,3] -> CONV_2D        x [1,h,w,3] -> CONV_2D
x [1,3,h,w] -> QUANTIZE -> TRANSPOSE -> CONV_2D         x [1,h,w,3] -> QUANTIZE -> CONV_2D
x [1,3,h,w] -> RESHAPE                                  x [1,h,w,3] -> TRANSPOSE -> RESHAPE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from edgekit_tflite.records import Record
from edgekit_tflite.schema import NUMBERS

ELEMENTWISE = ("QUANTIZE", "DEQUANTIZE", "CAST")
"""Operators of one input that may change its layout before the transpose."""


def transpose_input(model: Any, index: int, order: Sequence[int], content: Callable[[int], Array]) -> None:
    """Let the model take an input as ``x.transpose(order)``; its outputs do not change."""
    editor = _Editor(model, tuple(order), content)
    source = int(editor.subgraph.inputs[index])
    transposed = editor.transposed(source)
    name, tensors = editor.subgraph.tensors[source].name, editor.subgraph.tensors
    tensors[transposed].name, tensors[source].name = name, name + b"/transposed"
    editor.subgraph.inputs = _replaced(editor.subgraph.inputs, source, transposed)
    for signature in model.signatureDefs or []:
        for entry in signature.inputs:
            entry.tensorIndex = transposed if entry.tensorIndex == source else entry.tensorIndex


class _Editor:
    def __init__(self, model: Any, order: tuple[int, ...], content: Callable[[int], Array]) -> None:
        self.model, self.subgraph = model, model.subgraphs[0]
        self.order, self.content = order, content

    def transposed(self, source: int) -> int:
        """Return a tensor that holds another one transposed, whose readers are changed to read it."""
        tensors = self.subgraph.tensors
        tensor = tensors[source]
        axes = [int(tensor.shape[axis]) for axis in self.order]
        fields = {**tensor.fields(), "shape": np.array(axes, np.int32), "shapeSignature": None}
        tensors.append(Record("Tensor", **fields))
        transposed, readers = len(tensors) - 1, []
        for op in list(self.subgraph.operators):
            if source not in op.inputs:
                continue
            if self._code(op) == "TRANSPOSE" and self._constant(op.inputs[1]) == self.order:
                self.subgraph.operators.remove(op)
                self._read(int(op.outputs[0]), transposed)
            elif self._code(op) in ELEMENTWISE:
                op.inputs = _replaced(op.inputs, source, transposed)
                result = int(op.outputs[0])
                op.outputs = np.array([self.transposed(result)], np.int32)
            else:
                readers.append(op)
        if readers or source in self.subgraph.outputs:
            operators = self.subgraph.operators
            place = operators.index(readers[0]) if readers else len(operators)
            operators.insert(place, self._transpose(transposed, source))
        return transposed

    def _read(self, before: int, after: int) -> None:
        for op in self.subgraph.operators:
            op.inputs = _replaced(op.inputs, before, after)
        self.subgraph.outputs = _replaced(self.subgraph.outputs, before, after)
        for signature in self.model.signatureDefs or []:
            for entry in signature.outputs:
                entry.tensorIndex = after if entry.tensorIndex == before else entry.tensorIndex

    def _transpose(self, source: int, target: int) -> Record:
        inverse = np.argsort(self.order).astype(np.int32)
        self.model.buffers.append(Record("Buffer", data=inverse.view(np.uint8)))
        kind = NUMBERS["TensorType"]["INT32"]
        shape, number = np.array(inverse.shape, np.int32), len(self.model.buffers) - 1
        name = self.subgraph.tensors[target].name + b"/order"
        self.subgraph.tensors.append(
            Record("Tensor", name=name, shape=shape, type=kind, hasRank=True, buffer=number)
        )
        return Record(
            "Operator",
            opcodeIndex=self._transpose_opcode(),
            inputs=np.array([source, len(self.subgraph.tensors) - 1], np.int32),
            outputs=np.array([target], np.int32),
            builtinOptionsType=NUMBERS["BuiltinOptions"]["TransposeOptions"],
            builtinOptions=Record("TransposeOptions"),
        )

    def _transpose_opcode(self) -> int:
        number = NUMBERS["BuiltinOperator"]["TRANSPOSE"]
        for index, entry in enumerate(self.model.operatorCodes):
            if entry.builtinCode == number:
                return index
        transposed = Record("OperatorCode", builtinCode=number, deprecatedBuiltinCode=number, version=1)
        self.model.operatorCodes.append(transposed)
        return len(self.model.operatorCodes) - 1

    def _code(self, op: Any) -> str:
        number = self.model.operatorCodes[op.opcodeIndex].builtinCode
        return next((name for name, value in NUMBERS["BuiltinOperator"].items() if value == number), "")

    def _constant(self, index: int) -> tuple[int, ...]:
        """Return the values of a constant of int32, or () of another tensor."""
        tensor = self.subgraph.tensors[index]
        if tensor.type != NUMBERS["TensorType"]["INT32"] or not tensor.buffer:
            return ()
        return tuple(int(x) for x in np.ascontiguousarray(self.content(tensor.buffer)).view(np.int32))


def _replaced(indices: Array, before: int, after: int) -> Array:
    return np.where(indices == before, after, indices).astype(np.int32)
