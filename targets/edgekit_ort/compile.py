"""Make ``model.onnx``: the canonical graph, serialized, with its weights in fp32 or fp16.

fp16 weights: ONNX Runtime folds the casts at load, so that arithmetic and speed are those of fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EngineError, UnsupportedError, UsageError
from edgekit.findings import Finding, as_lines
from edgekit.target import Array, Artifact
from edgekit_ort.node_probe import failing_nodes
from edgekit_ort.run import MODEL_FILE, open_session

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from edgekit.profile import Profile

PRECISIONS = ("fp32", "fp16")

HALF_MIN_SIZE = 256
"""Weights of fewer elements stay fp32: biases, scales and epsilons, where halving saves nothing."""

HALF_MAX_LOSS = 1e-3
"""Largest norm of the rounding over the norm of the weights. IEEE 754 binary16 rounds by at most 2^-11 = 4.9e-4;
a tensor that loses more holds values beyond 65504 or mostly below 6.1e-5, and stays fp32."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Nodes that the installed ONNX Runtime has no kernel for: the graph is loaded as it is written.

    Raises:
        MissingDependency: onnxruntime is not installed.
    """
    content = _serialized(model)
    try:
        open_session(content.SerializeToString(), threads=1, optimize=False)
    except EngineError as problem:
        return failing_nodes(content, profile.name, str(problem))
    return []


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """The canonical model as ``model.onnx``.

    Raises:
        UsageError: an unknown precision.
        UnsupportedError: nodes that ONNX Runtime has no kernel for; all are named.
        MissingDependency: onnxruntime is not installed.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"ort compiles {', '.join(PRECISIONS)}, not {precision}")
    found = check_model(model, profile)
    if found:
        raise UnsupportedError("\n".join([f"{profile.name} can't run the model", *as_lines(found)]), found)
    content = _serialized(model)
    kept = halve_weights(content) if precision == "fp16" else []
    facts = {"nodes": len(content.graph.node), "kept_fp32": kept}
    return Artifact({MODEL_FILE: content.SerializeToString(deterministic=True)}, {}, facts)


def halve_weights(content: onnx.ModelProto) -> list[str]:
    """Store the weights in float16, in place.

        w (float32) -> op        =>        w (float16) -> Cast -> op

    Returns:
        Names of the weights that were kept in float32 because half precision does not hold them.
    """
    from onnx import TensorProto, helper, numpy_helper

    kept = []
    for graph in _graphs(content.graph):
        # A cast between the scales and a Q or DQ node would hide the pair from the engine's fusions.
        scales = {
            name
            for node in graph.node
            if node.op_type in ("QuantizeLinear", "DequantizeLinear")
            for name in node.input
        }
        casts = []
        for tensor in graph.initializer:
            if tensor.data_type != TensorProto.FLOAT or tensor.name in scales:
                continue
            weights = numpy_helper.to_array(tensor)
            if weights.size < HALF_MIN_SIZE:
                continue
            half = halved(weights)
            if half is None:
                kept.append(tensor.name)
                continue
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(half, f"{name}/fp16"))
            casts.append(
                helper.make_node("Cast", [tensor.name], [name], f"{name}/fp32", to=TensorProto.FLOAT)
            )
        nodes = list(graph.node)
        del graph.node[:]
        graph.node.extend(casts + nodes)
    return kept


def halved(weights: Array) -> Array | None:
    """The weights in float16, or None where that loses more than ``HALF_MAX_LOSS``."""
    with np.errstate(over="ignore"):
        half = weights.astype(np.float16)
    exact = weights.astype(np.float64)
    loss = float(np.linalg.norm(half.astype(np.float64) - exact))  # nan or inf where a value is out of range
    return half if loss <= HALF_MAX_LOSS * float(np.linalg.norm(exact)) else None


def _serialized(model: ir.Model) -> onnx.ModelProto:
    import onnx_ir

    return onnx_ir.to_proto(model)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and the bodies of its If, Loop and Scan nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
