"""``edgekit model shrink``: a network with channels to spare, and one without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import edgekit
from edgekit.compiler.compress.channel_groups import multiplications
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.shrink import ModelTimer
from edgekit.errors import SampleError, UsageError
from tests.fixtures.graphs import Graph
from tests.fixtures.spare_networks import samples, spare_network

pytestmark = pytest.mark.needs_ort


def test_channels_that_others_make_up_go_without_loss(tmp_path: Path) -> None:
    found = edgekit.shrink(spare_network(tmp_path), flops="-30%", samples=samples(), targets=["ort"])
    before, after = found.multiplications
    assert after <= 0.7 * before
    assert found.fidelity.snr_db > 25
    assert found.weight_bytes[1] < found.weight_bytes[0]
    assert found.groups[0].before == 32
    assert found.groups[0].after == 16
    assert set(found.latency) == {"ort"}


def test_the_file_is_the_model_that_was_judged(tmp_path: Path) -> None:
    path = spare_network(tmp_path)
    found = edgekit.shrink(path, size="-30%", samples=samples(), targets=["ort"])
    found.save(tmp_path / "smaller.onnx")
    onnx.checker.check_model(str(tmp_path / "smaller.onnx"), full_check=True)
    smaller, model = edgekit.open_model(tmp_path / "smaller.onnx"), edgekit.open_model(path)
    (sample,) = samples(1)
    (a,), (b,) = (Reference(one).run(sample).values() for one in (model, smaller))
    assert 10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()) > 20
    assert [v.name for v in smaller.graph.outputs] == [v.name for v in model.graph.outputs]


def test_the_same_twice(tmp_path: Path) -> None:
    path = spare_network(tmp_path, spare=False)
    once, again = (edgekit.shrink(path, flops=0.2, samples=samples(), targets=["ort"]) for _ in range(2))
    assert once.onnx == again.onnx


def test_latency_is_reached_by_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's times are replaced by the multiplications: what is measured decides."""
    path = spare_network(tmp_path)

    class ByMultiplications(ModelTimer):
        def ratios(self, model: ir.Model, only: str = "") -> dict[str, float]:
            return {"ort": multiplications(model) / total}

    total = edgekit.shrink(path, flops=0.2, samples=samples(), targets=["ort"]).multiplications[0]
    monkeypatch.setattr("edgekit.compiler.pipeline.shrink.ModelTimer", ByMultiplications)
    found = edgekit.shrink(path, latency="-30%@ort", samples=samples())
    assert 0.45 < found.multiplications[1] / total <= 0.7


def test_a_latency_that_cannot_be_measured_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelTimer, "ratios", lambda *_: {})
    with pytest.raises(UsageError, match=r"cannot be reached: .* fewer multiplications are not enough"):
        edgekit.shrink(spare_network(tmp_path), latency="-30%@ort", samples=samples(), trusted=True)


@pytest.mark.parametrize("half", [False, True])
def test_tokens_and_half_floats(tmp_path: Path, half: bool) -> None:
    """An MLP on tokens whose second product has no bias, in float32 and float16."""
    graph = Graph({"x": [1, 3, 12, 12]}, seed=9)
    wide = graph.weights(12, 64)
    wide[:, 32:] = wide[:, :32][:, ::-1] * 0.5
    x = graph("Cast", "x", to=10) if half else "x"
    dtype = np.float16 if half else np.float32
    hidden = graph("Add", graph("MatMul", x, wide.astype(dtype)), graph.weights(64).astype(dtype))
    made = graph("MatMul", hidden, graph.weights(64, 5).astype(dtype))
    path = tmp_path / "mlp.onnx"
    path.write_bytes(save_model(graph.model(tmp_path, graph("Cast", made, to=1) if half else made)))
    found = edgekit.shrink(path, flops="-40%", samples=samples(), targets=["ort"])
    assert found.groups[0].after <= 40
    assert found.fidelity.snr_db > (25 if half else 30)  # of the worst channel


def test_what_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as found:
        edgekit.shrink(spare_network(tmp_path), flops="-99%", samples=samples(), targets=["ort"])
    assert str(found.value) == (
        "99 % fewer multiplications cannot be reached: all groups together are smaller than that\n"
        "  2 of 2 groups of channels can be removed; ask for less"
    )


def test_no_channels_to_remove(tmp_path: Path) -> None:
    graph = Graph({"x": [1, 3, 4, 4]})
    path = tmp_path / "one.onnx"
    path.write_bytes(save_model(graph.model(tmp_path, graph.conv("x", 4, 3))))
    given = [{"x": sample["x"][:, :, :4, :4].copy()} for sample in samples(6)]
    with pytest.raises(UsageError) as found:
        edgekit.shrink(path, flops="-20%", samples=given, targets=["ort"])
    assert str(found.value).startswith("no channels can be removed: each Conv, Gemm and")


def test_too_few_samples(tmp_path: Path) -> None:
    with pytest.raises(SampleError) as found:
        edgekit.shrink(spare_network(tmp_path), flops="-20%", samples=samples(2), targets=["ort"])
    assert str(found.value).endswith("at least four different samples are needed; 64 to 128 are better")
