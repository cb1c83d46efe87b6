from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.compiler.evaluate.label_files.boxes import LabelledBoxes, read_boxes
from edgekit.compiler.evaluate.label_files.class_names import class_numbers
from edgekit.compiler.evaluate.label_files.classes import read_classes
from edgekit.compiler.evaluate.label_metric import LabelledSamples
from edgekit.errors import MissingDependency, SampleError
from edgekit.processing.card import Card
from tests.fixtures.cards import BOXES, CLASSES


def named(card: Card, *labels: str) -> Card:
    assert card.task is not None
    return replace(card, task=replace(card.task, labels=labels))


CATS = named(BOXES, "cat", "dog")
CAT_CLASSES = named(CLASSES, "tabby, cat", "dog")
COCO: dict[str, Any] = {
    "images": [{"id": 7, "file_name": "a.png"}, {"id": 8, "file_name": "elsewhere.png"}],
    "categories": [{"id": 3, "name": "Dog"}, {"id": 4, "name": "plane"}],
    "annotations": [
        {"image_id": 7, "category_id": 3, "bbox": [1, 2, 10, 5], "area": 30, "iscrowd": 1},
        {"image_id": 7, "category_id": 4, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0},
        {"image_id": 8, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0},
    ],
}
VOC = (
    "<annotation><filename>old.jpg</filename><size><width>40</width><height>20</height></size><object>"
    "<name>dog</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>11</xmax><ymax>7</ymax></bndbox></object>"
    "</annotation>"
)
CVAT = (
    '<annotations><image name="a.png" width="40" height="20"><box label="dog" xtl="1" ytl="2" xbr="11" '
    'ybr="7"/></image></annotations>'
)
LABELME = {
    "imagePath": "..\\a.png", "imageWidth": 40, "imageHeight": 20, "imageData": None,
    "shapes": [{"label": "dog", "points": [[1, 2], [11, 7]], "shape_type": "rectangle"}],
}  # fmt: skip
VIA = {
    "a.png1": {
        "filename": "a.png",
        "regions": [
            {
                "shape_attributes": {"name": "rect", "x": 1, "y": 2, "width": 10, "height": 5},
                "region_attributes": {"kind": "dog"},
            }
        ],
    }
}


def picture(path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(path)
    return path


def write(path: Path, content: str | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def only(samples: LabelledSamples) -> LabelledBoxes:
    (sample,) = samples.samples
    return sample.label  # type: ignore[no-any-return]


@pytest.mark.parametrize("place", ["images/val/a.txt", "images/labels/a.txt", "labels/val/a.txt"])
def test_yolo(tmp_path: Path, place: str) -> None:
    picture(tmp_path / "images" / "val" / "a.png")
    write(tmp_path / place, "1 0.5 0.5 0.5 1\n\n0 .1 .1 .2 .1 .2 .5\n")
    for folder in (tmp_path, tmp_path / "images"):
        samples = read_boxes(folder, CATS)
        assert (samples.form, list(samples.notes)) == ("YOLO text files", [])
        label = only(samples)
        assert label.objects.boxes.tolist() == [[10, 0, 30, 20], [4, 2, 8, 10]]  # an outline has bounds
        assert (label.objects.classes.tolist(), label.areas.tolist()) == ([1, 0], [400, 32])


def test_yolo_class_numbers_have_names_of_their_own(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "a.png")
    write(tmp_path / "labels" / "a.txt", "0 0.5 0.5 0.5 1\n")
    names = write(tmp_path / "labels" / "classes.txt", "dog\ncat\n")
    assert only(read_boxes(tmp_path, CATS)).objects.classes.tolist() == [1]
    assert only(read_boxes(tmp_path, BOXES)).objects.classes.tolist() == [0]
    names.write_text("")
    assert only(read_boxes(tmp_path, CATS)).objects.classes.tolist() == [0]


def test_coco_keeps_crowds_and_areas(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "a.png")
    picture(tmp_path / "images" / "b.png")
    write(tmp_path / "annotations" / "instances.json", COCO)
    assert len(read_boxes(tmp_path / "images", CATS).samples) == 1
    samples = read_boxes(tmp_path, CATS)
    assert list(samples.notes) == [
        "the card has no class 'plane', so these labels were left out",
        "1 of 2 photographs have no labels and were left out",
    ]
    label = only(samples)
    assert label.objects.boxes.tolist() == [[1, 2, 11, 7]]
    assert (label.objects.classes.tolist(), label.areas.tolist(), label.crowds.tolist()) == (
        [1],
        [30],
        [True],
    )


@pytest.mark.parametrize(
    ("file", "content", "form"),
    [
        ("Annotations/a.xml", VOC, "Pascal VOC XML"), ("annotations.xml", CVAT, "CVAT XML"),
        ("images/a.json", LABELME, "LabelMe JSON"), ("via.json", VIA, "VIA JSON"),
        ("via.json", {"_via_img_metadata": VIA}, "VIA JSON"),
    ],
)  # fmt: skip
def test_boxes_by_globox(tmp_path: Path, file: str, content: Any, form: str) -> None:
    pytest.importorskip("globox")
    picture(tmp_path / "images" / "a.png")
    write(tmp_path / file, content)
    samples = read_boxes(tmp_path, CATS)
    assert samples.form == form
    label = only(samples)
    assert (label.objects.boxes.tolist(), label.objects.classes.tolist()) == ([[1, 2, 11, 7]], [1])


def test_globox_is_named_if_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "globox", None)
    picture(tmp_path / "a.png")
    write(tmp_path / "a.xml", VOC)
    with pytest.raises(MissingDependency, match=r"globox is not installed, and reading labels .* Pascal VOC"):
        read_boxes(tmp_path, CATS)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.txt", "1 0.5 0.5\n", "{path}, line 1: '1 0.5 0.5' does not have the form 'class cx cy w h'"),
        ("a.txt", "1 9 9 9e9 9\n",
         "{path}, line 1: '1 9 9 9e9 9' has coordinates outside 0 to 1 of the picture"),
        ("x.json", {**COCO, "annotations": [{"image_id": 7, "category_id": 3, "bbox": [9, 2, -3, 4]}]},
         "{path}: a box ends before it begins: 9,2 to 6,6"),
        ("x.json", "{", "{path} is not valid JSON: Expecting property name enclosed in double quotes: line 1 "
         "column 2 (char 1)"),
        ("x.json", {**COCO, "annotations": [{"image_id": 7, "bbox": [1, 2]}]},
         "{path} is not COCO's JSON of boxes: ValueError: not enough values to unpack (expected 4, got 2)"),
        ("x.json", {**COCO, "images": []}, "{path} is not COCO's JSON of boxes: KeyError: 7"),
        ("x.json", {**COCO, "images": [], "annotations": []},
         "{folder}: the COCO JSON name none of the 1 photographs there"),
        ("x.json", {**COCO, "categories": [{"id": 3, "name": "car"}, {"id": 4, "name": "plane"}]},
         "{folder}: the model knows none of the classes 'car', 'plane'; its card has 'cat', 'dog'. Correct "
         "task.labels of the card, or the labels"),
        ("notes.md", "",
         "{folder} has no labelled boxes. Known formats: a folder labels next to images with a .txt for each "
         "photograph (YOLO), a COCO .json, Pascal VOC or CVAT .xml, LabelMe or VIA .json"),
    ],
)  # fmt: skip
def test_malformed_boxes(tmp_path: Path, file: str, content: Any, message: str) -> None:
    picture(tmp_path / "a.png")
    path = write(tmp_path / file, content)
    with pytest.raises(SampleError) as error:
        read_boxes(tmp_path, CATS)
    assert str(error.value) == message.format(path=path, folder=tmp_path)


