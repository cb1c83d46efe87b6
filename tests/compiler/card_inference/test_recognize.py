"""Which decoder reads outputs of which form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgekit.compiler.card_inference.draft import draft_card
from edgekit.processing.card import Card
from edgekit.processing.task_table import all_tasks
from tests.fixtures import networks
from tests.fixtures.graphs import Graph

pytestmark = pytest.mark.needs_ort
Tail = Callable[[Graph, str], Sequence[str]]


def task_of(card: Card) -> str:
    return f"{card.task.kind} {card.task.decode}" if card.task else "none"


@pytest.mark.parametrize(
    ("tail", "task", "why"),
    [
        (
            networks.yolox(3),
            "detect yolox",
            "84 rows are the cells of strides [8, 16, 32], 5 + 3 columns, boxes raw",
        ),
        (
            networks.yolox(3, (8, 16, 32, 64)),
            "detect yolox",
            "85 rows are the cells of strides [8, 16, 32, 64], 5 + 3 columns, boxes raw",
        ),
        (
            networks.yolov8(7),
            "detect yolov8",
            "guessed: 84 columns are the 84 cells of strides [8, 16, 32], 4 + 3 rows",
        ),
        (
            networks.yolov5(8),
            "detect yolov5",
            "guessed: 252 rows are 3 for each of the 84 cells of strides [8, 16, 32], 5 + 3 columns",
        ),
        (
            networks.priors(6, count=300),
            "detect end2end",
            "guessed: 300 rows of 6 numbers are boxes that need no NMS",
        ),
        (networks.priors(4, 21, sigmoid=[1]), "detect ssd", "guessed: boxes and scores of 100 priors"),
        (
            networks.maps(1, 2, 2, 10, sigmoid=[0]),
            "detect centerface",
            "maps of 1, 2, 2 and 10 channels: heat, size, offset, five landmarks",
        ),
        (networks.scores(5, softmax=True), "classify probabilities", "5 numbers, a Softmax at the end"),
        (networks.scores(5, softmax=False), "classify logits", "guessed: 5 numbers, no softmax at the end"),
        (networks.scores(1000, softmax=False), "classify logits", "1000 numbers, no softmax at the end"),
        (networks.priors(4, 21), "detect detr", "guessed: 100 queries, 21 logits and a box for each"),
        (
            networks.priors(4, 21, count=1917, decoded=False),
            "detect ssd-anchors",
            "guessed: 1917 boxes relative to anchors, and scores without a sigmoid",
        ),
        (
            networks.priors(9, count=300, sigmoid=[0]),
            "detect rtdetr",
            "300 queries of 4 + 5 numbers that end in a sigmoid",
        ),
        (
            networks.maps(3, 2, 2),
            "detect centernet",
            "guessed: maps of 3, 2 and 2 channels: heat, and size before offset as the project has them",
        ),
        (
            networks.priors(16, 1, count=224),
            "detect blazeface",
            "224 anchors, a score and 16 numbers for each",
        ),
        (networks.vectors(1404, 1), "landmarks face", "1404 numbers are 468 points, beside 1 single ones"),
        (networks.vectors(63, 1, 1, 63), "landmarks hand", "63 numbers are 21 points, beside 2 single ones"),
        (networks.vectors(195, 1, 117), "landmarks pose", "195 numbers are 39 points, beside 1 single ones"),
        (
            networks.maps(1, stride=2, sigmoid=[0]),
            "segment binary",
            "guessed: one map of the input's proportions with a sigmoid; of hair and other",
        ),
        (networks.maps(1, stride=2), "depth inverse", "guessed: one map without a sigmoid: MiDaS and Depth"),
        (networks.maps(7, stride=8), "segment scores", "scores of 7 classes for each of 8x8 cells"),
        (networks.enlarged(2), "image-to-image picture", "a picture, 2 times as large"),
        (networks.vectors(512), "embed vector", "guessed: a vector of 512 numbers without a softmax"),
        (networks.priors(5, count=300), "none", ""),
        (networks.maps(1, 2, 3), "none", ""),
        (networks.vectors(63, 63), "none", ""),
    ],
)
def test_forms_of_outputs(tmp_path: Path, tail: Tail, task: str, why: str) -> None:
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), tail))
    assert task_of(draft.card) == task
    assert f"# {why}" in draft.text


def test_line_readers(tmp_path: Path) -> None:
    characters = {"character": "a\nb\nc\nd\ne\nf\ng\nh\ni\nj"}
    path = networks.write(
        tmp_path,
        ("N", 3, 32, "W"),
        networks.steps(12),
        metadata=characters,
        outputs={"softmax_11.tmp_0": ("N", "T", 12)},
    )
    draft = draft_card(path)
    assert task_of(draft.card) == "read-text ctc"
    assert draft.card.image_input().shape == (1, 3, 32, 320)  # the width that is open, not the height
    assert draft.guessed == ("inputs.image.shape",)
    assert draft.card.task is not None
    assert (draft.card.task.options.space, draft.card.task.labels[-1]) == (True, "j")


def test_text_finders_are_known_by_paddle_s_names(tmp_path: Path) -> None:
    tail = networks.maps(1, stride=1, sigmoid=[0])
    named = networks.write(tmp_path, (1, 3, 64, 64), tail, outputs={"sigmoid_0.tmp_0": (1, 1, 64, 64)})
    assert task_of(draft_card(named).card) == "detect-text db"
    assert task_of(draft_card(networks.write(tmp_path, (1, 3, 64, 64), tail)).card) == "segment binary"


@pytest.mark.parametrize(
    ("task", "tail", "names", "found"),
    [
        ("detect", networks.yolov8(6), 2, "detect yolov8"),
        ("detect", networks.priors(6, count=300), 2, "detect end2end"),
        ("classify", networks.scores(2, softmax=True), 2, "classify probabilities"),
        ("pose", networks.yolov8(4 + 2 + 51), 2, "pose yolov8"),
        ("obb", networks.yolov8(4 + 2 + 1), 2, "obb yolov8"),
        ("segment", networks.yolov8(4 + 2 + 32, prototypes=32), 2, "segment-instances yolov8"),
    ],
)
def test_ultralytics_task_is_in_its_metadata(
    tmp_path: Path, task: str, tail: Tail, names: int, found: str
) -> None:
    metadata = {"author": "Ultralytics", "task": task, "names": str({n: f"class {n}" for n in range(names)})}
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), tail, metadata=metadata))
    assert task_of(draft.card) == found
    assert draft.guessed == ()
    assert draft.card.task is not None
    assert draft.card.task.labels == ("class 0", "class 1")


def test_labels_that_are_as_many_as_no_output_has_are_left_out(tmp_path: Path) -> None:
    metadata = {"author": "Ultralytics", "task": "detect", "names": "{0: 'only one'}"}
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), networks.yolov8(6), metadata=metadata))
    assert draft.card.task is not None
    assert draft.card.task.labels == ()


@pytest.mark.parametrize(
    "names", ["{0: __import__('os')}", "{", "[" * 5000, "{-1: 'a'}", "{70000: 'a'}", "3"]
)
def test_hostile_metadata_names_nothing(tmp_path: Path, names: str) -> None:
    metadata = {"author": "Ultralytics", "task": "detect", "names": names, "imgsz": "[999999999, 1]"}
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), networks.yolov8(6), metadata=metadata))
    assert draft.card.task is not None
    assert draft.card.task.labels == ()


@pytest.mark.parametrize(("first_class", "columns"), [(1, 90), (0, 91)])
def test_coco_s_own_ids(tmp_path: Path, first_class: int, columns: int) -> None:
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), networks.priors(4, columns, sigmoid=[1])))
    assert draft.card.task is not None
    assert draft.card.task.options.first_class == first_class
    assert draft.card.task.labels[1] == "person"
    assert len(draft.card.task.labels) == 91


def test_a_yolo_in_tflite_s_layout_gives_positions_from_0_to_1(tmp_path: Path) -> None:
    draft = draft_card(networks.write(tmp_path, (1, 64, 64, 3), networks.yolov8(6)))
    assert draft.card.task is not None
    assert draft.card.task.options.normalized
    assert "task.normalized" in draft.guessed


def test_a_form_that_its_task_does_not_decode_is_no_task(tmp_path: Path) -> None:
    """Oriented boxes of a YOLOv5, which nobody has trained."""
    metadata = {"author": "Ultralytics", "task": "obb"}
    draft = draft_card(networks.write(tmp_path, (1, 3, 64, 64), networks.yolov5(8), metadata=metadata))
    assert draft.card.task is None


@pytest.mark.parametrize("of", ["pictures", "texts", "sounds"])
def test_no_two_recognizers_have_the_same_place(of: str) -> None:
    tasks = [task.load(task.recognize).RECOGNIZERS for task in all_tasks() if task.recognize]
    places = [place for recognizers in tasks for place in getattr(recognizers, of)]
    assert len(places) == len(set(places)) >= 2
