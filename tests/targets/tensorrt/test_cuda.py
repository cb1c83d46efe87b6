"""CUDA's runtime library itself, with NVIDIA's driver and a GPU; the other tests have a stand-in for it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from edgekit_tensorrt.device.cuda import CAPABILITY_MAJOR, Buffer, Cuda, CudaStream

from edgekit.errors import EngineError

pytestmark = pytest.mark.needs_cuda

HOST_OR_DEVICE = 4  # cudaMemcpyDefault: the addresses say which


def enqueue_copy(cuda: Cuda, target: Buffer, source: Buffer, stream: CudaStream) -> None:
    """Enqueue a copy by the GPU, in place of an engine's kernels."""
    cuda.check(
        "cudaMemcpyAsync",
        ctypes.c_void_p(target.address),
        ctypes.c_void_p(source.address),
        ctypes.c_size_t(source.array.nbytes),
        ctypes.c_int(HOST_OR_DEVICE),
        ctypes.c_void_p(stream.handle),
    )


def test_the_machine_is_described() -> None:
    cuda = Cuda()
    assert cuda.version() >= 12000
    assert cuda.gpu_name().startswith("NVIDIA")
    assert cuda.attribute(CAPABILITY_MAJOR) >= 5


def test_a_recorded_graph_reads_what_the_buffers_hold_when_it_is_launched() -> None:
    cuda = Cuda()
    source, target = (cuda.buffer((3, 5), np.dtype("float32")) for _ in range(2))
    stream = cuda.stream()
    target.array[:] = 0
    source.array[:] = 1
    with stream.recording():
        enqueue_copy(cuda, target, source, stream)
    assert stream.recorded
    assert not target.array.any()  # recorded, and not run
    for value in (2, 3):
        source.array[:] = value
        stream.launch()
        stream.wait()
        assert (target.array == value).all()
    stream.free()
    source.free()
    target.free()


def test_a_recording_that_fails_leaves_the_stream_usable() -> None:
    cuda = Cuda()
    source, target = (cuda.buffer((4,), np.dtype("int32")) for _ in range(2))
    stream = cuda.stream()

    def interrupted() -> None:
        with stream.recording():
            enqueue_copy(cuda, target, source, stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert not stream.recorded
    source.array[:] = 7
    enqueue_copy(cuda, target, source, stream)
    stream.wait()
    assert (target.array == 7).all()


def test_errors_have_cuda_s_words() -> None:
    cuda = Cuda()
    with pytest.raises(EngineError, match=r"cudaDeviceGetAttribute: invalid \w+ .*\(\d+\)"):
        cuda.attribute(100_000)
    with pytest.raises(EngineError, match="cudaHostAlloc: out of memory"):
        cuda.buffer((1 << 50,), np.dtype("uint8"))
