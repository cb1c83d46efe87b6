"""Runs on an NVIDIA GPU are recorded as a CUDA graph: the same numbers, in arrays that are the caller's."""

from __future__ import annotations

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

pytestmark = pytest.mark.needs_cuda

ON_GPU = """
<ir_version: 10, opset_import: ["": 17]>
net (float[2,3] x, int64[2,1] row) => (float[2,3] y, float[2,1] taken) {
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
"""CUDA's provider has no kernel for BitShift."""
RANDOM = np.random.default_rng(3)


def opened(graph: str, folder: Path, record: bool | None = None) -> AcceleratedRunner:
    """Open a graph on the GPU; ``record=None``: as a session does."""
    model = parse(graph)
    path = folder / MODEL_FILE
    ir.save(model, path)
    inputs, outputs = signature(model)
    if record is None:
        runner = accelerators.open_on("cuda", {MODEL_FILE: path}, inputs, outputs, {}, 1)
        assert isinstance(runner, AcceleratedRunner)
        return runner
    device = accelerators._require_device("cuda")
    return accelerators._open(device, path, inputs, outputs, {}, 1, record)


def feeds() -> dict[str, Array]:
    return {
        "x": RANDOM.standard_normal((2, 3)).astype(np.float32),
        "row": RANDOM.integers(0, 3, (2, 1)),
    }


def test_a_replay_computes_what_the_kernels_do_alone(tmp_path: Path) -> None:
    recorded, plain = opened(ON_GPU, tmp_path), opened(ON_GPU, tmp_path, record=False)
    assert (recorded.facts()["cuda_graph"], plain.facts()["cuda_graph"]) == (True, False)
    assert recorded.device == plain.device == "GPU (CUDA)"
    for _ in range(3):
        inputs = feeds()
        replayed, launched = recorded.run(inputs), plain.run(inputs)
        for name, value in launched.items():
            np.testing.assert_array_equal(replayed[name], value)
            assert replayed[name].dtype == value.dtype


def test_outputs_belong_to_the_caller(tmp_path: Path) -> None:
    runner = opened(ON_GPU, tmp_path)
    first = runner.run(feeds())
    kept = first["y"].copy()
    first["y"].setflags(write=True)
    runner.run(feeds())
    np.testing.assert_array_equal(first["y"], kept)


def test_a_model_with_a_node_on_the_cpu_runs_unrecorded(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="the CPU takes part"):
        opened(SPLIT, tmp_path, record=True)
    runner = opened(SPLIT, tmp_path)
    assert runner.facts()["cuda_graph"] is False
    assert [node.op for node in runner.on_cpu] == ["BitShift"]
    x = np.zeros((2, 3), np.float32)
    outputs = runner.run({"x": x, "bits": np.arange(4, dtype=np.uint8)})
    np.testing.assert_array_equal(outputs["shifted"], [0, 2, 8, 24])
    np.testing.assert_array_equal(outputs["y"], x + 1)


def test_a_failed_replay_is_an_engine_error(tmp_path: Path) -> None:
    runner = opened(ON_GPU, tmp_path)
    with pytest.raises(EngineError, match="failed to run"):
        runner.run({"x": np.zeros((5, 3), np.float32), "row": np.zeros((2, 1), np.int64)})
    runner.run(feeds())


def test_closing_frees_the_memory_of_the_gpu(tmp_path: Path) -> None:
    """A session that opens a copy again and again, after each failure of a driver, must not fill the GPU."""
    used = []
    for _ in range(12):
        runner = opened(ON_GPU, tmp_path)
        runner.run(feeds())
        runner.close()
        del runner
        gc.collect()
        used.append(_used_bytes())
    assert used[-1] - used[3] < 64 << 20, used


def _used_bytes() -> int:
    import ctypes

    library = ctypes.CDLL("libcudart.so.13")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value
