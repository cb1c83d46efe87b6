"""The memory that a build claims follows from the model's static shapes and the request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.compress.channel_groups import multiplications
from edgekit.compiler.evaluate.kept_outputs import KEPT_BYTES
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.pipeline.memory_need import ModelBytes, memory_need, model_bytes, seconds_need
from tests.fixtures import models

SIZES = st.integers(0, 1 << 34)
MODELS = st.builds(ModelBytes, SIZES, SIZES, SIZES, SIZES)

CHAIN = """
<ir_version: 10, opset_import: ["": 17]>
g (float[1,8,16,16] x) => (float[1,8,16,16] y)
{
    [a] a = Relu(x)
    [b] b = Sigmoid(a)
    [c] c = Tanh(a)
    [d] d = Add(b, c)
    [y] y = Exp(d)
}
"""
OBSERVED = """
import resource, sys
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.quantize.observe.calibrate import observe
model = open_model(sys.argv[1])
observe(model, load_samples(sys.argv[2], signature(model)[0]).arrays)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
WIDE = """
<ir_version: 10, opset_import: ["": 17]>
g (float[1,6,1000,1000] x) => (float[1,6,1000,1000] y)
{
    [a] a = Relu(x)
    [y] y = Sigmoid(a)
}
"""
WIDE_BYTES = 24_000_000


def test_time_grows_with_samples_targets_and_operations(tmp_path: Path) -> None:
    model = open_model(models.write(tmp_path, CHAIN))
    sizes = model_bytes(model)
    values = 5 * 8 * 16 * 16
    assert seconds_need(model, sizes, 50, 3) == pytest.approx(2 * 16 * values / 1e9 * 50 * 4)
    convolution = open_model(models.write(tmp_path, models.SMALL_CNN))
    sizes = model_bytes(convolution)
    alone = 2 * 16 * (sizes.values // 4) / 1e9
    assert seconds_need(convolution, sizes, 1, 0) - alone == pytest.approx(
        2 * multiplications(convolution) / 1e9
    )
    assert multiplications(convolution) > 0


def test_sizes_are_those_of_static_shapes(tmp_path: Path) -> None:
    one = 8 * 16 * 16 * 4
    # b, c and d live together: a ends with c, b and c with d
    assert model_bytes(open_model(models.write(tmp_path, CHAIN))) == ModelBytes(5 * one, 4 * one, one, 0)


def test_weights_count(tmp_path: Path) -> None:
    text = CHAIN.replace("y)\n{", "y)\n<float[16] w = {" + ", ".join(["1"] * 16) + "}>\n{").replace(
        "Relu(x)", "Add(x, w)"
    )
    assert model_bytes(open_model(models.write(tmp_path, text))).weights == 64


def test_texts_and_unknown_shapes_have_a_size() -> None:
    text = ir.Value(name="t", type=ir.TensorType(ir.DataType.STRING), shape=ir.Shape([2]))
    unknown = ir.Value(name="u", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None]))
    graph = ir.Graph([text, unknown], [text], nodes=[], opset_imports={"": 17})
    assert model_bytes(ir.Model(graph, ir_version=10)) == ModelBytes(0, 128, 128, 0)


@given(MODELS, MODELS, st.integers(0, 500), st.integers(1, 20), st.integers(0, 500), st.integers(0, 20))
def test_more_samples_or_targets_never_need_less(
    source: ModelBytes, canonical: ModelBytes, samples: int, targets: int, more: int, others: int
) -> None:
    need = memory_need(source, canonical, samples, targets)
    assert 0 <= need <= memory_need(source, canonical, samples + more, targets + others)


@given(MODELS, MODELS, SIZES, st.sampled_from(["values", "live", "outputs", "weights"]))
def test_a_larger_model_never_needs_less(
    source: ModelBytes, canonical: ModelBytes, more: int, size: str
) -> None:
    larger = ModelBytes(**{**vars(canonical), size: getattr(canonical, size) + more})
    assert memory_need(source, canonical, 8, 1) <= memory_need(source, larger, 8, 1)


def test_a_detector_s_need() -> None:
    """YOLO11n at 640 x 640 with 50 photographs for three targets."""
    detector = ModelBytes(276_086_400, 24_576_000, 2_822_400, 10_603_800)
    values, outputs = 3 * 276_086_400 + (4 * 3 + 16) * 24_576_000, 10 * 2_822_400
    assert memory_need(detector, detector, 50, 3) == values + outputs + 3 * KEPT_BYTES
    assert memory_need(detector, detector, 500, 3) == values + outputs + 3 * KEPT_BYTES


@pytest.mark.needs_ort
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count the most memory otherwise")
def test_calibration_takes_no_more_memory_for_more_samples(tmp_path: Path) -> None:
    """Eight samples of 24 MB, whose values have 72 MB, take as much as four."""
    model, peaks = models.write(tmp_path, WIDE), []
    for count in (4, 8):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            array = np.zeros((1, 6, 1000, 1000), np.float32)
            array[0, 0, 0, :2] = number, 1
            np.savez_compressed(folder / f"{number}.npz", x=array)
        environment = {**os.environ, "EDGEKIT_CACHE": str(tmp_path / f"cache{count}")}
        command = [sys.executable, "-c", OBSERVED, str(model), str(folder)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        peaks.append(int(ended.stdout))
    assert peaks[1] - peaks[0] < 2 * WIDE_BYTES  # of four more
