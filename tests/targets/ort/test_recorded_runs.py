"""Runs on a GPU are recorded and replayed: the same numbers, in arrays that are the caller's.

tests/vulkan/test_recorded_runs.py has them run on a GPU made of software.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_ort import accelerators
from edgekit_ort.accelerators import AcceleratedRunner
from edgekit_ort.run import MODEL_FILE

from edgekit.compiler.model.onnx_file import signature
from edgekit.errors import EngineError
from edgekit.tensor_spec import Array
from tests.fixtures.models import parse

ON_GPU = """
<ir_version: 10, opset_import: ["": 17]>
net (float[2,3] x, int32[2,1] row) => (float[2,3] y, float[2,1] taken) {
    a = Exp(x)
    y = Softmax(a)
    taken = GatherElements<axis = 1>(y, row)
}
"""
"""It reads two inputs of two types and writes two outputs."""
SPLIT = """
<ir_version: 10, opset_import: ["": 17]>
net (float[2,3] x, uint8[4] bits) => (float[2,3] y, uint8[4] shifted) {
    y = Exp(x)
    shifted = BitShift<direction = "LEFT">(bits, bits)
}
"""
"""Neither provider has a kernel for BitShift."""
RANDOM = np.random.default_rng(3)


@pytest.fixture(
    params=[
        pytest.param("cuda", marks=pytest.mark.needs_cuda),
        pytest.param("webgpu", marks=pytest.mark.needs_webgpu),
    ]
)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(device: str, graph: str, folder: Path, record: bool | None = None) -> AcceleratedRunner:
    """Open a graph on the GPU; ``record=None``: as a session does."""
    model = parse(graph)
    path = folder / MODEL_FILE
    ir.save(model, path)
    inputs, outputs = signature(model)
    if record is None:
        runner = accelerators.open_on(device, {MODEL_FILE: path}, inputs, outputs, {}, 1)
        assert isinstance(runner, AcceleratedRunner)
        return runner
    found = accelerators._require_device(device)
    recording = found.interface.recording if record else None
    return accelerators._open(found, path, inputs, outputs, {}, 1, recording)


def feeds() -> dict[str, Array]:
    return {
        "x": RANDOM.standard_normal((2, 3)).astype(np.float32),
        "row": RANDOM.integers(0, 3, (2, 1), np.int32),
    }


def test_a_replay_computes_what_the_kernels_do_alone(device: str, tmp_path: Path) -> None:
    recorded, plain = opened(device, ON_GPU, tmp_path), opened(device, ON_GPU, tmp_path, record=False)
    assert (recorded.facts()["recorded"], plain.facts()["recorded"]) == (True, False)
    assert recorded.device == plain.device
    for _ in range(3):
        inputs = feeds()
        replayed, launched = recorded.run(inputs), plain.run(inputs)
        for name, value in launched.items():
            np.testing.assert_array_equal(replayed[name], value)
            assert replayed[name].dtype == value.dtype


def test_outputs_belong_to_the_caller(device: str, tmp_path: Path) -> None:
    runner = opened(device, ON_GPU, tmp_path)
    first = runner.run(feeds())
    kept = first["y"].copy()
    runner.run(feeds())
    np.testing.assert_array_equal(first["y"], kept)


def test_a_model_with_a_node_on_the_cpu_runs_unrecorded(device: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="the CPU takes part"):
        opened(device, SPLIT, tmp_path, record=True)
    runner = opened(device, SPLIT, tmp_path)
    assert runner.facts()["recorded"] is False
    assert [node.op for node in runner.on_cpu] == ["BitShift"]
    x = np.zeros((2, 3), np.float32)
    outputs = runner.run({"x": x, "bits": np.arange(4, dtype=np.uint8)})
    np.testing.assert_array_equal(outputs["shifted"], [0, 2, 8, 24])
    np.testing.assert_array_equal(outputs["y"], x + 1)


def test_a_failed_replay_is_an_engine_error(device: str, tmp_path: Path) -> None:
    runner = opened(device, ON_GPU, tmp_path)
    with pytest.raises(EngineError, match="failed to run"):
        runner.run({"x": np.zeros((5, 3), np.float32), "row": np.zeros((2, 1), np.int32)})
    runner.run(feeds())


@pytest.mark.needs_cuda
def test_closing_frees_the_memory_of_the_gpu(tmp_path: Path) -> None:
    """A session that opens a copy again and again, after each failure of a driver, must not fill the GPU."""
    used = []
    for _ in range(12):
        runner = opened("cuda", ON_GPU, tmp_path)
        runner.run(feeds())
        runner.close()
        del runner
        gc.collect()
        used.append(_used_bytes())
    assert used[-1] - used[3] < 64 << 20, used


def _used_bytes() -> int:
    library = ctypes.CDLL("libcudart.so.13")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value
