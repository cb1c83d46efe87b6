"""Inputs of bytes: folded preparation, and pairs of bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.byte_input import byte_card, find_byte_input, fold_bytes, take_bytes
from edgekit.compiler.lowering.byte_pairs import with_bytes_read
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.image_preparation import from_bytes, prepare_image
from edgekit.processing.inputs.image import ImageInput
from tests.fixtures.models import parse
from tests.targets.engine_trial import with_shapes

CONV = """
<ir_version: 8, opset_import: ["": 17]>
conv (TYPE[1,CHANNELS,8,10] x) => (float[1,4,ROWS,COLUMNS] y)
{
    given = Cast<to=1>(x)
    weight = Constant<value = float[4,CHANNELS,3,3] {WEIGHTS}>()
    bias = Constant<value = float[4] {0.1,0.2,-0.1,0}>()
    y = Conv<pads=[PADS,PADS,PADS,PADS]>(given, weight, bias)
}
"""
NHWC = """
<ir_version: 8, opset_import: ["": 17]>
last (float[1,8,10,3] x) => (float[1,4,6,8] y)
{
    first = Transpose<perm=[0,3,1,2]>(x)
    weight = Constant<value = float[4,3,3,3] {WEIGHTS}>()
    y = Conv(first, weight)
}
"""
SUM = """
<ir_version: 8, opset_import: ["": 17]>
sum (float16[1,3,8,10] x) => (float16[1,3,8,10] y) { y = Add(x, x) }
"""
FRAME = np.random.default_rng(3).integers(0, 256, (31, 17, 3), dtype=np.uint8)


def network(text: str = CONV, dtype: str = "float", channels: int = 3, pads: int = 0) -> ir.Model:
    weights = np.random.default_rng(0).normal(0, 0.1, 4 * channels * 9).astype(np.float32)
    text = text.replace("WEIGHTS", ",".join(f"{w:.6f}" for w in weights)).replace("TYPE", dtype)
    text = text.replace("CHANNELS", str(channels)).replace("PADS", str(pads))
    return parse(text.replace("ROWS", str(6 + 2 * pads)).replace("COLUMNS", str(8 + 2 * pads)))


def card(**image: Any) -> Card:
    given = {
        "kind": "image",
        "shape": [1, 3, 8, 10],
        "layout": "NCHW",
        "colour": "RGB",
        "resize": "letterbox",
    }
    return parse_card({"title": "a card", "inputs": {"x": {**given, "pad": 114, **image}}})


LAST = {"shape": [1, 8, 10, 3], "layout": "NHWC"}
CASES: dict[str, tuple[ir.Model, dict[str, Any]]] = {
    "plain": (network(), {}),
    "BGR": (network(), {"colour": "BGR"}),
    "normalized": (network(), {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}),
    "normalized, BGR": (network(), {"colour": "BGR", "mean": [1, 2, 3.5], "std": [255, 254, 250]}),
    "padded": (network(pads=1), {"colour": "BGR", "mean": [123.675, 116.28, 103.53], "std": [58, 57, 56]}),
    "padded, one mean": (network(pads=1), {"mean": [127, 127, 127], "std": [128, 128, 128]}),
    "grey": (network(channels=1), {"shape": [1, 1, 8, 10], "colour": "GREY", "mean": [127.5], "std": [99]}),
    "channels last": (network(NHWC), {**LAST, "colour": "BGR", "std": [9, 8, 7]}),
    "half": (network(SUM), {"dtype": "float16", "mean": [1, 2, 3], "std": [255, 255, 255], "colour": "BGR"}),
    "int8": (network(dtype="int8"), {"dtype": "int8", "mean": [128, 127.5, 1], "std": [1, 1, 2]}),
    "uint8": (network(dtype="uint8"), {"dtype": "uint8"}),
    "int32": (network(dtype="int32"), {"dtype": "int32", "colour": "BGR"}),
}  # fmt: skip


@pytest.mark.needs_ort
@pytest.mark.parametrize("name", CASES)
def test_the_same_picture_gives_the_same_outputs(name: str) -> None:
    model, given = CASES[name]
    of_floats = card(**given)
    of_bytes = byte_card(of_floats, "x")
    image, taken = of_floats.inputs["x"], of_bytes.inputs["x"]
    assert isinstance(image, ImageInput)
    assert isinstance(taken, ImageInput)
    floats, pixels = prepare_image(image, FRAME), prepare_image(taken, FRAME)
    assert pixels.shape == (1, 8, 10, 1 if image.colour == "GREY" else 3)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(from_bytes(image, pixels), floats)
    expected = Reference(model).run({"x": floats})["y"]
    source = model.clone()
    take_bytes(source, image)
    np.testing.assert_array_equal(Reference(source).run({"x": pixels})["y"], expected)  # bit for bit
    canonical = model.clone()
    run_passes(canonical)
    fold_bytes(canonical, image)
    got = Reference(canonical).run({"x": pixels})["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert model.graph.inputs[0].shape == image.shape  # copies share nothing that was changed


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("plain", {"Transpose": 1, "Cast": 1, "Conv": 1}),
        ("normalized, BGR", {"Transpose": 1, "Cast": 1, "Conv": 1}),
        ("padded", {"Transpose": 1, "Cast": 1, "Sub": 1, "Conv": 1}),  # zero is not the mean
        ("channels last", {"Transpose": 1, "Cast": 1, "Conv": 1}),
        ("half", {"Gather": 1, "Transpose": 1, "Cast": 2, "Sub": 1, "Div": 1, "Add": 1}),
    ],
)
def test_what_folds_exactly_is_folded(name: str, operators: dict[str, int]) -> None:
    model, given = CASES[name]
    canonical, image = model.clone(), card(**given).inputs["x"]
    assert isinstance(image, ImageInput)
    run_passes(canonical)
    fold_bytes(canonical, image)
    assert Counter(node.op_type for node in canonical.graph) == operators


def test_weights_that_others_read_stay() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    two (float[1,3,8,10] x) => (float[1,2,8,10] y, float[1,3,8,10] z)
    {
        weight = Constant<value = float[2,3,1,1] {1,2,3,4,5,6}>()
        y = Conv(x, weight)
        z = Relu(x)
    }
    """
    model, image = parse(text), card(std=[2, 2, 2]).inputs["x"]
    assert isinstance(image, ImageInput)
    run_passes(model)
    fold_bytes(model, image)
    assert Counter(node.op_type for node in model.graph)["Div"] == 1


