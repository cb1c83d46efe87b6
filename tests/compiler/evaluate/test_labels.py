from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.labels import find_labels
from edgekit.errors import SampleError
from tests.fixtures.cards import BOXES, CLASSES


def picture(path: Path, width: int = 40, height: int = 20) -> Path:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(np.zeros((height, width, 3), np.uint8)).save(path)
    return path


def test_classes_from_labels_csv(tmp_path: Path) -> None:
    files = [picture(tmp_path / name) for name in ("b.png", "a.png")]
    assert find_labels(files, CLASSES) is None
    (tmp_path / "labels.csv").write_text("file,class_index,name\na.png,3,x\nb.png,7,y\n")
    labels = find_labels(files, CLASSES)
    assert labels is not None
    assert [label.index for label in labels] == [7, 3]


def test_boxes_from_a_folder_beside(tmp_path: Path) -> None:
    files = [picture(tmp_path / "images" / name) for name in ("a.png", "b.png")]
    assert find_labels(files, BOXES) is None
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("5 0.5 0.5 0.5 1.0\n")
    labels = find_labels(files, BOXES)
    assert labels is not None
    assert labels[0].boxes.boxes.tolist() == [[10.0, 0.0, 30.0, 20.0]]
    assert labels[0].boxes.classes.tolist() == [5]
    assert labels[0].placed is not None
    assert (labels[0].placed.frame_width, labels[0].placed.scale_x) == (40, 0.2)
    assert len(labels[1].boxes) == 0  # a picture with nothing on it


def test_no_labels_where_there_is_no_task_or_no_photograph(tmp_path: Path) -> None:
    assert find_labels([picture(tmp_path / "a.png")], None) is None
    assert find_labels([tmp_path / "a.npz"], CLASSES) is None
    assert find_labels([], CLASSES) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,class_index\na.png,cat\n", "{csv}, line 2: class_index is 'cat', not a number"),
        ("file,class_index\nb.png,1\n", "{csv} names no picture in {folder}, e.g. 'b.png'"),
    ],
)
def test_malformed_classes(tmp_path: Path, text: str, message: str) -> None:
    path = picture(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(SampleError) as error:
        find_labels([path], CLASSES)
    assert str(error.value) == message.format(csv=tmp_path / "labels.csv", folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe", "{csv} can't be read as labels: 'utf-8' codec can't decode byte 0xff in position 0: "),
        (
            b"file,class_index\na.png," + b"9" * 5000,
            "{csv}, line 2: class_index is '" + "9" * 40 + "', not a",
        ),
        (b"file,class_index\na.png," + b"x" * 200_000, "{csv}, line 1: field larger than field limit"),
        (b"class_index,file\n3\n", "{csv} names no picture in {folder}, e.g. ''"),
    ],
)
def test_a_table_of_classes_that_python_chokes_on(tmp_path: Path, content: bytes, why: str) -> None:
    path = picture(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(SampleError) as error:
        find_labels([path], CLASSES)
    assert str(error.value).startswith(why.format(csv=tmp_path / "labels.csv", folder=tmp_path))


def test_labels_of_some_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.compiler.evaluate.label_files.folder.LABELS_LIMIT_BYTES", 1 << 20)
    path = picture(tmp_path / "images" / "a.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_bytes(b"\n" * ((1 << 20) + 1))
    with pytest.raises(SampleError) as error:
        find_labels([path], BOXES)
    assert str(error.value) == (
        f"{tmp_path / 'labels' / 'a.txt'} can't be read as labels: it has more than 1 MB"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nan 0.5 0.5 1 1", "does not begin with a class number"),
        ("-1 0.5 0.5 1 1", "does not begin with a class number"),
        ("0.5 0.5 0.5 1 1", "does not begin with a class number"),
        ("1e30 0.5 0.5 1 1", "does not begin with a class number"),
        ("0 0.5 nan 1 1", "has coordinates outside 0 to 1 of the picture"),
        ("0 0.5 inf 1 1", "has coordinates outside 0 to 1 of the picture"),
        ("0 320 240 64 64", "has coordinates outside 0 to 1 of the picture"),
    ],
)
def test_boxes_of_no_sense(tmp_path: Path, line: str, why: str) -> None:
    path = picture(tmp_path / "images" / "a.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text(line)
    with pytest.raises(SampleError) as error:
        find_labels([path], BOXES)
    assert str(error.value) == f"{tmp_path / 'labels' / 'a.txt'}, line 1: {line!r} {why}"


def test_a_file_without_a_label_is_an_error(tmp_path: Path) -> None:
    files = [picture(tmp_path / name) for name in ("a.png", "b.png")]
    (tmp_path / "labels.csv").write_text("file,class_index\na.png,3\n")
    with pytest.raises(SampleError) as error:
        find_labels(files, CLASSES)
    where = f"(the column class_index of labels.csv), e.g. {files[1]}; label them, or leave them out"
    assert str(error.value) == f"1 of 2 samples have no label {where}"


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    files = [picture(tmp_path / name) for name in ("monday/a.png", "tuesday/b.png")]
    assert find_labels(files, CLASSES) is None
