"""Node reports of the ``model.onnx`` for TensorRT: values as the reference executor computes them. Host side.

Its times would be ONNX Runtime's, which do not apply to a Jetson.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from edgekit.compiler.model.reference import onnx_values
from edgekit.target.node_reports import NodeReports, NodeValue
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_tensorrt.reference_executor import with_roundings
from edgekit_tensorrt.run import MODEL_FILE


def node_values(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
) -> list[NodeValue]:
    """Return the outputs of each node, with every float16 rounding written out.

    Raises:
        EngineError: ONNX Runtime refused the model.
    """
    return onnx_values(with_roundings(ir.load(files[MODEL_FILE])), feeds)


NODE_REPORTS = NodeReports(node_values=node_values)
