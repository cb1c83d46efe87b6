"""Calls of CUDA's runtime library that are needed to run an engine, by ctypes. Device side.

Buffers are mapped pinned host memory: on a Jetson the GPU reads and writes the CPU's own memory, so inputs
and outputs are not copied. Orin is I/O coherent, Thor fully coherent: a launch sees the CPU's earlier
writes, and after a synchronisation the CPU sees the launch's writes.

    https://docs.nvidia.com/cuda/cuda-for-tegra-appnote/    memory on Tegra
    https://docs.nvidia.com/cuda/cuda-runtime-api/          the calls
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array

LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so", "/usr/local/cuda/lib64/libcudart.so")
"""By name, as JetPack registers it; else where NVIDIA's installer puts it."""
HOST_ALLOC_MAPPED = 2
STREAM_NON_BLOCKING = 1
CAPTURE_THREAD_LOCAL = 1
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # enum cudaDeviceAttr
NAME_BYTES, PROPERTIES_BYTES = 256, 1 << 14
"""cudaDeviceProp begins with the name; the rest differs by version and is some kB at most."""


class Cuda:
    """CUDA's runtime library.

    Raises:
        EngineError: it is not installed, or a call fails; the message is CUDA's own.
    """

    def __init__(self) -> None:
        self._library = _load(LIBRARIES)
        self._library.cudaGetErrorString.restype = c_char_p

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a cudaError_t."""
        code = getattr(self._library, name)(*arguments)
        if code:
            words = self._library.cudaGetErrorString(c_int(code)) or b"no words"
            raise EngineError(f"{name}: {words.decode('utf-8', 'replace')} ({code})")

    def version(self) -> int:
        """Return the version of the runtime library in CUDA's form: 12060 for 12.6."""
        result = c_int()
        self.check("cudaRuntimeGetVersion", byref(result))
        return result.value

    def attribute(self, number: int) -> int:
        result = c_int()
        self.check("cudaDeviceGetAttribute", byref(result), c_int(number), c_int(0))
        return result.value

    def gpu_name(self) -> str:
        properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
        # CUDA 12 calls the function of its own structure _v2; before and after, the plain name is right.
        name = "cudaGetDeviceProperties"
        self.check(f"{name}_v2" if hasattr(self._library, f"{name}_v2") else name, properties, c_int(0))
        return properties.raw[:NAME_BYTES].partition(b"\0")[0].decode("utf-8", "replace")

    def buffer(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        return Buffer(self, shape, dtype)

    def stream(self) -> CudaStream:
        return CudaStream(self)


class Buffer:
    """Mapped pinned memory: ``array`` is the CPU's view, ``address`` the GPU's address."""

    def __init__(self, cuda: Cuda, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self._cuda = cuda
        size_bytes = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self._host = c_void_p()
        cuda.check("cudaHostAlloc", byref(self._host), c_size_t(size_bytes), c_uint(HOST_ALLOC_MAPPED))
        device = c_void_p()
        cuda.check("cudaHostGetDevicePointer", byref(device), self._host, c_uint(0))
        self.address = int(device.value or 0)
        memory = (ctypes.c_char * size_bytes).from_address(int(self._host.value or 0))
        count = int(np.prod(shape, dtype=np.int64))
        self.array: Array = np.frombuffer(memoryview(memory), dtype, count).reshape(shape)

    def free(self) -> None:
        """Free the memory; ``array`` must not be used afterwards."""
        self._cuda.check("cudaFreeHost", self._host)


class CudaStream:
    """A CUDA stream, and one recorded graph that it can launch."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._stream, self._graph = c_void_p(), c_void_p()
        cuda.check("cudaStreamCreateWithFlags", byref(self._stream), c_uint(STREAM_NON_BLOCKING))
        self.recorded = False

    @property
    def handle(self) -> int:
        return int(self._stream.value or 0)

    def wait(self) -> None:
        self._cuda.check("cudaStreamSynchronize", self._stream)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the work enqueued in the block instead of running it; without errors it becomes a graph."""
        self._cuda.check("cudaStreamBeginCapture", self._stream, c_int(CAPTURE_THREAD_LOCAL))
        graph, whole = c_void_p(), False
        try:
            yield
            whole = True
        finally:  # whatever happened, the stream must leave the recording
            self._cuda.check("cudaStreamEndCapture", self._stream, byref(graph))
            try:
                if whole:
                    # With flags: its signature is that of CUDA 11.4 to 13; the plain one's changed with 12.
                    flags = c_ulonglong(0)
                    self._cuda.check("cudaGraphInstantiateWithFlags", byref(self._graph), graph, flags)
            finally:
                self._cuda.check("cudaGraphDestroy", graph)
        self.recorded = True

    def launch(self) -> None:
        self._cuda.check("cudaGraphLaunch", self._graph, self._stream)

    def free(self) -> None:
        if self.recorded:
            self.recorded = False
            self._cuda.check("cudaGraphExecDestroy", self._graph)
        self._cuda.check("cudaStreamDestroy", self._stream)


def _load(names: Sequence[str]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise EngineError(f"none of {', '.join(names)} can be loaded; JetPack's cuda-cudart package has it")
