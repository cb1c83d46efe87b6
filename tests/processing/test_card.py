"""Cards are read strictly: each mistake has its text, and what is read comes back from JSON as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.processing import Card, load_card
from edgekit.processing.card import parse_card
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.task_table import find_task, task_kinds
from edgekit.tasks.detect.yolox import YoloxOptions
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.cards import DETECTOR, TOML, X, altered

CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"


def test_a_card_is_read() -> None:
    card = parse_card(DETECTOR)
    image = card.image_input()
    assert image == ImageInput(
        "images",
        (1, 3, 416, 640),
        "NCHW",
        "BGR",
        "letterbox",
        pad=114,
        mean=(1.0, 2.0, 3.0),
        std=(1.0, 1.0, 1.0),
    )
    assert (image.height, image.width, image.channels) == (416, 640, 3)
    assert card.shapes() == {"images": (1, 3, 416, 640)}
    assert card.ranges() == {"images": (-3.0, 254.0)}
    assert card.task is not None
    assert card.task.options == YoloxOptions(score=0.25, strides=(8, 16))
    assert card.task.labels == ("person", "car")


def test_arrays_beside_no_image() -> None:
    table = {"kind": "tensor", "shape": [1, 8], "range": [0, 1]}
    card = parse_card({"title": "state", "inputs": {"h": table, "c": {"kind": "tensor", "shape": [2]}}})
    assert card.inputs["h"] == TensorInput("h", (1, 8), (0.0, 1.0))
    assert card.ranges() == {"h": (0.0, 1.0)}
    assert card.shapes() == {"h": (1, 8), "c": (2,)}
    assert parse_card(json.loads(json.dumps(card.as_json()))) == card


@pytest.mark.parametrize("path", sorted(CARDS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_card_comes_back_from_json(path: Path) -> None:
    card = load_card(path)
    assert parse_card(json.loads(json.dumps(card.as_json()))) == card


RESIZE = "stretch, letterbox, center-crop, resize-crop, fit-height"
MISTAKES: list[tuple[str, Any, str]] = [
    (
        "titel",
        "x",
        "card has an unknown key 'titel'; it may have title, inputs, task, latency, schedule, about, states",
    ),
    ("title", ..., "card has no title; it must be a text"),
    ("title", 3, "card.title must be a text, not a whole number"),
    ("inputs", {}, "card: inputs is empty; a card must describe at least one input"),
    ("inputs/images", 3, "card: inputs.images must be a table, not a whole number"),
    (X + "kind", "video", ".kind is 'video'; it must be one of image, tensor, audio, text"),
    (X + "shape", ..., " has no shape; it must be a list"),
    (X + "shape", [1, 3, 0, 640], ".shape is [1, 3, 0, 640]; it must be a list of whole numbers from 1"),
    (
        X + "shape",
        [1, 3, 416.0, 640],
        ".shape is [1, 3, 416.0, 640]; it must be a list of whole numbers from 1",
    ),
    (
        X + "shape",
        [2, 3, 416, 640],
        ".shape is [2, 3, 416, 640]; it must have 4 dimensions, the first being 1",
    ),
    (X + "shape", [3, 416, 640], ".shape is [3, 416, 640]; it must have 4 dimensions, the first being 1"),
    (X + "shape", [1, 416, 640, 3], ".shape is [1, 416, 640, 3]; BGR in NCHW has 3 at dimension 1"),
    (X + "layout", ..., " has no layout; it must be one of NCHW, NHWC"),
    (X + "colour", "rgb", ".colour is 'rgb'; it must be one of RGB, BGR, GREY"),
    (X + "colour", "GREY", ".shape is [1, 3, 416, 640]; GREY in NCHW has 1 at dimension 1"),
    (X + "resize", "fit", f".resize is 'fit'; it must be one of {RESIZE}"),
    (X + "resize", "stretch", ".pad needs resize = 'letterbox' or 'fit-height', but resize is 'stretch'"),
    (X + "rounding", "up", ".rounding is 'up'; it must be one of down, nearest"),
    (X + "crop", 0.9, ".crop needs resize = 'center-crop' or 'resize-crop', but resize is 'letterbox'"),
    (X + "pad", 256, ".pad is 256; it must be from 0 to 255"),
    (X + "pad", 114.5, ".pad must be a whole number, not a number"),
    (X + "antialias", 1, ".antialias must be true or false, not a whole number"),
    (X + "mean", [1, 2], ".mean has 2 numbers, but BGR has 3 channels"),
    (X + "std", [1, 0, 1], ".std is [1.0, 0.0, 1.0]; pixels are divided by it: it must be above 0"),
    (X + "std", [1, float("nan"), 1], ".std is [1, nan, 1]; it must be a list of finite numbers"),
    (
        X + "dtype",
        "float64",
        ".dtype is 'float64'; it must be one of float32, float16, uint8, int8, uint16, int16, int32, int64",
    ),
    ("task/kind", "paint", f"card: task.kind is 'paint'; it must be one of {', '.join(task_kinds())}"),
    (
        "task/decode",
        "yolo",
        f"card: task.decode is 'yolo'; it must be one of {', '.join(find_task('detect').decoders)}",
    ),
    ("task/outputs", {}, "card: task.outputs has no predictions; it must be a text"),
    ("task/outputs/boxes", "b", "card: task.outputs has an unknown key 'boxes'; it may have predictions"),
    (
        "task/stride",
        4,
        "card: task has an unknown key 'stride'; "
        "it may have kind, decode, outputs, labels, score, iou, top, class_agnostic, strides",
    ),
    ("task/score", 2, "card: task.score is 2; it must be from 0 to 1"),
    ("task/score", "high", "card: task.score must be a number, not a text"),
    ("task/score", float("nan"), "card: task.score is nan; it must be a finite number"),
    ("task/top", True, "card: task.top must be a whole number, not true or false"),
    ("task/strides", [8.5], "card: task.strides is [8.5]; it must be a list of whole numbers"),
    ("task/labels", ["a", 3], "card: task.labels[1] must be a text, not a whole number"),
    (
        "inputs/state",
        {"kind": "tensor", "shape": [1]},
        "detector: a prediction needs one image, one sound or one text, in addition to constants and "
        "states; this card has images (image), state (tensor)",
    ),
]


@pytest.mark.parametrize(("place", "value", "text"), MISTAKES, ids=[m[0] + f"={m[1]}" for m in MISTAKES])
def test_mistakes(place: str, value: Any, text: str) -> None:
    with pytest.raises(CardError) as error:
        parse_card(altered(place, value))
    assert str(error.value) == (f"card: inputs.images{text}" if place.startswith(X) else text)


@pytest.mark.parametrize("crop", [0, 1.5, -1])
def test_crop_out_of_bounds(crop: float) -> None:
    table = altered("inputs/images/pad", ...)
    table["inputs"]["images"] |= {"resize": "center-crop", "crop": crop}
    with pytest.raises(CardError) as error:
        parse_card(table)
    assert str(error.value) == f"card: inputs.images.crop is {crop:g}; it must be above 0 and at most 1"


@pytest.mark.parametrize(("crop", "side"), [(0.9, "462"), (0.001, "416000"), (1e-320, "9007199254740992")])
def test_a_crop_needs_a_picture_that_is_larger(crop: float, side: str) -> None:
    table = altered("inputs/images/pad", ...)
    table["inputs"]["images"] |= {"resize": "resize-crop", "crop": crop}
    with pytest.raises(CardError) as error:
        parse_card(table)
    assert str(error.value) == (
        f"card: inputs.images.crop is {crop:g}, which scales pictures to a shorter side of {side}; "
        "it must be from 640, the input's longer side, to 65536"
    )


def test_a_range_the_wrong_way_round() -> None:
    with pytest.raises(CardError) as error:
        parse_card({"title": "t", "inputs": {"h": {"kind": "tensor", "shape": [1], "range": [1, 0]}}})
    assert str(error.value) == "card: inputs.h.range is [1.0, 0.0]; it must be [least, greatest]"


IMAGES = TensorSpec("images", "float32", (1, 3, 416, 640))
OUTPUT = TensorSpec("output", "float32", (1, 100, 7))


def test_a_card_that_fits_its_model() -> None:
    assert isinstance(parse_card(DETECTOR, [IMAGES], [OUTPUT]), Card)


@pytest.mark.parametrize(
    ("image", "output", "text"),
    [
        (
            TensorSpec("x", "float32", IMAGES.shape),
            OUTPUT,
            "detector: the model has no input images; its inputs are x",
        ),
        (
            TensorSpec("images", "float32", (1, 3, 32, 32)),
            OUTPUT,
            "detector: input images is 1x3x416x640 in the card but 1x3x32x32 in the model",
        ),
        (
            TensorSpec("images", "uint8", IMAGES.shape),
            OUTPUT,
            "detector: input images is float32 in the card but uint8 in the model",
        ),
        (
            IMAGES,
            TensorSpec("boxes", "float32", (1,)),
            "detector: task.outputs.predictions is 'output', but the model's outputs are boxes",
        ),
    ],
)
def test_a_card_of_another_model(image: TensorSpec, output: TensorSpec, text: str) -> None:
    with pytest.raises(CardError) as error:
        parse_card(DETECTOR, [image], [output])
    assert str(error.value) == text


def test_labels_in_a_file_beside_the_card(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text(TOML, "utf-8")
    (tmp_path / "names.txt").write_text("person\n\ncafé \n", "utf-8")
    card = load_card(path)
    assert card.task is not None
    assert card.task.labels == ("person", "", "café")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    with pytest.raises(CardError, match=r"card\.toml: file not found$"):
        load_card(path)
    path.write_text(TOML, "utf-8")
    with pytest.raises(CardError, match=r"names\.txt: file not found$"):
        load_card(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CardError, match=r"card\.toml can't be read as a card: .*utf-8"):
        load_card(path)
    path.write_text("title = ", "utf-8")
    with pytest.raises(CardError, match=r"card\.toml is not valid TOML: Invalid value"):
        load_card(path)


@pytest.mark.parametrize("name", ["../names.txt", "/etc/passwd", "folder/names.txt"])
def test_labels_come_from_beside_the_card_only(tmp_path: Path, name: str) -> None:
    path = tmp_path / "card.toml"
    path.write_text(TOML.replace("names.txt", name), "utf-8")
    with pytest.raises(CardError) as error:
        load_card(path)
    assert str(error.value) == f"{path}: task.labels is {name!r}; it must be a list or a file in its folder"


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text('title = "x"\ninputs = {}', "utf-8")
    with pytest.raises(CardError) as error:
        load_card(path)
    assert str(error.value) == f"{path}: inputs is empty; a card must describe at least one input"


def test_who_made_it_and_what_is_remembered_travel() -> None:
    about = {"author": "A. Author", "version": "2"}
    table = {
        "title": "Sums",
        "inputs": {name: {"kind": "tensor", "shape": [1, 4]} for name in ("x", "state")},
        "about": about,
        "states": {"state": "next"},
    }
    card = parse_card(table)
    assert (card.about, card.states) == (about, {"state": "next"})
    assert card.as_json() == table
    for key, wrong, text in (
        (
            "about",
            {"autor": "x"},
            "card: about has an unknown key 'autor'; it may have author, license, version, ",
        ),
        ("states", {"y": "next"}, "card: states has an unknown key 'y'; it may have x, state"),
    ):
        with pytest.raises(CardError) as error:
            parse_card({**table, key: wrong})
        assert str(error.value).startswith(text)


@pytest.mark.parametrize(
    "output", [None, TensorSpec("next", "float32", (1, 5)), TensorSpec("next", "int32", (1, 4))]
)
def test_a_state_is_an_output_like_its_input(output: TensorSpec | None) -> None:
    table = {"title": "Sums", "inputs": {"h": {"kind": "tensor", "shape": [1, 4]}}, "states": {"h": "next"}}
    card, h = parse_card(table), TensorSpec("h", "float32", (1, 4))
    card.check([h], [h._replace(name="next")])
    with pytest.raises(CardError) as error:
        card.check([h], [output] if output else [])
    assert (
        str(error.value) == "Sums: states.h is 'next', which is not an output with the shape and dtype of h"
    )
