from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.search.sensitivity import find_blocks, float_regions
from edgekit.target.quant_rules import Fusion, OpRule, Rules
from tests.fixtures import models

RULES = Rules(
    "test",
    "uint8",
    False,
    (OpRule("Conv", "own", "a test", inputs=(0,), weight=1, weight_axis=0, bias=2, alone=True),),
    (Fusion((("Conv",), ("Relu",)), "a test"),),
)

CHAIN = """
<ir_version: 10, opset_import: ["": 23]>
chain (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,1,1] w = {1,2,3,4}, float[2,2,1,1] v = {1,2,3,4}, float[2,1,1,1] d = {1,2}>
{
    a = Conv(x, w)
    b = Relu(a)
    c = Conv<group = 2>(b, d)
    e = Relu(c)
    y = Conv(e, v)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> ir.Model:
    return open_model(models.write(tmp_path, CHAIN))


def test_blocks_are_kernels_with_weights_and_their_products(model: ir.Model) -> None:
    blocks = find_blocks(model, find_kernels(model, RULES))
    assert [(b.name, sorted(b.nodes), b.first, b.last, b.macs) for b in blocks] == [
        ("a", ["a", "b"], 0, 1, 64),
        ("c", ["c", "e"], 2, 3, 32),
        ("y", ["y"], 4, 4, 64),
    ]


def test_islands_are_closed_from_the_input_or_to_the_output(model: ir.Model) -> None:
    blocks = find_blocks(model, find_kernels(model, RULES))
    found = float_regions(model, blocks, {"a": 0.1, "c": 0.001, "y": 0.001})
    assert found[0] == {"a", "b"}  # nearly all of the damage for two fifths of the products
    assert {"a", "b", "c", "e"} in found
    assert all("y" in nodes or nodes <= {"a", "b", "c", "e"} for nodes in found)
    assert frozenset("abcey") not in found  # nothing would be left


def test_an_island_takes_away_what_is_needed(model: ir.Model) -> None:
    blocks = find_blocks(model, find_kernels(model, RULES))
    noise = {"a": 0.06, "c": 0.03, "y": 0.01}
    assert float_regions(model, blocks, noise) == [{"a", "b", "c", "e"}, {"a", "b"}]
    assert float_regions(model, blocks, noise, 0.65) == [{"a", "b", "c", "e"}]
    # Of what is float already nothing can be taken away.
    assert float_regions(model, blocks[1:], noise, 0.65) == [{"c", "e"}, {"a", "b", "c", "e"}]


def test_no_damage_no_island(model: ir.Model) -> None:
    blocks = find_blocks(model, find_kernels(model, RULES))
    assert float_regions(model, blocks, dict.fromkeys("acy", 0.0)) == []
