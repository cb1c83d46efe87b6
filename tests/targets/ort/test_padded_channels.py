"""A Conv of few channels reads more of them, and computes the same integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_ort.compile import compile_model
from edgekit_ort.fast_forms import with_padded_channels
from edgekit_ort.quant_rules import rules

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights

pytestmark = pytest.mark.needs_ort


def quantized(folder: Path, channels: int, groups: int = 1, size: int = 3) -> ir.Model:
    """Return a Conv of so many channels, whose input a Relu reads too, with pairs."""
    g = Graph({"x": (1, channels, 9, 10)})
    first = g.conv("x", 8, channels, size, groups)
    model = g.model(folder, g.conv(first, 4, 8), g("Relu", "x"))
    given = rules(find_profile("ort"))
    return emit(model, with_weights(model, place(model, given, seen(model), NEAREST), given), given)


def widths(model: ir.Model) -> list[int]:
    """Return the number of input channels of each Conv's weights."""
    return [(static_dims(node.inputs[1]) or ())[1] for node in model.graph if node.op_type == "Conv"]


@pytest.mark.parametrize(("channels", "padded"), [(1, 4), (2, 4), (3, 4), (5, 8), (6, 8), (7, 8)])
def test_few_channels_are_padded(tmp_path: Path, channels: int, padded: int) -> None:
    model = quantized(tmp_path, channels)
    before = save_model(model)
    wider = with_padded_channels(model)
    assert (widths(model)[0], widths(wider)) == (channels, [padded, 8])
    assert save_model(model) == before
    for sample in samples_for(model):
        exact, ours = Reference(model).run(sample), Reference(wider).run(sample)
        assert all(np.array_equal(exact[name], ours[name]) for name in exact)
    named = {node_name(node) for node in model.graph if node.op_type == "Conv"}
    assert named == {node_name(node) for node in wider.graph if node.op_type == "Conv"}
    used = {value.name for node in wider.graph for value in node.inputs if value is not None}
    assert set(wider.graph.initializers) <= used


@pytest.mark.parametrize(
    ("channels", "groups", "size"), [(4, 1, 3), (8, 1, 3), (9, 1, 3), (4, 4, 3), (1, 1, 7)]
)
def test_other_convs_stay(tmp_path: Path, channels: int, groups: int, size: int) -> None:
    model = quantized(tmp_path, channels, groups, size)
    assert with_padded_channels(model) is model


def test_a_float_conv_stays(tmp_path: Path) -> None:
    g = Graph({"x": (1, 3, 9, 10)})
    model = g.model(tmp_path, g.conv("x", 8, 3))
    assert with_padded_channels(model) is model


def test_the_engine_runs_it_on_integers(tmp_path: Path) -> None:
    import onnx

    model = quantized(tmp_path, 3)
    artifact = compile_model(model, find_profile("ort"), "fp32")
    nodes = onnx.ModelProto.FromString(artifact.files["model.onnx"]).graph.node
    assert [node.op_type for node in nodes].count("Pad") == 1
