"""Labels of the photographs and sounds of a build, for the task's own metric.

The formats are those of ``edgekit evaluate`` (docs/evaluate.md). Each file must have a label.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.label_files.boxes import read_boxes
from edgekit.compiler.evaluate.label_files.classes import read_classes
from edgekit.compiler.evaluate.label_files.folder import NoLabelsError
from edgekit.compiler.evaluate.prepared_files import kind_of_file
from edgekit.errors import SampleError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.picture_files import picture_size
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement

READERS = {"classify": read_classes, "detect": read_boxes}
"""Task -> the reader of its labels, for the tasks whose labels a build uses."""
NO_BOXES = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))


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
        card: Its task determines the metric, and its class names the numbers of the labels.

    Returns:
        One label for each file. None if there is no task, no labels, or a file is neither.
    """
    if card is None or card.task is None or card.task.kind not in READERS or not files:
        return None
    folder = Path(os.path.commonpath([path.parent for path in files]))
    if not folder.is_dir() or any(kind_of_file(path) in (None, "text") for path in files):
        return None
    try:
        labelled = READERS[card.task.kind](folder, card, files)
    except NoLabelsError:
        return None
    labels = {sample.item: sample.label for sample in labelled.samples}
    missing = [path for path in files if path not in labels]
    if missing:
        raise SampleError(
            f"{len(missing)} of {len(files)} samples have no label ({labelled.form}), e.g. {missing[0]}; "
            "label them, or leave them out"
        )
    if card.task.kind == "classify":
        return [Label(labels[path], NO_BOXES, None) for path in files]
    return [_boxes(path, labels[path].objects, card) for path in files]


def place_labels(labels: Sequence[Label], card: Card) -> list[Label]:
    """Return the labels with the photographs placed in the model's input by another card."""
    return [
        replace(label, placed=processing.placement(card, label.placed.frame_width, label.placed.frame_height))
        if label.placed is not None
        else label
        for label in labels
    ]


def _boxes(path: Path, objects: Detections, card: Card) -> Label:
    height, width = picture_size(path)
    return Label(-1, objects, processing.placement(card, width, height))