TENSOR = parse_card({"title": "a card", "inputs": {"x": {"kind": "tensor", "shape": [1]}}})


@pytest.mark.parametrize(
    ("io", "given", "message"),
    [
        (
            "uint8",
            None,
            "--io uint8 folds the card's image preparation into the model, so it needs a card; build with "
            "--card card.toml (edgekit model card MODEL -o card.toml drafts one)",
        ),
        (
            "uint8",
            TENSOR,
            "--io uint8 needs an image input, and a card does not describe one; build without it",
        ),
        ({"z": "uint8"}, card(), "--io z=uint8: not an image input; a card has x"),
    ],
)
def test_what_has_no_bytes(io: Any, given: Card | None, message: str) -> None:
    with pytest.raises(UsageError) as error:
        find_byte_input(io, given)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (
            '<ir_version: 8, opset_import: ["": 10]> m (int8[1,3,8,10] x) => (int8[1,3,8,10] y) '
            "{ y = Identity(x) }",
            {"dtype": "int8", "mean": [128, 128, 128]},
            "--io uint8: x is int8, which needs Round, and opset 10 does not have it; export the model "
            "with a newer opset",
        ),
        (
            '<ir_version: 8, opset_import: ["": 17]> m (float[1,3,8,10] x) => (float[1,3,8,10] x) {}',
            {},
            "--io uint8: input x is also an output; build without it",
        ),
    ],
)
def test_models_that_can_take_none(text: str, given: dict[str, Any], message: str) -> None:
    image = card(**given).inputs["x"]
    assert isinstance(image, ImageInput)
    with pytest.raises(UsageError) as error:
        take_bytes(parse(text), image)
    assert str(error.value) == message


def test_layouts_without_bytes_find_none() -> None:
    assert find_byte_input(None, card()) is None
    assert find_byte_input({"y": "nhwc"}, None) is None


PAIR = """
<ir_version: 10, opset_import: ["": 23]>
pair (uint8[1,2,3,3] x) => (float[1,2,3,3] y)
    <float scale = {SCALE}, DTYPE zero = {ZERO}, float less = {LESS}>
{
    real = Cast<to=1>(x)
    below = Sub(real, less)
    q = QuantizeLinear(below, scale, zero)
    d = DequantizeLinear(q, scale, zero)
    y = Relu(d)
}
"""


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("scale", "dtype", "zero", "less", "left"),
    [
        ("1", "uint8", 127, "127", {"DequantizeLinear": 1, "Relu": 1}),
        ("1", "uint8", 0, "0", {"DequantizeLinear": 1, "Relu": 1}),
        ("1", "int8", -1, "127", {"DequantizeLinear": 2, "QuantizeLinear": 1, "Relu": 1}),
        ("0.5", "uint8", 127, "127", None),
        ("1", "uint8", 126, "127", None),
        ("1", "uint8", 127, "127.5", None),
    ],
)
def test_only_what_changes_nothing(
    scale: str, dtype: str, zero: int, less: str, left: dict[str, int] | None
) -> None:
    text = PAIR.replace("SCALE", scale).replace("DTYPE", dtype).replace("ZERO", str(zero))
    model = with_shapes(text.replace("LESS", less))
    read = with_bytes_read(model)
    if left is None:
        assert read is model
        return
    assert Counter(node.op_type for node in read.graph) == left
    assert all(value.uses() for value in read.graph.initializers.values())
    feeds = {"x": np.random.default_rng(0).integers(0, 256, (1, 2, 3, 3), dtype=np.uint8)}
    np.testing.assert_array_equal(Reference(read).run(feeds)["y"], Reference(model).run(feeds)["y"])
