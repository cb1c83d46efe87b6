"""Convolutions on integers: the layers that a Q/DQ graph becomes, and what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_ncnn import compile as host
from edgekit_ncnn import run

from edgekit.compiler.evaluate.verify import compare, write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.target.installed_profiles import find_profile

onnx = pytest.importorskip("onnx")
pytestmark = [pytest.mark.needs_ncnn, pytest.mark.needs_ort]


def _quantized(path: Path, zero_point: int = 0) -> None:
    """Write two Convs, the second depthwise, with pairs at their inputs and weights."""
    random = np.random.default_rng(0)
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    constants, nodes = {}, []

    def pair(source: str, name: str, scale: float) -> str:
        constants[f"{name}_s"] = np.array(scale, np.float32)
        constants[f"{name}_z"] = np.array(zero_point, np.int8)
        at = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [source, *at], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *at], [f"{name}_d"]))
        return f"{name}_d"

    def conv(source: str, name: str, shape: tuple[int, ...], group: int) -> str:
        constants[f"{name}_w"] = random.integers(-127, 128, shape).astype(np.int8)
        constants[f"{name}_ws"] = random.uniform(0.005, 0.02, shape[0]).astype(np.float32)
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{name}_w", f"{name}_ws"], [f"{name}_wd"], axis=0)
        )
        nodes.append(helper.make_node("Conv", [source, f"{name}_wd"], [name], group=group, pads=[1] * 4))
        return name

    first = conv(pair("x", "px", 0.02), "first", (8, 3, 3, 3), 1)
    nodes.append(helper.make_node("Relu", [first], ["active"]))
    conv(pair("active", "pa", 0.1), "y", (8, 1, 3, 3), 8)
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", 1, (1, 3, 9, 9))],
        [helper.make_tensor_value_info("y", 1, (1, 8, 9, 9))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize("zero_point", [0, 3])
def test_pairs_are_computed_exactly_or_in_integers(zero_point: int, tmp_path: Path) -> None:
    path = tmp_path / "q.onnx"
    _quantized(path, zero_point)
    model = open_model(path, {})
    canonical = model.clone()
    run_passes(canonical)
    artifact = host.compile_model(canonical, find_profile("ncnn"), "int8")
    lines = bytes(artifact.files["model.param"]).decode().splitlines()
    terms = [word for line in lines for word in line.split() if word.startswith("8=")]
    kinds = artifact.facts["layers"]
    if zero_point:  # ncnn's integers are symmetric: these pairs are computed in floats
        assert (artifact.options["precision"], terms) == ("fp32", [])
        assert kinds["Clip"] == 2
    else:  # the first convolution writes the integers that the second one reads
        assert (artifact.options["precision"], terms) == ("int8", ["8=102", "8=1"])
        assert "Clip" not in kinds
    runner = run.open_runner(write_files(artifact, tmp_path), *signature(model), artifact.options, 1)
    x = np.random.default_rng(1).uniform(-2, 2, (1, 3, 9, 9)).astype(np.float32)
    expected = Reference(model).run({"x": x})["y"]
    # ncnn rounds halves away from zero, ONNX to even: a few values are one step apart
    limit_db = 100.0 if zero_point else 40.0
    assert compare([expected], [runner.run({"x": x})["y"]], limit_db).within_limit
    assert runner.precision == artifact.options["precision"]
