"""Reference executor for TensorRT files without TensorRT: ONNX Runtime on the CPU, with the same roundings.

ONNX Runtime computes float16 graphs in float32 and drops the roundings between: 300 * 300 overflows in
float16, not there (measured on 1.31.1). So each float16 value of the file is rounded by two casts, which
ONNX Runtime keeps. That is float16 storage with float32 sums, like tensor cores; a Jetson's kernels sum in
another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_tensorrt.run import MODEL_FILE

ENGINE = EngineInfo()
FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16


def engine_version() -> str:
    """Return name and version of the reference executor."""
    from importlib.metadata import version

    return f"ONNX Runtime {version('onnxruntime')} for TensorRT"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> StandIn:
    """Load ``model.onnx``."""
    return StandIn(ir.load(files[MODEL_FILE]), str(options["precision"]))


class StandIn:
    """Runner of a loaded file, in place of TensorRT."""

    device = "CPU"
    stands_in_for = "a Jetson"

    def __init__(self, model: ir.Model, precision: str) -> None:
        self.precision = precision
        self._model = with_roundings(model)
        self._read = {str(value.name) for value in model.graph.inputs}
        self._reference: Reference | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        feeds = {name: array for name, array in feeds.items() if name in self._read}
        shapes = {name: array.shape for name, array in feeds.items()}
        if self._reference is None or shapes != self._shapes:
            self._reference, self._shapes = Reference(self._at(shapes)), shapes
        return self._reference.run(feeds)

    def _at(self, shapes: Mapping[str, tuple[int, ...]]) -> ir.Model:
        if all(static_dims(value) is not None for value in self._model.graph.inputs):
            return self._model
        model = self._model.clone()
        for value in model.graph.inputs:
            value.shape = ir.Shape(shapes[str(value.name)])
        for value in model.graph.outputs:
            value.shape = None
        infer_shapes(model)
        return model

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._reference = None


def with_roundings(model: ir.Model) -> ir.Model:
    """Return a copy that computes in float32 and rounds where the model has float16.

    node -> y (float16)   =>   node -> y (float32) -> Cast -> Cast -> y (float32)
    """
    rounded = model.clone()
    for value in rounded.graph.initializers.values():
        array = array_of(value)
        if array is not None and array.dtype == np.float16:
            value.const_value = ir.tensor(array.astype(np.float32), name=value.name)
            value.type = ir.TensorType(FLOAT)
    for node in list(rounded.graph.all_nodes()):
        for value in node.outputs:
            if value.dtype != HALF:
                continue
            if node.op_type == "Cast":
                node.attributes["to"] = ir.AttrInt64("to", int(FLOAT))
            value.type = ir.TensorType(FLOAT)
            uses = list(value.uses())
            narrow = _cast(value, HALF, f"{value.name}/narrow")
            wide = _cast(narrow.outputs[0], FLOAT, f"{value.name}/wide")
            assert node.graph is not None
            node.graph.insert_after(node, [narrow, wide])
            for use in uses:
                use.node.replace_input_with(use.idx, wide.outputs[0])
            for index, output in enumerate(rounded.graph.outputs):
                if output is value:  # it keeps its name and type
                    value.name, narrow.outputs[0].name = f"{value.name}/float", value.name
                    rounded.graph.outputs[index] = narrow.outputs[0]
    for graph_input in rounded.graph.inputs:
        uses = list(graph_input.uses())
        if graph_input.dtype == HALF and uses:
            wide = _cast(graph_input, FLOAT, f"{graph_input.name}/wide")
            rounded.graph.insert_before(rounded.graph[0], wide)
            for use in uses:
                use.node.replace_input_with(use.idx, wide.outputs[0])
    return rounded


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    cast = ir.node("Cast", [value], {"to": dtype}, name=name, num_outputs=1)
    output = cast.outputs[0]
    output.name, output.type, output.shape = name, ir.TensorType(dtype), value.shape
    return cast