def test_a_name_of_two_photographs_needs_its_folder(tmp_path: Path) -> None:
    first, second = picture(tmp_path / "x" / "a.png"), picture(tmp_path / "y" / "a.png")
    path = write(tmp_path / "x.json", COCO)
    with pytest.raises(SampleError) as error:
        read_boxes(tmp_path, CATS)
    where = f"'a.png' may be {first} or {second}; name their folders in the labels"
    assert str(error.value) == f"{path}: {where}"
    write(path, {**COCO, "images": [{"id": 7, "file_name": "y/a.png"}, {"id": 8, "file_name": "-"}]})
    assert [sample.name for sample in read_boxes(tmp_path, CATS).samples] == ["y/a.png"]


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in ("val/Dog/1.png", "val/cat/2.png", "val/bird/3.png", "4.png"):
        picture(tmp_path / name)
    samples = read_classes(tmp_path, CAT_CLASSES)
    assert [(sample.name, sample.label) for sample in samples.samples] == [
        ("val/Dog/1.png", 1), ("val/cat/2.png", 0),
    ]  # fmt: skip
    assert samples.form == "a folder for each class"
    assert list(samples.notes) == [
        "the card has no class 'bird', so these labels were left out",
        "1 files are in no folder of a class and were left out",
    ]


@pytest.mark.parametrize(
    ("table", "labels"),
    [
        ("file,class_index,name\na.png,3,x\nx/b.png,7,y\n", [3, 7]),
        ("Filename;Label\r\nx/b.png;dog\r\na.png;tabby\r\n", [1, 0]),
        ("image,label,split\nb,1,val\nmissing.png,0,val\n", [1]),
    ],
)
def test_a_table(tmp_path: Path, table: str, labels: list[int]) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "x" / "b.png")
    write(tmp_path / "labels.csv", table)
    samples = read_classes(tmp_path, CAT_CLASSES)
    assert [sample.label for sample in samples.samples] == labels
    missing = ["1 of 2 files in labels.csv are not in the folder"] if "missing" in table else []
    assert list(samples.notes) == missing


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("file,class_index\na.png,cat\n", "{path}, line 2: class_index is 'cat', not a number"),
        ("file,label\nb.png,cat\n", "{path} names no picture in {folder}, e.g. 'b.png'"),
        ("file,size\nb.png,cat\n",
         "{folder} has no labels. Known formats: a folder for each class, or a table (.csv, .tsv) "
         "with the columns file and label (class names) or class_index"),
    ],
)  # fmt: skip
def test_malformed_tables(tmp_path: Path, table: str, message: str) -> None:
    picture(tmp_path / "a.png")
    path = write(tmp_path / "labels.csv", table)
    with pytest.raises(SampleError) as error:
        read_classes(tmp_path, CAT_CLASSES)
    assert str(error.value) == message.format(path=path, folder=tmp_path)


def test_class_names_of_a_card_without_labels() -> None:
    assert class_numbers(["2", "0"], CLASSES, "here") == ({"0": 0, "2": 2}, [])
    note = "the card has no labels: 'cat', 'dog' were numbered in alphabetical order"
    assert class_numbers(["dog", "cat"], CLASSES, "here") == ({"cat": 0, "dog": 1}, [note])


def test_a_part_of_two_labels_is_no_name() -> None:
    card = named(CLASSES, "crane, bird", "crane, machine", "red_fox")
    numbers, notes = class_numbers(["bird", "crane", "Red Fox"], card, "here")
    assert numbers == {"bird": 0, "Red Fox": 2}
    assert notes == ["the card has no class 'crane', so these labels were left out"]
