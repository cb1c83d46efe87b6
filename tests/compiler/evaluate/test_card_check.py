"""Cards that do not fit their model are refused at the build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.evaluate.card_check import check_decoding, check_labels
from edgekit.errors import CardError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.task_table import all_tasks, find_decoder
from edgekit.tensor_spec import TensorSpec
from tests.fixtures import networks

pytestmark = pytest.mark.needs_ort


def card_of(kind: str, decode: str, labels: int, role: str = "predictions", **options: Any) -> Card:
    image = {"kind": "image", "shape": [1, 3, 64, 64], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    names = [f"class {number}" for number in range(labels)]
    task = {"kind": kind, "decode": decode, "outputs": {role: "y"}, "labels": names, **options}
    return parse_card({"title": "a card", "inputs": {"image": image}, "task": task})


@pytest.mark.parametrize(
    ("kind", "decode", "role", "shape", "options", "classes"),
    [
        ("classify", "logits", "scores", (1, 5), {}, 5),
        ("detect", "yolov8", "predictions", (1, 9, 84), {}, 5),
        ("detect", "yolov5", "predictions", (1, 252, 10), {}, 5),
        ("detect", "yolox", "predictions", (1, 84, 10), {}, 5),
        ("detect", "nanodet", "predictions", (1, 85, 37), {}, 5),
        ("detect", "rtdetr", "predictions", (1, 300, 9), {}, 5),
        ("detect", "fastestdet", "predictions", (1, 10, 4, 4), {}, 5),
        ("read-text", "ctc", "scores", (1, 8, 7), {"space": True}, 5),
        ("segment", "scores", "scores", (1, 5, 8, 8), {}, 5),
        ("segment", "scores", "scores", (1, 8, 8, 5), {"layout": "NHWC"}, 5),
        ("segment", "binary", "scores", (1, 1, 8, 8), {}, 2),
    ],
)
def test_labels_are_as_many_as_classes(
    kind: str, decode: str, role: str, shape: tuple[int, ...], options: dict[str, Any], classes: int
) -> None:
    outputs = [TensorSpec("y", "float32", shape)]
    check_labels(card_of(kind, decode, classes, role, **options), outputs)
    check_labels(card_of(kind, decode, 0, role, **options), outputs)  # none are needed
    with pytest.raises(CardError) as refused:
        check_labels(card_of(kind, decode, classes + 1, role, **options), outputs)
    assert str(refused.value) == (
        f"a card: task.labels has {classes + 1} names, but {decode} finds {classes} classes in output "
        f"{outputs[0]}; correct the labels or the decoding"
    )


def test_classes_are_counted_in_an_output_of_the_decoder() -> None:
    for task in all_tasks():
        for decoder in (find_decoder(task.kind, decode) for decode in task.decoders):
            assert decoder.classes is None or decoder.classes[0] in decoder.roles


def test_outputs_that_the_decoder_refuses() -> None:
    card = card_of("detect", "yolox", 0)
    check_decoding(card, [{"y": np.zeros((1, 84, 10), np.float32)}])
    with pytest.raises(CardError) as refused:
        check_decoding(card, [{"y": np.zeros((1, 80, 10), np.float32)}])
    assert str(refused.value) == (
        "a card: the model's outputs do not fit detect with decode = 'yolox': the output has 80 rows, but "
        "strides [8, 16, 32] on an input of 64x64 make 84; set strides in the card"
    )


LOGITS, SHARES = np.array([[-3, 0, 9]], np.float32), np.array([[0.1, 0.2, 0.7]], np.float32)


@pytest.mark.parametrize(
    ("decode", "scores", "reason"),
    [
        ("probabilities", LOGITS, "its scores go from -3 to 9, not 0 to 1; use decode = 'logits'"),
        ("logits", SHARES, "its scores are 0 to 1 and sum to 1; use decode = 'probabilities'"),
        (
            "probabilities",
            np.array([[0, 5, 250]], np.uint8),
            "its scores go from 0 to 250, not 0 to 1; use decode = 'logits', or set scale and zero_point as "
            "the output was quantized",
        ),
    ],
)
def test_scores_that_contradict_the_decoding(decode: str, scores: np.ndarray, reason: str) -> None:
    card = card_of("classify", decode, 0, "scores")
    with pytest.raises(CardError) as refused:
        check_decoding(card, [{"y": scores}, {"y": scores}])
    assert str(refused.value) == (
        f"a card: the model's outputs do not fit classify with decode = {decode!r}: {reason}"
    )
    other = {"logits": LOGITS, "probabilities": SHARES}[decode]
    check_decoding(card, [{"y": scores}, {"y": other}])  # one sample does not prove it
    check_decoding(card, [{"y": other}])
    check_decoding(card, [{"y": np.full((1, 3), np.nan, np.float32)}])


def test_quantized_probabilities_may_be_rounded() -> None:
    card = card_of("classify", "probabilities", 0, "scores", scale=1 / 255)
    check_decoding(card, [{"y": np.array([[0, 5, 250]], np.uint8)}])
    check_decoding(
        card_of("classify", "probabilities", 0, "scores"), [{"y": np.array([[1.003, -0.004]], np.float32)}]
    )


def test_outputs_that_are_not_finite_say_nothing_of_the_card() -> None:
    check_decoding(card_of("detect", "yolox", 0), [{"y": np.full((1, 80, 10), np.nan, np.float32)}])


def test_the_build_refuses_both(tmp_path: Path) -> None:
    model = networks.write(tmp_path, (1, 3, 64, 64), networks.yolox(3), gain=networks.RAW)
    draft = draft_card(model).card.as_json()
    draft["task"]["labels"] = ["only one"]
    with pytest.raises(CardError, match=r"task.labels has 1 names, but yolox finds 3 classes in output"):
        edgekit.build(model, targets=["ort"], card=parse_card(draft))
    draft["task"]["labels"] = []
    draft["task"]["strides"] = [4]
    with pytest.raises(
        CardError, match=r"the output has 84 rows, but strides \[4\] on an input of 64x64 make 256"
    ):
        edgekit.build(model, targets=["ort"], card=parse_card(draft))
