"""The graph in PyTorch answers as ONNX Runtime does, its gradients are right, and its weights go back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.compiler.compress.torch.trained_weights import first_weights, trained_weights
from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.errors import ModelError, UnsupportedError, UsageError
from edgekit.tensor_spec import Array
from tests.compiler.compress.random_networks import random_network
from tests.conformance.grid import CASES, judge
from tests.fixtures.graphs import Graph, samples_for

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.needs_ort

FAMILIES = ("conv", "pool", "math", "reduce", "shape", "index", "resize", "matmul", "norm", "blocks")
NO_FORM = 93
"""Cases of these families that have no form in PyTorch here; others were added where a model needed them."""


def batch_of(feeds: list[dict[str, Array]]) -> dict[str, Any]:
    return {name: torch.from_numpy(np.stack([feed[name] for feed in feeds])) for name in feeds[0]}


def answers(module: Any, feeds: list[dict[str, Array]]) -> list[dict[str, Array]]:
    with torch.no_grad():
        made = module(batch_of(feeds))
    return [{name: made[name][k].numpy() for name in made} for k in range(len(feeds))]


def test_every_operator_answers_as_onnx_runtime_does(tmp_path: Path) -> None:
    """Of the conformance cases, all that have a form here; a batch of two samples at once."""
    from edgekit.compiler.compress.torch import OnnxModule

    refused, wrong, judged = [], [], 0
    for key, case in CASES.items():
        if key.partition("/")[0] not in FAMILIES:
            continue
        path = tmp_path / "case.onnx"
        path.write_bytes(case.model().SerializeToString())
        try:
            model = open_model(path)
            run_passes(model)
            module = OnnxModule(model)
        except (ModelError, UnsupportedError, UsageError) as refusal:
            refused.append(f"{key}: {refusal}")
            continue
        feeds = [case.feeds(seed) for seed in (0, 1)]
        try:
            outcome = judge(case, [Reference(model).run(feed) for feed in feeds], answers(module, feeds))
        except Exception as fault:
            wrong.append(f"{key}: {type(fault).__name__} {fault}")
            continue
        judged += 1
        if outcome.kind != "pass":
            wrong.append(f"{key}: {outcome.detail}")
    assert wrong == []
    assert len(refused) <= NO_FORM
    assert judged > 1150


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_and_their_gradients(tmp_path: Path, seed: int) -> None:
    """A batch answers as its samples do; gradients are those of the outputs' differences, in float64."""
    from edgekit.compiler.compress.torch import OnnxModule

    model = random_network(tmp_path, seed)
    module, feeds = OnnxModule(model), samples_for(model, 3)
    for sample, made in zip(feeds, answers(module, feeds), strict=True):
        for name, expected in Reference(model).run(sample).items():
            assert np.allclose(made[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    module.double()
    module._constants = {n: t.double() if t.is_floating_point() else t for n, t in module._constants.items()}
    batch = {name: tensor.double() for name, tensor in batch_of(feeds).items()}

    def loss() -> Any:
        return sum((each**2).mean() for each in module(batch).values())

    loss().backward()
    rng, step = np.random.default_rng(seed), 1e-6
    for name in rng.choice(module.trained, 4):
        weight = module.parameter(str(name))
        slope = torch.from_numpy(rng.normal(0, 1, weight.shape))
        with torch.no_grad():
            weight += step * slope
            above = loss()
            weight -= 2 * step * slope
            below = loss()
            weight += step * slope
        along = float((weight.grad * slope).sum())
        assert float(above - below) / (2 * step) == pytest.approx(along, rel=1e-3, abs=1e-6)


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    "name",
    ["resnet8_cifar10_fp32", "vww_96_float", "kws_ref_model_float32", "yolox_nano", "efficientnet_lite0"],
)
def test_real_networks(shared: Path, name: str) -> None:
    from edgekit.compiler.compress.torch import OnnxModule

    model = open_model(shared / "models" / f"{name}.onnx")
    run_passes(model)
    model = with_float_weights(model)
    feeds = samples_for(model, 1)
    (made,) = answers(OnnxModule(model), feeds)
    for output, expected in Reference(model).run(feeds[0]).items():
        noise = ((made[output] - expected) ** 2).sum()
        assert 10 * np.log10((expected**2).sum() / noise) > 80


def picture_network(folder: Path) -> Any:
    """A Conv on transposed pixels, a bias added to a product, and a scale that is no weight."""
    graph = Graph({"x": [1, 6, 6, 3]})
    conv = graph("Relu", graph.conv(graph("Transpose", "x", perm=[0, 3, 1, 2]), 4, 3, 3))
    pooled = graph("Flatten", graph("GlobalAveragePool", conv))
    product = graph("Add", graph("MatMul", pooled, graph.weights(4, 5)), graph.weights(5))
    return graph.model(folder, graph("Mul", product, graph.weights(5)))


def test_weights_and_what_is_none(tmp_path: Path) -> None:
    model = picture_network(tmp_path)
    shapes = [array_of(model.graph.initializers[name]).shape for name in trained_weights(model)]  # type: ignore[union-attr]
    assert shapes == [(4, 3, 3, 3), (4,), (4, 5), (5,)]
    assert first_weights(model) == {trained_weights(model)[0]: "x"}


def test_weights_go_back_into_the_same_graph(tmp_path: Path) -> None:
    """With and without a scale; the module that is written answers as the one that was trained."""
    from edgekit.compiler.compress.torch import OnnxModule

    model = picture_network(tmp_path)
    before = save_model(model)
    first = next(iter(first_weights(model)))
    module = OnnxModule(model, scales={first: 128.0})
    array = array_of(model.graph.initializers[first])
    assert array is not None
    assert np.allclose(module.weights()[first].detach(), array)
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    feeds = samples_for(model, 4)
    module(batch_of(feeds))[str(model.graph.outputs[0].name)].pow(2).sum().backward()
    optimizer.step()
    written = module.write_back()
    assert save_model(model) == before
    path = tmp_path / "trained.onnx"
    path.write_bytes(save_model(written))
    onnx.checker.check_model(str(path), full_check=True)
    opened = open_model(path)
    assert [node.op_type for node in opened.graph] == [node.op_type for node in model.graph]
    for sample, made in zip(feeds, answers(module, feeds), strict=True):
        for name, expected in Reference(opened).run(sample).items():
            assert np.allclose(made[name], expected, rtol=1e-4, atol=1e-5)
            assert not np.allclose(made[name], Reference(model).run(sample)[name], rtol=1e-3)


def test_hooks(tmp_path: Path) -> None:
    """Of a value, of what one node reads, and of a weight; a module's parameters are trained too."""
    from edgekit.compiler.compress.torch import OnnxModule

    model = picture_network(tmp_path)
    relu = next(node for node in model.graph if node.op_type == "Relu")
    pool = next(node for node in model.graph if node.op_type == "GlobalAveragePool")
    value, node = str(relu.outputs[0].name), str(pool.outputs[0].name)
    feeds = samples_for(model, 2)
    output = str(model.graph.outputs[0].name)

    def asked(place: Any, transform: Any) -> tuple[Array, Array]:
        module = OnnxModule(model)
        module.hook(place, transform)
        with torch.no_grad():
            made = module(batch_of(feeds), [value])
        return made[value].numpy(), made[output].numpy()

    plain = OnnxModule(model)(batch_of(feeds), [value])
    seen, all_of_it = asked(value, lambda x: 2 * x)
    assert np.allclose(seen, 2 * plain[value].detach())
    unseen, part_of_it = asked((node, 0), lambda x: 2 * x)
    assert np.allclose(unseen, plain[value].detach())
    assert np.allclose(part_of_it, all_of_it)
    weight = trained_weights(model)[0]
    assert not np.allclose(asked(weight, lambda w: w * 0)[1], plain[output].detach())

    class Scale(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(()))

        def forward(self, x: Any) -> Any:
            return x * self.factor

    module, scale = OnnxModule(model), Scale()
    module.hook(value, scale)
    module(batch_of(feeds))[output].sum().backward()
    assert scale.factor.grad is not None
    assert any(parameter is scale.factor for parameter in module.parameters())
    with pytest.raises(KeyError):
        module.hook(value, scale)
    with pytest.raises(KeyError):
        module.hook("nothing", scale)


def test_nodes_without_a_form_are_named(tmp_path: Path) -> None:
    from edgekit.compiler.compress.torch import OnnxModule

    graph = Graph({"x": [1, 3, 6, 6]})
    y = graph("LRN", graph("Det", "x"), size=3)
    with pytest.raises(UnsupportedError) as found:
        OnnxModule(graph.model(tmp_path, graph("Relu", y)))
    assert str(found.value) == (
        "PyTorch cannot run 2 nodes of the model here, so it cannot be trained\n"
        "  Det_0: PyTorch does not support Det at opset 23\n"
        "  LRN_1: PyTorch does not support LRN at opset 23"
    )
    assert [each.code for each in found.value.findings] == ["EK1001", "EK1001"]


def test_half_floats(tmp_path: Path) -> None:
    from edgekit.compiler.compress.torch import OnnxModule

    graph = Graph({"x": [1, 4]})
    y = graph("MatMul", graph("Cast", "x", to=10), graph.weights(4, 4).astype(np.float16))
    with pytest.raises(UsageError) as refusal:
        OnnxModule(graph.model(tmp_path, graph("Cast", y, to=1)))
    assert str(refusal.value) == "weight constant0 is float16; training needs a float32 model"
