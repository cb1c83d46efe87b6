"""Building and running an engine, by the names that TensorRT 10.0 to 11.x share.

Strongly typed networks, so no precision flags (11 has none); I/O by name (8's indices are gone). The names
are held against those of 10.3, 10.13 and 11.4 by tests/targets/tensorrt/test_api_names.py.

    https://docs.nvidia.com/deeplearning/tensorrt/latest/api/migration/tensorrt-10x-to-11x-jetson.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_tensorrt.device.cuda import Buffer, Cuda, CudaStream

KINDS = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}
"""TensorRT's name of an element type -> numpy's. An engine writes as many bytes as its own type has."""


Extents = Mapping[str, Sequence[Sequence[int]]]
"""Inputs and outputs of a model with a range -> shapes at the smallest, a middle and the largest size."""


def build_engine(trt: Any, model: bytes, workspace_mb: int, extents: Extents | None = None) -> bytes:
    """Return the serialized engine of a strongly typed ONNX file.

    Args:
        workspace_mb: Memory for the scratch of a layer, in MiB.
        extents: Shapes of the inputs of a model with a range: the engine's one optimization profile.

    Raises:
        EngineError: TensorRT rejects the file; the text names nodes if it does.
    """
    logger = _logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        errors = [parser.get_error(number) for number in range(parser.num_errors)]
        words = "; ".join(
            f"{error.node_name()} ({error.node_operator()}): {error.desc()}" for error in errors
        )
        raise EngineError(f"TensorRT {trt.__version__} rejects the file: {words or 'it gives no reason'}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace_mb << 20)
    # float32 is float32: TF32 would round every product of it to 11 bits.
    config.clear_flag(trt.BuilderFlag.TF32)
    if extents:
        ranged = builder.create_optimization_profile()
        for name in [network.get_input(number).name for number in range(network.num_inputs)]:
            ranged.set_shape(name, *map(tuple, extents[name]))
        config.add_optimization_profile(ranged)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineError(
            f"TensorRT {trt.__version__} cannot build an engine from the file; its log has the reason"
        )
    return bytes(memoryview(plan))


def _logger(trt: Any) -> Any:
    """Return a logger for errors alone, and load NVIDIA's own plugins. The parser and engines need them for
    some operators, such as DeformConv. A process that has not loaded them does not find these operators."""
    logger = trt.Logger(trt.Logger.ERROR)
    trt.init_libnvinfer_plugins(logger, "")
    return logger


class TensorRtRunner:
    """A loaded engine with its buffers.

    Args:
        extents: Shapes of a model with a range. It takes every size between them.

    Raises:
        EngineError: TensorRT does not load it, or it has other inputs and outputs.
    """

    def __init__(
        self,
        trt: Any,
        cuda: Cuda,
        plan: bytes,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        precision: str,
        extents: Extents | None = None,
    ) -> None:
        self.precision = precision
        self._extents = extents or {}
        self.golden_db: float | None = None
        self.device = f"GPU 0: {cuda.gpu_name()}"
        self._trt_version = str(trt.__version__)
        self._graph_problem = ""
        self._buffers: dict[str, Buffer] = {}
        self._stream: CudaStream | None = None
        self._logger = _logger(trt)  # a runtime speaks to it as long as it lives
        self._runtime = runtime = trt.Runtime(self._logger)
        self._engine = engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise EngineError(f"TensorRT {trt.__version__} cannot load the engine; its log has the reason")
        self._context = context = engine.create_execution_context()
        if context is None:
            raise EngineError(f"TensorRT {trt.__version__} has too little memory to run the engine")
        names = {engine.get_tensor_name(number) for number in range(engine.num_io_tensors)}
        unread = [spec.name for spec in inputs if spec.name not in names]
        if names != {spec.name for spec in (*inputs, *outputs)} - set(unread):
            raise EngineError(
                f"the engine has the inputs and outputs {', '.join(sorted(names))}, not the model's"
            )
        self._inputs = [spec.name for spec in inputs if spec.name in names]
        self._outputs = [spec.name for spec in outputs]
        try:
            for spec in (*inputs, *outputs):
                if spec.name not in names:
                    continue
                largest = self._extents[spec.name][-1] if self._extents else spec.shape
                buffer = cuda.buffer(largest, np.dtype(spec.dtype))
                self._buffers[spec.name] = buffer
                kind, shape = engine.get_tensor_dtype(spec.name), engine.get_tensor_shape(spec.name)
                if (KINDS.get(kind.name), tuple(shape)) != (spec.dtype, spec.shape):
                    raise EngineError(f"the engine's {spec.name} has another type or shape than {spec}")
                if not context.set_tensor_address(spec.name, buffer.address):
                    raise EngineError(f"TensorRT {trt.__version__} takes no buffer for {spec.name}")
            self._stream = cuda.stream()
        except BaseException:
            self.close()
            raise

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        buffers, stream = self._buffers, self._stream
        assert stream is not None
        if self._extents:
            return self._run_at_its_size(feeds, stream)
        for name in self._inputs:
            np.copyto(buffers[name].array, feeds[name])
        if stream.recorded:
            stream.launch()
        else:
            self._enqueue()
        stream.wait()
        return {name: buffers[name].array.copy() for name in self._outputs}

    def _run_at_its_size(self, feeds: Mapping[str, Array], stream: CudaStream) -> dict[str, Array]:
        """Run in the first bytes of the buffers, which have the largest size."""
        for name in self._inputs:
            if not self._context.set_input_shape(name, feeds[name].shape):
                raise EngineError(
                    f"TensorRT {self._trt_version} does not take {name} of shape {feeds[name].shape}"
                )
            np.copyto(self._part(name, feeds[name].shape), feeds[name])
        self._enqueue()
        stream.wait()
        shapes = {name: tuple(self._context.get_tensor_shape(name)) for name in self._outputs}
        return {name: self._part(name, shape).copy() for name, shape in shapes.items()}

    def _part(self, name: str, shape: tuple[int, ...]) -> Array:
        array = self._buffers[name].array
        if len(shape) != array.ndim or any(a > b for a, b in zip(shape, array.shape, strict=True)):
            raise EngineError(f"{name} of shape {shape} is larger than its buffer, {array.shape}")
        return array.reshape(-1)[: math.prod(shape)].reshape(shape)

    def record(self) -> None:
        """Record one run as a CUDA graph, after a run; none if that fails or sizes vary."""
        assert self._stream is not None
        if self._extents:
            self._graph_problem = "the engine takes a range of sizes"
            return
        try:
            with self._stream.recording():
                self._enqueue()
        except EngineError as problem:
            self._graph_problem = str(problem)
        for name in self._outputs:  # what the graph does not write must not pass for its output
            self._buffers[name].array[...] = 0

    def _enqueue(self) -> None:
        assert self._stream is not None
        context = self._context
        if not context.execute_async_v3(self._stream.handle):
            raise EngineError(
                f"TensorRT {self._trt_version} failed to run the engine; its log has the reason"
            )

    def facts(self) -> dict[str, Json]:
        assert self._stream is not None
        return {
            "cuda_graph": self._stream.recorded,
            "cuda_graph_problem": self._graph_problem,
            "golden_db": self.golden_db,
        }

    def close(self) -> None:
        if self._stream is not None:
            self._stream.wait()
            self._stream.free()
            self._stream = None
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers = {}
        # In this order: an execution context must not outlive its engine, nor that its runtime.
        self._context = self._engine = self._runtime = None


def read_file(files: Mapping[str, Path], name: str) -> bytes:
    """Read a file of the variant.

    Raises:
        EngineError: it cannot be read.
    """
    try:
        return files[name].read_bytes()
    except (KeyError, OSError) as problem:
        raise EngineError(f"{name} of the variant cannot be read: {problem}") from None
