"""Things found in a frame, with their masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.processing.predictions.label import corners_text, label_of, listed
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True, eq=False)
class Instance:
    """One thing found, with its mask.

    Attributes:
        index: Class number.
        score: 0 to 1.
        box: x1, y1, x2, y2 in the frame's pixels.
        left, top: The frame's pixel where the mask begins.
        mask: bool [rows, columns], of the frame's pixels: only the part inside the box.
    """

    index: int
    label: str
    score: float
    box: tuple[float, float, float, float]
    left: int
    top: int
    mask: Array

    @property
    def area(self) -> int:
        """Pixels of the mask."""
        return int(np.count_nonzero(self.mask))


@dataclass(frozen=True, eq=False, repr=False)
class Instances(Prediction):
    """Instances found in a frame, best score first. Each mask is cropped to its box.

    Attributes:
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the frame's pixels, within the frame.
        scores: float32 [n], 0 to 1.
        classes: int64 [n].
        crops: Mask of each instance, bool [rows, columns], from its corner on.
        corners: int64 [n, 2]: x, y of the frame's pixel where each crop begins.
        width, height: Size of the frame in pixels.
        labels: The card's labels by class number, or empty.
    """

    boxes: Array
    scores: Array
    classes: Array
    crops: Sequence[Array]
    corners: Array
    width: int
    height: int
    labels: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int) -> Instance:
        class_index = int(self.classes[index])
        x1, y1, x2, y2 = self.boxes[index].tolist()
        left, top = self.corners[index].tolist()
        label, score = label_of(self.labels, class_index), float(self.scores[index])
        return Instance(class_index, label, score, (x1, y1, x2, y2), left, top, self.crops[index])

    def __iter__(self) -> Iterator[Instance]:
        return (self[index] for index in range(len(self)))

    def mask(self, index: int) -> Array:
        """Return the mask of one instance in the whole frame: bool [height, width]."""
        whole = np.zeros((self.height, self.width), np.bool_)
        (left, top), crop = self.corners[index], self.crops[index]
        whole[top : top + crop.shape[0], left : left + crop.shape[1]] = crop
        return whole

    def draw_on(self, canvas: Canvas) -> None:
        for number, instance in reversed(list(enumerate(self))):
            canvas.cover(instance.mask, canvas.colour_of(number), (instance.left, instance.top))
        for number, instance in reversed(list(enumerate(self))):
            canvas.box(instance.box, canvas.colour_of(number))
            text = f"{instance.label} {instance.score:.2f}"
            canvas.label(text, instance.box[:2], canvas.colour_of(number))

    def __str__(self) -> str:
        return listed((one.label, one.score, f"{corners_text(one.box)}  {one.area} pixels") for one in self)

    def as_json(self) -> list[dict[str, Json]]:
        """Return the instances with their masks as COCO's compressed RLE of the whole frame, which
        pycocotools decodes."""
        entries: list[dict[str, Json]] = []
        for number, instance in enumerate(self):
            counts = rle_counts(self.mask(number))
            entry: dict[str, Json] = {"index": instance.index, "label": instance.label}
            entry |= {"score": round(instance.score, 6), "box": [round(value, 2) for value in instance.box]}
            entry["area"] = instance.area
            entry["mask"] = {"size": [self.height, self.width], "counts": rle_text(counts)}
            entries.append(entry)
        return entries


def rle_counts(mask: Array) -> list[int]:
    """Compute the run lengths of a mask, column by column, beginning with unset pixels: COCO's RLE.

    >>> rle_counts(np.array([[0, 1], [1, 1]], np.bool_))
    [1, 3]
    """
    values = mask.T.ravel()
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    ends = np.concatenate([[0], changes, [values.size]])
    lengths: list[int] = np.diff(ends).tolist()
    return [0, *lengths] if values.size and values[0] else lengths


def rle_text(counts: Sequence[int]) -> str:
    """COCO's text of run lengths: from the third on the difference to the one two before, in groups of five
    bits, the lowest first, bit 5 set where more follow, 48 added (pycocotools' rleToString).

    >>> rle_text([1, 3])
    '13'
    """
    text = []
    for index, count in enumerate(counts):
        rest = count - counts[index - 2] if index > 2 else count
        more = True
        while more:
            group, rest = rest & 31, rest >> 5
            more = rest != (-1 if group & 16 else 0)
            text.append(chr((group | 32 if more else group) + 48))
    return "".join(text)
