"""What --io asks for is noted on the values it is for, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.io_layouts import (
    EVERY,
    asks_for_integers,
    by_target,
    is_channels_last,
    lay_out,
    refuse_integers_in_float,
)
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse


@pytest.mark.parametrize(
    ("asked", "moved"),
    [
        (None, []),
        ({}, []),
        ("nchw", []),
        ("nhwc", ["image", "features"]),
        ({"image": "nhwc"}, ["image"]),
        ({EVERY: "nhwc", "image": "nchw"}, ["features"]),
        ({"image": "nchw", "scores": "nchw"}, []),
    ],
)
def test_every_value_of_four_axes_or_those_that_are_named(
    asked: str | Mapping[str, str] | None, moved: list[str]
) -> None:
    model = parse(SMALL_CNN)
    assert lay_out(model, asked, [resolve(find_profile("tflite"))]) == dict.fromkeys(moved, "nhwc")
    copy = model.clone()  # as compilers and the quantizer make them
    values = [*copy.graph.inputs, *copy.graph.outputs]
    assert [value.name for value in values if is_channels_last(value)] == moved


@pytest.mark.parametrize(
    ("asked", "targets", "message"),
    [
        ("nwhc", ["tflite"], "unknown layout 'nwhc'; available: nchw, nhwc, uint8, int8"),
        (
            {"img": "nhwc"},
            ["tflite"],
            "the model has no input or output 'img'; it has image, scores, features",
        ),
        ({"scores": "nhwc"}, ["tflite"], "scores has 2 axes; nhwc needs four"),
        (
            "nhwc",
            ["tflite", "ort"],
            "ort does not support --io nhwc; name the targets that do behind it, --io nhwc@TARGET",
        ),
        ("nhwc", ["ort"], "ort does not support --io nhwc; it supports nchw, uint8"),
        (
            {"scores": "int8"},
            ["tflm", "ort"],
            "ort does not support --io int8; name the targets that do behind it, --io int8@TARGET",
        ),
        (
            "nhwc@tflite,rpi5",
            ["tflite", "ort"],
            "--io nhwc@tflite,rpi5: the build has no target 'rpi5'; it has tflite, ort",
        ),
        ("nhwc@", ["tflite"], "--io nhwc@: the build has no target ''; it has tflite"),
        (
            {"image": "uint8@tflite"},
            ["tflite", "ort"],
            "--io uint8@tflite: bytes are the input of the whole bundle; write --io uint8, for all targets",
        ),
    ],
)
def test_what_cannot_be_obeyed(asked: str | Mapping[str, str], targets: Sequence[str], message: str) -> None:
    model = parse(SMALL_CNN)
    with pytest.raises(UsageError) as error:
        lay_out(model, asked, [resolve(find_profile(name)) for name in targets])
    assert str(error.value) == message
    assert not any(map(is_channels_last, (*model.graph.inputs, *model.graph.outputs)))


def test_a_layout_for_some_targets_is_not_the_others() -> None:
    model, asked = parse(SMALL_CNN), {EVERY: "nhwc@android-arm64,rpi5", "image": "nhwc@rpi5"}
    run_passes(model)
    targets = [resolve(find_profile(name)) for name in ("android-arm64", "rpi5", "ort")]
    layouts = lay_out(model, asked, targets)
    assert layouts == {"image": "nhwc@rpi5", "features": "nhwc@android-arm64,rpi5"}
    shapes = []
    for target in by_target(layouts, targets[:2]):
        artifact = target.compiler.compile_model(model, target.profile, "fp32")
        shapes.append({entry["name"]: "order" in entry for side in ("inputs", "outputs")
                       for entry in artifact.options[side]})  # fmt: skip
    assert shapes == [
        {"image": False, "scores": False, "features": True},
        {"image": True, "scores": False, "features": True},
    ]
    assert by_target(layouts, targets)[1] == targets[1]


def test_a_model_without_four_axes() -> None:
    with pytest.raises(UsageError) as error:
        lay_out(parse(TWO_INPUTS), "nhwc", [resolve(find_profile("tflite"))])
    assert str(error.value) == "the model has no input or output with four axes, which nhwc needs"


def test_the_source_layout_is_no_ones_to_refuse() -> None:
    assert lay_out(parse(SMALL_CNN), "nchw", [resolve(find_profile("ort"))]) == {}


@pytest.mark.parametrize("asked", ["uint8", {"image": "uint8", EVERY: "nhwc"}])
def test_bytes_are_noted_beside_layouts(asked: str | Mapping[str, str]) -> None:
    model = parse(SMALL_CNN)
    moved = lay_out(model, asked, [resolve(find_profile("tflite"))], "image")
    rest = {} if asked == "uint8" else {"features": "nhwc"}
    assert moved == {"image": "uint8", **rest}
    assert [v.name for v in (*model.graph.inputs, *model.graph.outputs) if is_channels_last(v)] == [*rest]


@pytest.mark.parametrize(
    ("asked", "integers"),
    [
        ("int8", ["image", "scores", "features"]),
        ({"scores": "int8", EVERY: "nhwc"}, ["scores"]),
        ({"image": "nchw", EVERY: "int8"}, ["scores", "features"]),
    ],
)
def test_integers_are_for_floats_of_any_rank(asked: str | Mapping[str, str], integers: list[str]) -> None:
    model = parse(SMALL_CNN)
    moved = lay_out(model, asked, [resolve(find_profile("tflm"))])
    assert {name for name, layout in moved.items() if layout == "int8"} == set(integers)
    values = (*model.graph.inputs, *model.graph.outputs)
    assert {str(value.name) for value in values if asks_for_integers(value)} == set(integers)


def test_integers_without_an_int8_variant() -> None:
    refuse_integers_in_float({"image": "int8"}, True)
    refuse_integers_in_float({"image": "nhwc"}, False)
    with pytest.raises(UsageError) as error:
        refuse_integers_in_float({"image": "int8"}, False)
    assert str(error.value) == "--io int8 needs int8 variants; build with --precision int8 and --samples"


def test_integers_are_for_floats_only() -> None:
    model = parse(SMALL_CNN)
    model.graph.inputs[0].type = ir.TensorType(ir.DataType.UINT8)
    with pytest.raises(UsageError) as error:
        lay_out(model, {"image": "int8"}, [resolve(find_profile("tflm"))])
    assert str(error.value) == "image is UINT8; int8 needs float32"
