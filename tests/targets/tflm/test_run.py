"""TFLite Micro's interpreter as a runner: the contract of edgekit.target.contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_tflm import run

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError
from edgekit.target.contract import stands_in_for
from tests.targets.engine_trial import feeds, load, same_as_reference, with_shapes
from tests.targets.tflm.networks import SHUFFLED, classifier, compiled, opened, pictures, quantized

pytestmark = pytest.mark.needs_tflm
FILE = "model.tflite"


def test_integers_answer_as_their_qdq_graph_does(tmp_path: Path) -> None:
    """Within a rounding step or two of 256: kernels round between layers as they do."""
    model = classifier()
    graph = quantized(model)
    runner = opened(compiled(graph), model, tmp_path)
    assert runner.precision == "int8"
    reference = Reference(graph)
    for picture in pictures(8):
        got, expected = runner.run(picture)["scores"], reference.run(picture)["scores"]
        assert (got.dtype.name, got.shape) == ("float32", (1, 4))
        assert np.abs(got - expected).max() <= 3 / 256


def test_a_float_model_answers_as_the_reference_does(tmp_path: Path) -> None:
    model = classifier()
    same_as_reference(model, opened(compiled(model), model, tmp_path), pictures(1)[0])


def test_six_axes(tmp_path: Path) -> None:
    model = with_shapes(SHUFFLED)
    same_as_reference(model, load(model, "tflm", tmp_path), feeds(model))


def test_a_scalar_stays_one(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 23]> twice (float s) => (float y) { y = Add(s, s) }'
    model = with_shapes(text)
    same_as_reference(model, load(model, "tflm", tmp_path), feeds(model))


PICTURE = """
<ir_version: 10, opset_import: ["": 23]>
picture (uint8[1,8,8,3] bytes) => (float[1,3,8,8] y) <float s = {1.0}, int8 z = {-128}>
{
    t = Transpose<perm=[0,3,1,2]>(bytes)
    c = Cast<to=1>(t)
    q = QuantizeLinear(c, s, z)
    d = DequantizeLinear(q, s, z)
    y = Relu(d)
}
"""


def test_pictures_as_bytes_are_on_integers_from_the_start(tmp_path: Path) -> None:
    model = with_shapes(PICTURE)
    assert set(compiled(model).facts["ops"]) <= {"DEQUANTIZE", "QUANTIZE", "RELU", "TRANSPOSE"}
    feeds = {"bytes": np.random.default_rng(2).integers(0, 256, (1, 8, 8, 3)).astype(np.uint8)}
    same_as_reference(model, load(model, "tflm", tmp_path), feeds)


def test_what_it_stands_in_for_and_the_arena_that_it_recorded(tmp_path: Path) -> None:
    model = classifier()
    runner = opened(compiled(quantized(model)), model, tmp_path)
    assert stands_in_for(runner) == "a microcontroller"
    assert runner.facts() == {}
    runner.run(pictures(1)[0])
    facts = runner.facts()
    recorded = facts["arena"]["recorded_bytes"]
    assert recorded["total"] == recorded["head"] + recorded["tail"]
    assert recorded["total"] <= facts["arena"]["bytes"] <= 1.05 * recorded["total"]
    assert facts["memory_bytes"] == {"ram": facts["arena"]["bytes"]}


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("name", "shape"), [("vww_96_int8", (1, 96, 96, 3)), ("resnet8_cifar10_int8_qdq", (1, 32, 32, 3))]
)
def test_the_arena_of_trained_networks(
    name: str, shape: tuple[int, ...], shared: Path, tmp_path: Path
) -> None:
    """At most what TFLM recorded and 5 %: what an app declares, and what a board's RAM is held against."""
    model = open_model(shared / "models" / f"{name}.onnx")
    run_passes(model)
    runner = load(model, "tflm", tmp_path)
    (given,) = model.graph.inputs
    assert given.dtype is not None
    runner.run({str(given.name): np.zeros(shape, given.dtype.numpy())})
    arena = runner.facts()["arena"]
    assert arena["bytes"] <= 1.05 * arena["recorded_bytes"]["total"]


def test_what_is_out_of_range_is_saturated(tmp_path: Path) -> None:
    model = classifier()
    runner = opened(compiled(quantized(model)), model, tmp_path)
    huge = {"image": np.full((1, 3, 16, 16), 1e9, np.float32)}
    assert np.isfinite(runner.run(huge)["scores"]).all()


def test_a_damaged_file_is_an_engine_error(tmp_path: Path) -> None:
    model = classifier()
    artifact = compiled(quantized(model))
    short = artifact._replace(files={FILE: artifact.files[FILE][:400]})
    with pytest.raises(EngineError) as error:
        opened(short, model, tmp_path)
    assert str(error.value).startswith("TFLite Micro ")


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    model, other = classifier(), with_shapes(SHUFFLED)
    with pytest.raises(EngineError) as error:
        opened(compiled(quantized(model)), other, tmp_path)
    assert str(error.value).endswith("model.tflite is not of this model: its inputs are image")


NUMBERS = """
<ir_version: 10, opset_import: ["": 23]>
numbers (int64[1,4] k) => (int64[4] y) <int64[1] flat = {4}> { y = Reshape(k, flat) }
"""


def test_integers_that_the_file_cannot_hold(tmp_path: Path) -> None:
    """The file holds 64 bits as 32."""
    runner = load(with_shapes(NUMBERS), "tflm", tmp_path)
    given = np.array([[1, -2, 3, 4]])
    assert runner.run({"k": given})["y"].tolist() == [1, -2, 3, 4]
    with pytest.raises(EngineError) as error:
        runner.run({"k": given << 32})
    assert str(error.value) == (
        "k contains -8589934592 to 17179869184, but the .tflite file stores it as int32"
    )


def test_an_arena_that_never_does_ends_at_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def too_small(content: bytes, arena: int) -> tuple[None, str]:
        assert arena <= run.LARGEST_ARENA_BYTES
        tried.append(arena)
        return None, "Failed to resize buffer"

    monkeypatch.setattr(run, "_interpreter", too_small)
    with pytest.raises(EngineError) as failure:
        run.load(b"", "model.tflite")
    assert str(failure.value) == f"{run.engine_version()} did not load model.tflite: Failed to resize buffer"
    assert tried == [run.FIRST_ARENA_BYTES << 2 * step for step in range(7)]
