"""Labels of photographs and sounds, for a task's own metric.

classify   labels.csv in the folder of the files, with the columns ``file`` and ``class_index``
detect     a folder ``labels`` next to the folder of the photographs, with ``<name>.txt`` for each: lines
           ``class cx cy w h`` relative to the picture's size (YOLO format); no file means no objects

Both are regular files of at most LABELS_LIMIT_BYTES.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.picture_files import read_picture
from edgekit.compiler.evaluate.prepared_files import kind_of_file
from edgekit.errors import SampleError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.system.regular_file import read_plain

LABELS_LIMIT_BYTES = 64 << 20
"""Largest size of one file."""
INDEX_DIGITS = 9
COORDINATE_LIMIT = 100.0
"""Largest relative coordinate: boxes may exceed the picture, but not a hundredfold."""


@dataclass(frozen=True, eq=False)
class Label:
    """The label of one photograph.

    Attributes:
        index: Class index; -1 for detection.
        boxes: Ground-truth boxes in the photograph's pixels; empty for classification.
        placed: Position of the photograph in the model's input; None for classification.
    """

    index: int
    boxes: Detections
    placed: ImagePlacement | None


def find_labels(files: Sequence[Path], card: Card | None) -> list[Label] | None:
    """Read the labels of photographs or sounds.

    Args:
        files: The photographs or sounds.
        card: Its task determines the format of the labels.

    Returns:
        One label for each file; None if there is no task, no labels, or a file is neither.

    Raises:
        SampleError: the labels are malformed or incomplete.
    """
    if card is None or card.task is None or not files:
        return None
    if any(kind_of_file(path) is None for path in files):
        return None
    if card.task.kind == "classify":
        return _classes(files)
    return _boxes(files, card) if card.task.kind == "detect" else None


def _classes(files: Sequence[Path]) -> list[Label] | None:
    tables = {path.parent: path.parent / "labels.csv" for path in files}
    if not all(table.is_file() for table in tables.values()):
        return None
    by_file: dict[Path, int] = {}
    for folder, table in tables.items():
        rows = csv.DictReader(io.StringIO(_text(table), newline=""))
        try:
            if not {"file", "class_index"} <= set(rows.fieldnames or ()):
                raise SampleError(f"{table}: needs the columns file and class_index")
            for row in rows:
                index = row["class_index"] or ""
                if not index.isdecimal() or len(index) > INDEX_DIGITS:
                    raise SampleError(
                        f"{table}, line {rows.line_num}: class_index is {index[:40]!r}, not a number"
                    )
                by_file[folder / (row["file"] or "")] = int(index)
        except csv.Error as problem:
            raise SampleError(f"{table}, line {rows.line_num}: {problem}") from None
    missing = [path for path in files if path not in by_file]
    if missing:
        raise SampleError(f"{tables[missing[0].parent]} has no line for {missing[0].name}")
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    return [Label(by_file[path], nothing, None) for path in files]


def _boxes(files: Sequence[Path], card: Card) -> list[Label] | None:
    texts = [path.parent.parent / "labels" / f"{path.stem}.txt" for path in files]
    if not any(text.is_file() for text in texts):
        return None
    labels = []
    for path, text in zip(files, texts, strict=True):
        height, width = read_picture(path).shape[:2]
        boxes = _read_boxes(text, width, height)
        labels.append(Label(-1, boxes, processing.placement(card, width, height)))
    return labels


def _read_boxes(path: Path, width: int, height: int) -> Detections:
    rows = []
    for number, line in enumerate(_text(path).splitlines() if path.is_file() else (), 1):
        try:
            index, cx, cy, w, h = (float(part) for part in line.split())
        except ValueError:
            raise SampleError(
                f"{path}, line {number}: {line[:80]!r} does not have the form 'class cx cy w h'"
            ) from None
        if not (0 <= index < 10**INDEX_DIGITS and index == int(index)):
            raise SampleError(f"{path}, line {number}: {line[:80]!r} does not begin with a class number")
        if not all(abs(part) <= COORDINATE_LIMIT for part in (cx, cy, w, h)):  # NaN is not either
            raise SampleError(
                f"{path}, line {number}: {line[:80]!r} has coordinates outside 0 to 1 of the picture"
            )
        rows.append((index, cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2))
    table = np.array(rows, np.float32).reshape(-1, 5)
    boxes = table[:, 1:] * np.array([width, height, width, height], np.float32)
    return Detections(boxes, np.ones(len(table), np.float32), table[:, 0].astype(np.int64))


def _text(path: Path) -> str:
    try:
        return read_plain(path, LABELS_LIMIT_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise SampleError(f"{path} can't be read as labels: {reason}") from None
