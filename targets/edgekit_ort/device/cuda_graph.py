"""A model's kernels on a GPU, recorded once and launched together. Device side.

A small network waits for its launches, one a node, longer than it computes. CUDA records them in a graph,
which reads and writes the same memory each time. ONNX Runtime records only a model all of whose nodes its
provider runs:
https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs-preview
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array, TensorSpec

OPTION = "enable_cuda_graph"
UNRECORDED = ("gpu_graph_id", "-1")
"""Entry of a run's options: this run is neither recorded nor a replay."""


class CudaGraph:
    """The recorded run of a session whose provider has OPTION.

    Args:
        session: An ``onnxruntime.InferenceSession``.
        inputs: All of its inputs.
        outputs: The outputs to compute.

    Raises:
        Exception: ONNX Runtime can't record the run; its classes share no root but this one.
    """

    def __init__(self, session: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        value = onnxruntime("running an ONNX model", "ort").OrtValue
        self._session, self._binding = session, session.io_binding()
        self._inputs = {spec.name: value.ortvalue_from_numpy(spec.zeros(), "cuda", 0) for spec in inputs}
        self._outputs = {
            spec.name: value.ortvalue_from_shape_and_type(spec.shape, spec.zeros().dtype, "cuda", 0)
            for spec in outputs
        }
        for name, memory in self._inputs.items():
            self._binding.bind_ortvalue_input(name, memory)
        for name, memory in self._outputs.items():
            self._binding.bind_ortvalue_output(name, memory)
        session.run_with_iobinding(self._binding)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Replay with other inputs, C-contiguous, and return new arrays."""
        for name, memory in self._inputs.items():
            memory.update_inplace(feeds[name])
        self._session.run_with_iobinding(self._binding)
        return {name: memory.numpy() for name, memory in self._outputs.items()}
