"""MoveNet: one person's 17 keypoints (Lightning, Thunder), or those of up to six (MultiPose)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, within
from edgekit.tasks.detect.boxes import input_pixels
from edgekit.tasks.detect.end2end import rank
from edgekit.tasks.pose.skeleton import check_skeleton, names_and_lines


@dataclass(frozen=True)
class MovenetOptions:
    """Options for decoding MoveNet.

    Attributes:
        score: Minimum score of a person, 0 to 1.
        top: Maximum number of persons.
        point_score: Keypoints above this score count for the person's score, as in TensorFlow's example.
        keypoints: Names of the keypoints.
        skeleton: Pairs of keypoints, numbered from 0, that a line connects.
    """

    score: float = 0.25
    top: int = 6
    point_score: float = 0.1
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        at_least(1, top=self.top)
        within(0, 1, score=self.score, point_score=self.point_score)
        check_skeleton(self)


def pose_movenet(
    outputs: Outputs, options: MovenetOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``keypoints`` [1, 1, 17, 3]: y, x, score, all 0 to 1. The person's score is the mean of the keypoints'
    scores above ``point_score``, and the box their extent: TensorFlow's pose estimation example.
    """
    rows = outputs["keypoints"]
    if rows.ndim < 2 or rows.shape[-1] != 3 or rows.size != 3 * rows.shape[-2]:
        raise EngineError(f"the output is {list(rows.shape)}; movenet decodes [1, 1, keypoints, 3]")
    points = rows.reshape(-1, 3).astype(np.float32)
    names, lines = names_and_lines(options, len(points))
    sure = points[:, 2] > np.float32(options.point_score)
    score = float(points[sure, 2].mean()) if sure.any() else 0.0
    selected = slice(0, int(score > options.score))
    places = placed.to_frame(input_pixels(points[None, :, 1::-1], placed)).astype(np.float32)
    box = np.concatenate([places.min(axis=1), places.max(axis=1)], axis=1)
    return Keypoints(
        places[selected],
        np.array([score], np.float32)[selected],
        None,
        labels or ("person",),
        box[selected],
        points[None, :, 2][selected],
        None,
        names,
        lines,
    )


def pose_movenet_multipose(
    outputs: Outputs, options: MovenetOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``predictions`` [1, people, 17 x 3 + 5]: y, x, score of each keypoint, then y1, x1, y2, x2 and the
    person's score, all 0 to 1: the model's page.
    """
    rows = outputs["predictions"]
    if rows.ndim != 3 or len(rows) != 1 or rows.shape[2] < 8 or rows.shape[2] % 3 != 2:
        raise EngineError(
            f"the output is {list(rows.shape)}; movenet-multipose decodes [1, people, keypoints x 3 + 5]"
        )
    people = rows[0][rank(rows[0, :, -1], options.score, options.top)].astype(np.float32)
    points = people[:, :-5].reshape(len(people), rows.shape[2] // 3 - 1, 3)
    names, lines = names_and_lines(options, points.shape[1])
    boxes = input_pixels(people[:, [-4, -5, -2, -3]], placed)
    return Keypoints(
        placed.to_frame(input_pixels(points[:, :, 1::-1], placed)).astype(np.float32),
        people[:, -1],
        None,
        labels or ("person",),
        placed.to_frame(boxes).astype(np.float32),
        points[:, :, 2],
        None,
        names,
        lines,
    )


DECODERS: Mapping[str, Decoder] = {
    "movenet": Decoder(MovenetOptions, pose_movenet, ("keypoints",)),
    "movenet-multipose": Decoder(MovenetOptions, pose_movenet_multipose, ("predictions",)),
}
