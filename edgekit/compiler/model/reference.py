"""The reference outputs that variants are compared with: the source model on ONNX Runtime's CPU, unoptimized.

The reference runs the model as opened, before any pass, so that it exposes errors of the passes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.node_checks import times
from edgekit.compiler.model.node_evaluation import session_options
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.plugin_functions import with_functions
from edgekit.compiler.model.rewriting import node_name
from edgekit.errors import EngineError, MissingDependency, ModelError
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.node_reports import NodeValue
from edgekit.tensor_spec import Array, TensorSpec

COMMON_TYPES = {
    ir.DataType.FLOAT,
    ir.DataType.FLOAT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
    ir.DataType.BOOL,
}
"""Element types for which ONNX Runtime has a kernel of nearly every operator."""
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


class Reference:
    """A model loaded in ONNX Runtime with graph optimizations off.

    Args:
        model: From ``open_model``, or any model with static shapes. It is not changed.
        threads: Threads for one run. The last bits of outputs depend on it; with 1 they are reproducible.
        intermediate: Names of values that ``run`` returns in addition to the outputs.
        optimize: Enable the engine's graph optimizations.

    Raises:
        MissingDependency: ONNX Runtime is not installed.
        ModelError: ``intermediate`` names no value of the model.
        EngineError: ONNX Runtime refuses the model.
    """

    def __init__(
        self, model: ir.Model, *, threads: int = 1, intermediate: Sequence[str] = (), optimize: bool = False
    ) -> None:
        ort = onnxruntime()
        self.inputs, self.outputs = signature(model)
        data = with_functions(serialized(model, intermediate), model)
        try:
            self._session = ort.InferenceSession(
                data, session_options(threads, optimize), providers=["CPUExecutionProvider"]
            )
        except Exception as problem:  # ONNX Runtime's exceptions share no root
            narrower = "; export the model in float32" if _has(model, {ir.DataType.DOUBLE}) else ""
            raise EngineError(
                f"ONNX Runtime cannot load the model: {_first_line(problem)}{narrower}"
            ) from problem
        self._names = [spec.name for spec in self.outputs] + list(intermediate)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Args:
            feeds: Every input by name, of its dtype and shape.

        Returns:
            Outputs by name, then the requested intermediate values.

        Raises:
            EngineError: the feeds do not fit the model, or ONNX Runtime fails.
        """
        _check_feeds(self.inputs, feeds)
        try:
            arrays = self._session.run(self._names, dict(feeds))
        except Exception as problem:  # ONNX Runtime's exceptions share no root
            raise EngineError(f"ONNX Runtime failed to run the model: {_first_line(problem)}") from problem
        results: dict[str, Array] = dict(zip(self._names, arrays, strict=True))
        for spec in self.outputs:
            if not spec.fits(results[spec.name].shape):
                raise EngineError(
                    f"output {spec.name} has shape {times(results[spec.name].shape)}, but "
                    f"{times(spec.shape)} was inferred"
                )
        return results


def onnx_values(
    model: ir.Model,
    feeds: Mapping[str, Array],
    run: Callable[[bytes], Mapping[str, Array]] | None = None,
) -> list[NodeValue]:
    """Compute an ONNX model's float values, in order.

    Args:
        model: With static shapes.
        run: Runs a serialized model, all of whose float values are outputs, on the feeds. None means ONNX
            Runtime's CPU provider, without graph optimizations.
    """
    producers = {
        str(output.name): node
        for node in model.graph
        for output in node.outputs
        if output.name and output.dtype in FLOATS
    }
    names = list(producers)
    arrays = Reference(model, intermediate=names).run(feeds) if run is None else run(serialized(model, names))
    return [
        NodeValue(
            node_name(node), node.op_type, name, tuple(str(v.name) for v in node.inputs if v), arrays[name]
        )
        for name, node in producers.items()
    ]


def reference_version() -> str:
    return f"ONNX Runtime {onnxruntime().__version__}"


def _check_feeds(inputs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> None:
    for spec in inputs:
        if spec.name not in feeds:
            raise EngineError(f"input {spec} is missing; given: {', '.join(feeds) or 'nothing'}")
        array = feeds[spec.name]
        if array.shape != spec.shape or array.dtype != np.dtype(spec.dtype):
            raise EngineError(
                f"input {spec.name} is {array.dtype} {times(array.shape)}, but the model takes {spec}"
            )
    unknown = [name for name in feeds if name not in {spec.name for spec in inputs}]
    if unknown:
        raise EngineError(
            f"the model has no input {', '.join(unknown)}; its inputs are {', '.join(map(str, inputs))}"
        )


def serialized(model: ir.Model, intermediate: Sequence[str]) -> bytes:
    """Return a model, whose ``intermediate`` values are outputs too, as the bytes of a file."""
    branches = any(node.op_type == "If" for node in model.graph.all_nodes())
    if not intermediate and not branches:
        return save_model(model)
    values = {v.name: v for node in model.graph for v in node.outputs}
    missing = [name for name in intermediate if name not in values]
    if missing:
        raise ModelError(f"no node makes {', '.join(missing)}")
    proto = onnx.ModelProto.FromString(save_model(model))
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        ir.serde.serialize_value(values[name]) for name in intermediate if name not in present
    )
    if branches:
        _clear_shapes(proto.graph)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _clear_shapes(graph: onnx.GraphProto) -> None:
    """Remove static shapes from a model with Ifs.

    ONNX Runtime infers the shapes of both branches, and rejects a model whose untaken branch does not fit.
    Without shapes it infers them at run time, in the taken branch only.
    """
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.HasField("shape"):
            rank = len(value.type.tensor_type.shape.dim)
            value.type.tensor_type.ClearField("shape")
            if value in graph.input:
                value.type.tensor_type.shape.SetInParent()  # a scalar's shape is known too
                for axis in range(rank):
                    value.type.tensor_type.shape.dim.add(dim_param=f"{value.name}_{axis}")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _clear_shapes(attribute.g)


def refusal(model: ir.Model) -> str:
    """Return why the model can't be the reference of a build: ONNX Runtime has no kernel for one of its
    element types. "" if it has, or if it is not installed.

    A model of the types in COMMON_TYPES alone is not loaded, which takes time.
    """
    if _has(model, set(ir.DataType) - COMMON_TYPES):
        try:
            Reference(model)
        except EngineError as problem:
            return str(problem)
        except (MissingDependency, ModelError):  # a model over 2 GB, which a build refuses
            pass
    return ""


def _has(model: ir.Model, dtypes: Set[ir.DataType]) -> bool:
    values = [*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs)]
    return any(value.dtype in dtypes for value in values)


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
