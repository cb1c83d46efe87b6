"""A variant that is larger than its source says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.pipeline.build_bundle import build_bundle
from edgekit.compiler.pipeline.build_request import BuildRequest

pytestmark = pytest.mark.needs_ort

CHANNELS, LAYERS = 320, 3


def one_conv_normalized_otherwise_each_time(path: Path, alike: bool) -> Path:
    """Layers that share a Conv; each has a normalization of its own unless they are alike."""
    rng = np.random.default_rng(0)
    weights = {"W": rng.standard_normal((CHANNELS, CHANNELS, 1, 1)) / CHANNELS**0.5}
    nodes, x = [], "x"
    for k in range(LAYERS):
        own = [f"{name}{0 if alike else k}" for name in ("scale", "shift", "mean", "variance")]
        weights |= {name: rng.uniform(0.5, 1.5, CHANNELS) for name in own}
        nodes.append(helper.make_node("Conv", [x, "W"], [f"c{k}"], name=f"conv{k}"))
        nodes.append(helper.make_node("BatchNormalization", [f"c{k}", *own], [f"y{k}"], name=f"norm{k}"))
        x = f"y{k}"
    shape = [1, CHANNELS, 2, 2]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", x))
    stored = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [given], [made], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_it_is_in_the_table_and_in_the_evidence(tmp_path: Path) -> None:
    path = one_conv_normalized_otherwise_each_time(tmp_path / "model.onnx", alike=False)
    bundle = build_bundle(BuildRequest(path, targets=["ort"]))
    (variant,) = bundle.variants
    assert variant.evidence["larger"] == {
        "source_weight_bytes": 424_960,
        "because": [
            "the simplified graph has 0.81 MB more weights than the source, e.g. conv2/weight (0.41 MB),"
            " conv1/weight (0.41 MB) and 4 more",
            f"its files: model.onnx {variant.evidence['size_bytes'] / 1e6:.1f} MB",
        ],
    }
    assert "ort-fp32  larger than the source's 0.42 MB of weights: the simplified graph has" in bundle.report


def test_a_variant_as_large_as_its_source_says_nothing(tmp_path: Path) -> None:
    path = one_conv_normalized_otherwise_each_time(tmp_path / "model.onnx", alike=True)
    (variant,) = build_bundle(BuildRequest(path, targets=["ort"])).variants
    assert "larger" not in variant.evidence


def test_two_forms_of_one_matrix_are_named(tmp_path: Path) -> None:
    """An embedding that Gather reads as floats and the last product as integers."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((1500, 512)).astype(np.float32) / 20
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["rows"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["rows", "turned"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.INT64, [1, 4])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 1500])
    graph = helper.make_graph(nodes, "g", [given], [made], [numpy_helper.from_array(table, "table")])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    bundle = build_bundle(BuildRequest(path, targets=["ort"], precision="int8-weights", force=True))
    variant = next(v for v in bundle.variants if v.precision == "int8-weights")
    because = variant.evidence["larger"]["because"]
    assert "table is stored twice: quantized, and as floats for Gather" in because
