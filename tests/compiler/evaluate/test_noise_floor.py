"""Models without float inputs: their noise floor, and variants that only round otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.compiler.evaluate.noise_floor import with_perturbed_sums
from edgekit.compiler.evaluate.verify import FLOOR_MARGIN_DB, compare
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.variant_build import run_reference

WIDTH = 64


def bytes_model(folder: Path, offset: float, dtype: int = TensorProto.FLOAT) -> Path:
    """bytes [1, 32] -> embedding -> MatMul -> + offset -> - its mean -> MatMul: y [1, 32, 8].

    The mean of numbers near ``offset`` is rounded in units of its last place; then the offset is gone.
    """
    rng = np.random.default_rng(0)
    numpy_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    weights = {
        "table": rng.standard_normal((256, WIDTH)),
        "w1": rng.standard_normal((WIDTH, WIDTH)) / 8,
        "offset": np.full(WIDTH, offset),
        "w2": rng.standard_normal((WIDTH, 8)) / 8,
    }
    nodes = [
        helper.make_node("Gather", ["table", "bytes"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", "w1"], ["multiplied"]),
        helper.make_node("Add", ["multiplied", "offset"], ["lifted"]),
        helper.make_node("ReduceMean", ["lifted", "axes"], ["mean"]),
        helper.make_node("Sub", ["lifted", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "bytes",
        [helper.make_tensor_value_info("bytes", TensorProto.INT32, [1, 32])],
        [helper.make_tensor_value_info("y", dtype, [1, 32, 8])],
        [numpy_helper.from_array(array.astype(numpy_dtype), name) for name, array in weights.items()]
        + [numpy_helper.from_array(np.array([-1]), "axes")],
    )
    path = folder / "bytes.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def texts(count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"bytes": rng.integers(0, 256, (1, 32)).astype(np.int32)} for _ in range(count)]


def floor_db(path: Path) -> float | None:
    model = open_model(path)
    inputs, outputs = signature(model)
    return run_reference(model, inputs, outputs, texts()).floors_db["y"]


@pytest.mark.needs_ort
def test_a_model_of_bytes_has_a_noise_floor(tmp_path: Path) -> None:
    plain_db = floor_db(bytes_model(tmp_path, 0.0))
    lifted_db = floor_db(bytes_model(tmp_path, 3000.0))
    assert plain_db is not None
    assert lifted_db is not None
    assert plain_db > 120 + FLOOR_MARGIN_DB / 2  # the limit of 100 dB stays
    # The mean of 64 values near 3000 has units of 2.4e-4, and what is left is near 1: about 75 dB.
    assert lifted_db == pytest.approx(75, abs=6)


@pytest.mark.needs_openvino
def test_a_right_variant_is_verified(tmp_path: Path) -> None:
    """It was rejected: "SNR 76.8 dB; fp32 needs 100 dB"."""
    bundle = edgekit.build(bytes_model(tmp_path, 3000.0), targets=["openvino"], samples=texts())
    (variant,) = bundle.variants
    found = variant.evidence["accuracy"]["y"]
    assert variant.status.startswith("verified on OpenVINO")
    assert found["snr_db"] > found["limit_db"]
    assert 50 < found["limit_db"] < 70
    plain = edgekit.build(bytes_model(tmp_path, 0.0), targets=["openvino"], samples=texts())
    assert plain.variants[0].evidence["accuracy"]["y"]["limit_db"] == 100


@pytest.mark.needs_ort
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_nudged_sums_keep_names_and_nearly_the_values(tmp_path: Path, dtype: int) -> None:
    model = open_model(bytes_model(tmp_path, 0.0, dtype))
    before = len(model.graph)
    moved = with_perturbed_sums(model)
    assert len(model.graph) == before  # it is not changed
    assert [n.op_type for n in moved.graph] == [
        "Gather", "MatMul", "Mul", "Add", "ReduceMean", "Mul", "Sub", "MatMul", "Mul",
    ]  # fmt: skip
    assert signature(moved) == signature(model)
    sample = texts(1)[0]
    expected, found = (Reference(each).run(sample)["y"] for each in (model, moved))
    snr_db = compare([expected], [found], 0).snr_db
    eps = float(np.finfo(expected.dtype).eps)
    assert snr_db == pytest.approx(-20 * np.log10(eps), abs=12)
    again = Reference(with_perturbed_sums(model)).run(sample)["y"]
    np.testing.assert_array_equal(found, again)
    assert not np.array_equal(found, Reference(with_perturbed_sums(model, seed=1)).run(sample)["y"])


@pytest.mark.needs_ort
def test_what_every_engine_computes_exactly_is_not_disturbed(tmp_path: Path) -> None:
    """A mask of integers: (1 - mask) x -1e9 would drown all scores, were the 1 moved."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (int64[1,8] mask) => (float[1,8] y)
    <float one = {1.0}, float far = {-1e9}>
    { real = Cast <to: int = 1> (mask)  left = Sub (one, real)  y = Mul (left, far) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = open_model(tmp_path / "m.onnx")
    moved = with_perturbed_sums(model)
    assert len(moved.graph) == 3
    assert isinstance(moved, ir.Model)
    inputs, outputs = signature(model)
    sample = {"mask": np.array([[1, 1, 1, 0, 0, 1, 0, 1]])}
    truth = run_reference(model, inputs, outputs, [sample])
    assert truth.floors_db == {"y": None}
