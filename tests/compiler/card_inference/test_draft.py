"""Drafted cards: what is known, what is guessed, and that the text is a card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.card_inference.labels import coco_80
from edgekit.errors import ModelError
from edgekit.processing.card import load_card
from tests.fixtures import networks
from tests.fixtures.graphs import Graph

pytestmark = pytest.mark.needs_ort
MODELS = Path(__file__).parents[4] / "shared" / "models"

SOFTMAX_10 = """\
# Drafted by edgekit model card from network.onnx.
# Check the lines marked "guessed" first: the model does not determine them. Format: docs/cards.md

title = "network"

[inputs.image]
kind = "image"
shape = [1, 3, 32, 32]  # the model's own
layout = "NCHW"  # 3 channels in dimension 1
colour = "RGB"  # guessed: as torchvision
resize = "resize-crop"  # guessed: as torchvision
rounding = "nearest"
crop = 0.875
antialias = true  # as Pillow resizes
std = [1.0, 1.0, 1.0]  # its first layer spreads over {spread} on pixels 0 to 255: pixels are not scaled

[task]
kind = "classify"
decode = "probabilities"  # 10 numbers, a Softmax at the end
outputs = {{ scores = "softmax{node}" }}
"""


def test_every_line_says_why(tmp_path: Path) -> None:
    path = networks.write(tmp_path, (1, 3, 32, 32), networks.scores(10, softmax=True), gain=networks.RAW)
    draft = draft_card(path)
    spread = draft.text.split("spreads over ")[1].split(" on")[0]
    node = draft.text.split('"softmax')[1].split('"')[0]
    assert draft.text == SOFTMAX_10.format(spread=spread, node=node)
    assert 0.05 < float(spread) < 15
    assert draft.guessed == ("inputs.image.colour", "inputs.image.resize")


def test_the_same_model_gives_the_same_text(tmp_path: Path) -> None:
    path = networks.write(tmp_path, (1, 3, 64, 64), networks.yolox(80), gain=networks.RAW)
    assert draft_card(path).text == draft_card(str(path)).text == str(edgekit.draft_card(path))


def test_the_text_is_a_card_that_fits_the_model(tmp_path: Path) -> None:
    path = networks.write(tmp_path, (1, 3, 64, 64), networks.yolox(80), name="input.1", gain=networks.RAW)
    draft = draft_card(path)
    file = tmp_path / "card.toml"
    file.write_text(draft.text, "utf-8")
    assert load_card(file) == draft.card
    assert '[inputs."input.1"]' in draft.text


def test_pixels_of_the_first_layer_tell_raw_ones_from_small_ones(tmp_path: Path) -> None:
    raw = networks.write(tmp_path, (1, 3, 32, 32), networks.scores(10, softmax=True), gain=networks.RAW)
    assert draft_card(raw).card.image_input().std == (1, 1, 1)
    unit = networks.write(tmp_path, (1, 3, 32, 32), networks.scores(10, softmax=True), gain=networks.UNIT)
    draft = draft_card(unit)
    assert draft.card.image_input().std == (58.395, 57.12, 57.375)
    assert "inputs.image.mean" in draft.guessed


def test_a_network_in_keras_layout_is_taken_for_one_of_keras(tmp_path: Path) -> None:
    path = networks.write(tmp_path, ("N", 32, 32, 3), networks.scores(10, softmax=True))
    image = draft_card(path).card.image_input()
    assert (image.layout, image.shape, image.resize) == ("NHWC", (1, 32, 32, 3), "stretch")
    assert image.std == (255, 255, 255)


@pytest.mark.parametrize("op", ["Div", "Mul"])
def test_a_normalization_in_the_graph_is_not_done_twice(tmp_path: Path, op: str) -> None:
    number = np.array([255], np.float32) if op == "Div" else np.array([1 / 255], np.float32)

    def before(graph: Graph, x: str) -> str:
        centred = graph("Sub", x, np.array([103.9, 116.8, 123.7], np.float32).reshape(1, 3, 1, 1))
        return graph(op, centred, number)

    path = networks.write(tmp_path, (1, 3, 32, 32), networks.scores(10, softmax=False), before=before)
    draft = draft_card(path)
    assert draft.card.image_input().std == (1, 1, 1)
    assert f"# Sub and {op} in the graph convert pixels to the model's units" in draft.text
    assert draft.card.task is not None
    assert draft.card.task.decode == "logits"


def test_ultralytics_metadata_names_size_and_classes(tmp_path: Path) -> None:
    metadata = {
        "author": "Ultralytics",
        "imgsz": "[64, 96]",
        "names": "{0: 'cat', 1: 'dog'}",
        "task": "classify",
    }
    path = networks.write(
        tmp_path, ("batch", 3, "height", "width"), networks.scores(2, softmax=True), metadata=metadata
    )
    draft = draft_card(path)
    image = draft.card.image_input()
    assert (image.shape, image.resize, image.crop, image.std) == (
        (1, 3, 64, 96),
        "center-crop",
        1,
        (255,) * 3,
    )
    assert draft.card.task is not None
    assert draft.card.task.labels == ("cat", "dog")
    assert draft.guessed == ()
    assert draft.card.about == {"author": "Ultralytics"}


def test_a_size_that_the_model_leaves_open_is_guessed(tmp_path: Path) -> None:
    path = networks.write(tmp_path, (1, 3, "h", "w"), networks.scores(1000, softmax=False))
    draft = draft_card(path)
    assert (
        "shape = [1, 3, 224, 224]  # guessed: not fixed by the model; torchvision's usual size" in draft.text
    )
    assert draft.guessed[0] == "inputs.image.shape"


def test_a_shape_that_the_user_gives_is_no_guess(tmp_path: Path) -> None:
    path = networks.write(tmp_path, (1, 3, "h", "w"), networks.scores(1000, softmax=False))
    draft = draft_card(path, {"image": (1, 3, 96, 128)})
    assert "shape = [1, 3, 96, 128]  # set by --shape" in draft.text


def test_paddle_classifiers_of_text_lines(tmp_path: Path) -> None:
    path = networks.write(
        tmp_path, (-1, 3, -1, -1), networks.scores(2, softmax=True), producer="PaddlePaddle", name="x"
    )
    image = draft_card(path).card.image_input()
    assert (image.shape, image.colour, image.mean) == ((1, 3, 48, 192), "BGR", (127.5,) * 3)


def test_outputs_that_no_decoder_reads_stay_arrays(tmp_path: Path) -> None:
    path = networks.write(tmp_path, (1, 3, 32, 32), networks.maps(5, 7))
    draft = draft_card(path)
    assert draft.card.task is None
    assert draft.text.endswith(
        "# EdgeKit has no decoder for outputs of this form: conv2 float32 1x5x8x8, conv4 float32 1x7x8x8.\n"
        "# Without a [task], results are arrays.\n"
    )


def test_a_model_without_a_picture_gets_tensors(tmp_path: Path) -> None:
    from tests.fixtures import models

    draft = draft_card(models.write(tmp_path, models.TWO_INPUTS))
    assert [entry.shape for entry in draft.card.inputs.values()] == [(1, 8), (1, 8)]
    assert 'kind = "tensor"  # float32, given as it is' in draft.text


def test_what_is_no_model_is_refused_as_by_build(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(ModelError, match=r"model.onnx: file not found$"):
        draft_card(path)
    path.write_bytes(b"<html>")
    with pytest.raises(ModelError, match="it is a web page: download the model file itself"):
        draft_card(path)


def test_other_dimensions_get_the_sizes_that_errors_suggest(tmp_path: Path) -> None:
    from tests.fixtures import models

    text = models.TWO_INPUTS.replace("float[1,8] left", "float[1,N,8] left").replace(
        "float[1,8] sum", "float[1,N,8] sum"
    )
    draft = draft_card(models.write(tmp_path, text))
    assert draft.card.inputs["left"].shape == (1, 128, 8)
    assert "inputs.left.shape" in draft.guessed


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("name", "task", "guessed"),
    [
        ("yolox_nano", "detect yolox BGR letterbox", ("task.labels",)),
        ("centerface", "detect centerface RGB stretch", ('inputs."input.1".shape',)),
        ("ch_ppocr_mobile_v2.0_cls_infer", "classify probabilities BGR fit-height", ("inputs.x.shape",)),
        (
            "resnet8_cifar10_int8_qdq",
            "classify probabilities RGB stretch",
            ("inputs.input_1_int8.colour", "inputs.input_1_int8.resize"),
        ),
    ],
)
def test_trained_models(name: str, task: str, guessed: tuple[str, ...]) -> None:
    draft = draft_card(MODELS / f"{name}.onnx")
    image, found = draft.card.image_input(), draft.card.task
    assert found is not None
    assert f"{found.kind} {found.decode} {image.colour} {image.resize}" == task
    assert draft.guessed == guessed


def test_coco_is_spelt_out_for_eighty_classes(tmp_path: Path) -> None:
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), networks.yolox(80), gain=networks.RAW))
    assert draft.card.task is not None
    assert draft.card.task.labels == coco_80()
    assert draft.guessed == ("task.labels",)


def test_a_model_without_inputs_needs_no_card(tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g () => (float[1,4] y) { y = RandomNormal<shape=[1,4]>() }'
    )
    onnx.save(onnx.parser.parse_model(text), path)
    with pytest.raises(ModelError) as error:
        draft_card(path)
    assert str(error.value) == "noise.onnx has no inputs, which a card describes; build it without a card"
