"""A model's kernels on a GPU, recorded once and launched together. Device side.

A small network waits for its launches, one a node, longer than it computes. CUDA and WebGPU record them, with
the memory that they read and write. ONNX Runtime records only a model all of whose nodes the GPU runs:
https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs-preview
https://onnxruntime.ai/docs/execution-providers/WebGPU-ExecutionProvider.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array, TensorSpec

UNRECORDED = ("gpu_graph_id", "-1")
"""Entry of a run's options: this run is neither recorded nor a replay."""


class RecordedRun:
    """The recorded run of a session whose provider has its option for it.

    Args:
        session: An ``onnxruntime.InferenceSession``, not run before except UNRECORDED.
        memory: The GPU's memory, as ONNX Runtime names it: ``cuda`` or ``webgpu``.

    Raises:
        Exception: ONNX Runtime can't record the run; its classes share no root but this one.
    """

    def __init__(
        self, session: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], memory: str
    ) -> None:
        if memory == "cuda":  # in every release; the session's own form is new
            make = onnxruntime("running an ONNX model", "ort").OrtValue.ortvalue_from_shape_and_type
        else:
            make = session.create_ortvalue_from_shape_and_type
        self._session, self._binding = session, session.io_binding()
        self._inputs, self._outputs = (
            {spec.name: make(spec.shape, spec.zeros().dtype, memory, 0) for spec in specs}
            for specs in (inputs, outputs)
        )
        for spec in inputs:
            self._inputs[spec.name].update_inplace(spec.zeros())
            self._binding.bind_ortvalue_input(spec.name, self._inputs[spec.name])
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        session.run_with_iobinding(self._binding)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Replay with other inputs, C-contiguous, and return new arrays."""
        for name, value in self._inputs.items():
            value.update_inplace(feeds[name])
        self._session.run_with_iobinding(self._binding)
        return dict(zip(self._outputs, self._binding.copy_outputs_to_cpu(), strict=True))
