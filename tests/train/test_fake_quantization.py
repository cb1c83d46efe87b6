"""A module with fake quantization answers as the Q/DQ graph that is built from it, trained or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import edgekit
from edgekit.compiler.compress.int8_placement import place_int8
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.compiler.model.reference import Reference
from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import Graph, samples_for

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.needs_ort

TARGETS = ("ort", "openvino", "tflite", "coreml", "tensorrt")
SAMPLES = 16


def network(folder: Path) -> ir.Model:
    """Convs, one of them depthwise, two branches joined, a gate, and numbers."""
    graph = Graph({"x": [1, 3, 8, 8]})
    a = graph("HardSwish", graph.conv("x", 8, 3, 3))
    b = graph("Relu", graph.conv(graph("Relu", graph.conv(a, 8, 8, 3, groups=8)), 8, 8))
    joined = graph("Concat", graph("Add", a, b), graph("MaxPool", b, kernel_shape=[1, 1]), axis=1)
    gate = graph("Sigmoid", graph.conv(graph("GlobalAveragePool", joined), 16, 16))
    pooled = graph("Flatten", graph("GlobalAveragePool", graph("Mul", joined, gate)))
    hidden = graph("Relu", graph("Gemm", pooled, graph.weights(12, 16), graph.weights(12), transB=1))
    return graph.model(folder, graph("Gemm", hidden, graph.weights(4, 12), graph.weights(4), transB=1))


def decibels(found: Array, wanted: Array) -> float:
    return float(10 * np.log10(np.sum(wanted**2) / max(np.sum((found - wanted) ** 2), 1e-30)))


def answers(run: Any, samples: list[dict[str, Array]]) -> Array:
    return np.concatenate([next(iter(run(sample).values())) for sample in samples])


def batch_of(samples: list[dict[str, Array]]) -> dict[str, Any]:
    return {name: torch.from_numpy(np.stack([each[name] for each in samples])) for name in samples[0]}


@pytest.mark.parametrize("target", TARGETS)
def test_it_answers_as_the_int8_graph(tmp_path: Path, target: str) -> None:
    """A rounding step here and there may differ, where sums in another order fall on two sides of a half."""
    from edgekit.compiler.compress.torch import FakeQuantizedModule

    torch.manual_seed(0)
    model, name = network(tmp_path), ""
    samples = samples_for(model, SAMPLES)
    module = FakeQuantizedModule(place_int8(model, target, samples))
    wanted = answers(Reference(model).run, samples)
    before = {key: each.array() for key, each in module._learned.items()}
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    losses = []
    for step in range(12):
        (name, made), *_ = module(batch_of(samples)).items()
        if step in (0, 11):
            graph = module.write_back()
            int8 = answers(Reference(graph).run, samples)
            found = made.detach().numpy().reshape(int8.shape)
            assert decibels(found, int8) > 35
            assert np.median(np.abs(found - int8)) < np.median(np.abs(wanted - int8)) / 5
        loss = (made.reshape(wanted.shape) - 2 * torch.from_numpy(wanted)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert name == str(model.graph.outputs[0].name)
    assert losses[-1] < losses[0]
    after = {key: each.array() for key, each in module._learned.items()}
    assert before
    assert all((before[key] != after[key]).any() for key in before)
    assert all(p.grad is not None for p in module.parameters())


def test_scales_are_kept_by_a_build(tmp_path: Path) -> None:
    """From a module of PyTorch to a bundle: what was trained is what the engine computes."""
    pytest.importorskip("onnxscript")
    from edgekit.compiler.compress.torch import fake_quantize

    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(128, 3),
    )  # fmt: skip
    module.eval()
    samples = [torch.randn(1, 1, 8, 8) for _ in range(SAMPLES)]
    quantized = fake_quantize(module, "ort", samples)
    x = torch.cat(samples)
    assert decibels(quantized(x).detach().numpy(), module(x).detach().numpy()) > 20
    optimizer = torch.optim.SGD(quantized.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(quantized(x), torch.arange(SAMPLES) % 3).backward()
        optimizer.step()
    path = tmp_path / "trained.onnx"
    path.write_bytes(quantized.to_onnx())
    bundle = edgekit.build(path, targets=["ort"], precision="int8", force=True)
    with Session(bundle) as session:
        (name,) = [spec.name for spec in session.outputs]
        answered = np.concatenate([session.run({"input": each.numpy()})[name] for each in samples])
    assert decibels(quantized(x).detach().numpy(), answered) > 35
    kept = scales_of(open_bytes(quantized.to_onnx(), "trained"))
    learned = {float(each.array()) for each in quantized.graph._learned.values()}
    assert learned
    assert learned <= kept


def scales_of(model: ir.Model) -> set[float]:
    found = set()
    for node in model.graph:
        if node.op_type == "QuantizeLinear" and node.inputs[1] is not None and node.inputs[1].const_value:
            found.add(float(node.inputs[1].const_value.numpy()))
    return found


def test_what_is_refused(tmp_path: Path) -> None:
    from edgekit.compiler.compress.torch import fake_quantize

    with pytest.raises(UsageError, match="fake_quantize needs 16 or more samples"):
        fake_quantize(None, "ort", [])
    graph = Graph({"x": [1, 4]})
    model = graph.model(tmp_path, graph("Relu", "x"))
    with pytest.raises(UsageError, match="ort runs no node of this model on integers"):
        place_int8(model, "ort", samples_for(model, 4))


def test_zero_points_move_to_where_the_values_are(tmp_path: Path) -> None:
    """Ranges of inputs that were larger: with the zero points alone, less is clipped."""
    from edgekit.compiler.compress.torch import FakeQuantizedModule

    graph = Graph({"x": [1, 3, 8, 8]})
    model = graph.model(tmp_path, graph.conv(graph.conv("x", 8, 3, 3), 4, 8))
    samples = samples_for(model, SAMPLES)
    larger = [{name: array + 2 for name, array in sample.items()} for sample in samples]
    module = FakeQuantizedModule(place_int8(model, "ort", larger))
    moved = [each.zero_point_shift for each in module._zeros.values()]
    optimizer, wanted, losses = torch.optim.Adam(moved, lr=0.05), answers(Reference(model).run, samples), []
    for _ in range(40):
        (made,) = module(batch_of(samples)).values()
        loss = (made.reshape(wanted.shape) - torch.from_numpy(wanted)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    int8 = answers(Reference(module.write_back()).run, samples)
    (made,) = module(batch_of(samples)).values()
    assert decibels(made.detach().numpy().reshape(int8.shape), int8) > 35
