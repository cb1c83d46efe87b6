"""What the tests of the device side share: a small model, built and opened by run.py on the stand-ins."""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path

import onnx_ir as ir
import pytest
from edgekit_tensorrt import run
from edgekit_tensorrt.compile import compile_model
from edgekit_tensorrt.device import cuda
from edgekit_tensorrt.device.engine import TensorRtRunner

from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineNotReady
from tests.fixtures.models import SMALL_CNN
from tests.targets.engine_trial import profile, put_down, specs, with_shapes

STAND_INS = Path(__file__).with_name("stand_ins")
COMPILER = shutil.which("cc") or shutil.which("gcc")
NEEDS_STAND_INS = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the stand-in of libcudart"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="TensorRT's devices run Linux"),
]


def opened(model: ir.Model, folder: Path, precision: str = "fp32") -> TensorRtRunner:
    canonical = model.clone()
    run_passes(canonical)
    artifact = compile_model(canonical, profile("tensorrt"), precision)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    return run.open_runner(put_down(artifact, folder), inputs, outputs, artifact.options, None)


def built(model: ir.Model, folder: Path, precision: str = "fp32") -> str:
    """Why the build failed; empty where the engine stands."""
    with pytest.raises(EngineNotReady) as found:
        opened(model, folder, precision)
    assert found.value.build.wait(60)
    return found.value.build.reason


def alive() -> int:
    """What was made by the stand-in of CUDA and not given back."""
    count: int = ctypes.CDLL(cuda.LIBRARIES[0]).stand_in_alive()
    return count


def small() -> ir.Model:
    return with_shapes(SMALL_CNN)
