"""The graph without some channels answers as the graph in which nothing reads them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.compress.channel_groups import (
    Channels,
    CostOfChannels,
    find_channels,
    multiplications,
    weight_bytes,
)
from edgekit.compiler.compress.remove_channels import remove_channels
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.tensor_spec import Array
from tests.compiler.compress.random_networks import random_network
from tests.fixtures.graphs import Graph, samples_for

pytestmark = pytest.mark.needs_ort


def zeroed(channels: Channels, removed: list[int]) -> dict[tuple[str, int], Array]:
    """The weights of all readers with the columns of removed channels at zero."""
    weights: dict[tuple[str, int], Array] = {}
    for use in channels.labels.uses:
        if use.role == "input":
            key = (str(use.node.outputs[0].name), use.index)
            array = array_of(use.node.inputs[use.index])
            assert array is not None
            first = np.moveaxis(weights.get(key, array).copy(), use.axis, 0)
            first[np.isin(channels.labels.roots(use.ids), removed)] = 0
            weights[key] = np.moveaxis(first, 0, use.axis)
    return weights


def drawn(channels: Channels, seed: int) -> list[int]:
    """At random, and never all units of a group."""
    rng = np.random.default_rng(seed)
    found: list[int] = []
    for group in channels.groups:
        found += rng.permutation(group.units)[: rng.integers(len(group.units))].tolist()
    return found


@pytest.mark.parametrize("seed", range(60))
def test_pruned_is_zeroed(tmp_path: Path, seed: int) -> None:
    model = random_network(tmp_path, seed)
    channels = find_channels(model)
    removed = drawn(channels, seed)
    pruned = remove_channels(model, removed)
    left = remove_channels(model, [], zeroed(channels, removed))
    for sample in samples_for(model, 2):
        a, b = Reference(left).run(sample), Reference(pruned).run(sample)
        for name in a:
            assert np.allclose(a[name], b[name], rtol=2e-4, atol=1e-5 * np.abs(a[name]).max())
    assert Counter(n.op_type for n in pruned.graph) == Counter(n.op_type for n in model.graph)
    assert [(v.name, static_dims(v)) for v in pruned.graph.outputs] == [
        (v.name, static_dims(v)) for v in model.graph.outputs
    ]
    if removed:
        assert multiplications(pruned) < multiplications(model)
        assert weight_bytes(pruned) < weight_bytes(model)


def test_random_networks_have_every_kind_of_group(tmp_path: Path) -> None:
    """Or the test above would prove little."""
    ops: Counter[str] = Counter()
    for seed in range(20):
        channels = find_channels(random_network(tmp_path, seed))
        for group in channels.groups:
            for value, labels in channels.labels.labels.items():
                if np.isin(channels.labels.roots(labels.ids), group.units).any():
                    ops.update({use.node.op_type for use in value.uses()})
            ops["attention heads"] += group.channels == 4 and group.outputs[0].node.op_type == "MatMul"
    wanted = """
        Conv Gemm MatMul Add Mul Concat Split Slice DepthToSpace Resize InstanceNormalization PRelu Attention
    """
    assert {"attention heads", *wanted.split()} <= {op for op, count in ops.items() if count}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["multiplications", "bytes"])
def test_what_is_saved_is_what_the_smaller_graph_lacks(tmp_path: Path, seed: int, kind: str) -> None:
    """Of nodes with weights: products of two values are not counted as saved."""
    model = random_network(tmp_path, seed)
    channels = find_channels(model)
    cost = CostOfChannels(channels, "bytes" if kind == "bytes" else "multiplications")
    saved, removed = 0.0, []
    for group in channels.groups:
        units = len(group.units) // 2
        saved += cost.saving(group, units)
        cost.remove(group, units)
        removed += group.units[:units].tolist()
    pruned = remove_channels(model, removed)
    assert saved == pytest.approx(_of_weights(model, kind) - _of_weights(pruned, kind), rel=1e-6)


def _of_weights(model: ir.Model, kind: str) -> float:
    total = 0.0
    for node in model.graph:
        weights = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
        if weights is not None and node.op_type in ("Conv", "Gemm", "MatMul"):
            dims = static_dims(node.outputs[0])
            assert dims is not None
            rows = np.prod(dims[2:]) if node.op_type == "Conv" else np.prod(dims[:-1])
            total += weights.nbytes if kind == "bytes" else weights.size * rows
    return total


def test_what_needs_all_channels_closes_them(tmp_path: Path) -> None:
    graph = Graph({"x": [1, 3, 4, 4]})
    a, b, c = (graph("Relu", graph.conv("x", 8, 3)) for _ in range(3))
    normalized = graph("LayerNormalization", graph("Transpose", b, perm=[0, 2, 3, 1]), np.ones(8, np.float32))
    back = graph("Transpose", normalized, perm=[0, 3, 1, 2])
    model = graph.model(tmp_path, graph.conv(a, 2, 8), graph.conv(back, 2, 8), c)
    groups = find_channels(model).groups
    assert [group.outputs[0].node.outputs[0].name for group in groups] == [graph._nodes[0].output[0]]


def test_a_shared_constant_is_cut_for_its_reader_alone(tmp_path: Path) -> None:
    graph = Graph({"x": [1, 3, 4, 4], "y": [1, 8, 4, 4]})
    scale = graph.constant(np.arange(1, 9, dtype=np.float32).reshape(8, 1, 1))
    made = graph("Mul", graph("Sigmoid", graph.conv("x", 8, 3)), scale)
    model = graph.model(tmp_path, graph.conv(made, 2, 8), graph("Mul", "y", scale))
    channels = find_channels(model)
    pruned = remove_channels(model, channels.groups[0].units[:3].tolist())
    (sample,), name = samples_for(model, 1), str(model.graph.outputs[1].name)
    assert np.array_equal(Reference(pruned).run(sample)[name], Reference(model).run(sample)[name])
