from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.search.sensitivity import MOST_PARTS, find_blocks, float_regions, part_to_split
from edgekit.target.quant_rules import Fusion, OpRule, Rules
from tests.fixtures import models

RULES = Rules(
    "test",
    "uint8",
    False,
    (OpRule("Conv", "own", "a test", inputs=(0,), weight=1, weight_axis=0, bias=2),),
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


def test_a_region_is_the_cheapest_that_has_enough_of_the_noise(model: ir.Model) -> None:
    blocks = find_blocks(model, find_kernels(model, RULES))
    noise = {(0, 1): 0.075, (1, 2): 0.02, (2, 3): 0.005}
    assert float_regions(model, blocks, noise) == [{"a", "b"}, {"a", "b", "c", "e"}]
    assert float_regions(model, blocks, noise, min_noise_share=0.76) == [{"a", "b", "c", "e"}]
    assert float_regions(model, blocks, {(0, 1): 0.01, (1, 2): 0.01, (2, 3): 0.08}) == [
        {"y"},
        {"c", "e", "y"},
    ]
    # What is float already costs nothing, and saves a border.
    assert float_regions(model, blocks, noise, {"a", "b"}) == [{"a", "b", "c", "e"}]


def test_an_island_in_the_middle_costs_two_borders(model: ir.Model) -> None:
    blocks = [replace(block, macs=10**5) for block in find_blocks(model, find_kernels(model, RULES))]
    alike = {(0, 1): 0.045, (1, 2): 0.045, (2, 3): 0.01}
    assert float_regions(model, blocks, alike)[0] == {"a", "b", "c", "e"}  # one border, not three
    assert float_regions(model, blocks, {(0, 1): 0.1, (1, 2): 0.8, (2, 3): 0.1})[0] == {"c", "e"}


def test_no_noise_no_island(model: ir.Model) -> None:
    blocks = find_blocks(model, find_kernels(model, RULES))
    assert float_regions(model, blocks, {(0, 1): 0.0, (1, 2): 0.0, (2, 3): 0.0}) == []


def test_the_noisiest_part_is_split_down_to_a_block() -> None:
    assert part_to_split({(0, 4): 0.6, (4, 5): 0.3}) == (0, 4)
    assert part_to_split({(0, 4): 0.4, (4, 8): 0.4}) is None
    assert part_to_split({}) is None
    many = {(index, index + 1): 0.01 for index in range(MOST_PARTS)}
    assert part_to_split({**many, (20, 40): 1.0}) is None
