from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.random_samples import random_arrays, sample_ranges
from edgekit.compiler.evaluate.samples import random_samples
from edgekit.compiler.model.input_range import InputRange
from edgekit.errors import EngineError
from edgekit.processing.card import parse_card
from edgekit.tensor_spec import TensorSpec
from tests.fixtures import models

TOKENS = TensorSpec("tokens", "int64", (1, 4096))
FOUND = {"tokens": InputRange(0, 30521, "node look uses it as an index  (Gather)")}


def limits(spec: TensorSpec, found: dict[str, InputRange] = {}) -> tuple[float, float]:  # noqa: B006
    array = random_samples([spec], graph_ranges=found).arrays[0][spec.name]
    return float(array.min()), float(array.max())


def test_the_ranges_of_the_graph_are_used_and_told() -> None:
    low, high = limits(TOKENS, FOUND)
    assert low < 50
    assert 30000 < high <= 30521
    assert random_samples([TOKENS], graph_ranges=FOUND).as_json()["ranges"] == {
        "tokens": {"range": [0, 30521], "why": "node look uses it as an index  (Gather)"}
    }


def test_the_card_comes_before_the_graph() -> None:
    tensor = {"kind": "tensor", "shape": [1, 4096], "range": [5, 9]}
    card = parse_card({"title": "c", "inputs": {"tokens": tensor}})
    samples = random_samples([TOKENS], card, graph_ranges=FOUND)
    assert sorted(np.unique(samples.arrays[0]["tokens"])) == [5, 6, 7, 8, 9]
    assert "ranges" not in samples.as_json()


@pytest.mark.parametrize("name", ["attention_mask", "input_mask", "MASK"])
def test_a_mask_is_0_or_1_and_nothing_is_said(name: str) -> None:
    spec = TensorSpec(name, "int64", (1, 64))
    assert limits(spec) == (0, 1)
    assert "ranges" not in random_samples([spec]).as_json()


def test_a_guess_is_told_with_what_to_give() -> None:
    spec = TensorSpec("lengths", "int32", (1, 8))
    assert sample_ranges([spec], None, {})["lengths"] == InputRange(
        0,
        1,
        "a guess, since the graph does not bound it; add samples, or in a card [inputs.lengths] kind = "
        '"tensor", shape = [1, 8], range = [0, 100]',
    )


def test_a_range_is_cut_to_what_the_dtype_holds() -> None:
    spec = TensorSpec("x", "uint8", (4096,))
    (array,) = random_arrays([spec], {"x": InputRange(-5, 1000, "")}, count=1)
    assert (array["x"].min(), array["x"].max()) == (0, 255)


EMBEDDING = """
<ir_version: 8, opset_import: ["": 17]>
embedding (int64[1,16] tokens) => (float[1,16,4] y)
{
    size = Constant<value = int64[2] {1000, 4}>()
    ones = ConstantOfShape<value = float[1] {1}>(size)
    [look] y = Gather(ones, tokens)
}
"""


@pytest.mark.needs_ort
def test_a_build_tells_the_range_of_an_index(tmp_path: Path) -> None:
    bundle = edgekit.build(models.write(tmp_path, EMBEDDING), targets=["ort"])
    (given,) = bundle.manifest["samples"]["ranges"].values()
    assert given["range"] == [0, 999]
    assert "  note      random values of tokens go from 0 to 999: node " in bundle.report
    assert bundle.golden[0][0]["tokens"].max() > 1


OUT_OF_BOUNDS = """
<ir_version: 8, opset_import: ["": 17]>
strict (int64[1] x) => (float[1] y)
{
    table = Constant<value = float[4] {0, 1, 2, 3}>()
    far = Constant<value = int64[1] {4}>()
    squared = Mul(x, x)
    index = Add(squared, far)
    y = Gather(table, index)
}
"""


@pytest.mark.needs_ort
def test_random_values_that_a_model_refuses_are_told(tmp_path: Path) -> None:
    """The square of an input is not followed."""
    with pytest.raises(EngineError) as error:
        edgekit.build(models.write(tmp_path, OUT_OF_BOUNDS), targets=["ort"])
    text = str(error.value)
    assert (
        "; the inputs were random\n  x from 0 to 1: a guess, since the graph does not bound it; add" in text
    )
