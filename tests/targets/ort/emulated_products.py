"""Products of int8 weights, run on a processor without VNNI that QEMU emulates."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_ort.compile import compile_model
from onnx import helper, numpy_helper

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.target import Artifact
from edgekit.tensor_spec import Array
from tests.targets.engine_trial import profile

needs_emulator = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("qemu-x86_64") is None,
    reason="needs qemu-x86_64 on x86-64",
)
ROWS, INPUTS, OUTPUTS = 4, 384, 64


def compiled_product(folder: Path, largest: int) -> tuple[Artifact, Array]:
    """Compile a product by weights of up to ``largest``; return the weights too, int8 [inputs, outputs]."""
    rng = np.random.default_rng(0)
    weights = rng.integers(largest - 7, largest + 1, (INPUTS, OUTPUTS)).astype(np.int8)
    scales = np.ones(OUTPUTS, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=1),
            helper.make_node("MatMul", ["x", "f"], ["y"]),
        ],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [ROWS, INPUTS])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [ROWS, OUTPUTS])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(scales, "s")],
    )
    path = folder / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    model = open_model(path, {})
    run_passes(model)
    return compile_model(model, profile("ort"), "int8-dynamic"), weights


def largest_error(folder: Path, weights: Array, program: str, kind: str) -> float:
    """Run ``program`` on an emulated processor without VNNI; return its largest error, relative to the
    largest output."""
    x = np.abs(np.random.default_rng(1).normal(0, 1, (ROWS, INPUTS))).astype(np.float32)
    np.save(folder / "x.npy", x)
    expected = x @ weights.astype(np.float32)
    emulated = ["qemu-x86_64", "-cpu", "Haswell", sys.executable, "-c", program, str(folder), kind]
    subprocess.run(emulated, check=True, capture_output=True, timeout=300)
    return float(np.abs(np.load(folder / "y.npy") - expected).max() / np.abs(expected).max())
