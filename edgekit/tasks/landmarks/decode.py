"""Landmarks of one hand, face or body that fills the image: MediaPipe's regression networks.

Bazarevsky et al., BlazePose, arXiv 2006.10204; Zhang et al., MediaPipe Hands, arXiv 2006.10214; Kartynnik
et al., Real-time Facial Surface Geometry, arXiv 1907.06724; and their graphs: ``hand_landmark_cpu``,
``face_landmark_cpu`` and ``pose_landmark_by_roi_cpu`` (TensorsToLandmarksCalculator,
RefineLandmarksFromHeatmapCalculator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.task_decoder import Decoder, Outputs, within
from edgekit.tensor_spec import Array

HAND_NAMES = (
    "wrist",
    *(f"{f}_{j}" for f in ("thumb", "index", "middle", "ring", "pinky") for j in range(1, 5)),
)
"""Joints from the palm to the tip: a thumb's 1 is MediaPipe's CMC, a finger's its MCP; 4 is the tip."""
HAND_SKELETON = (
    *((0, first) for first in (1, 5, 17)),
    *((first, first + 4) for first in (5, 9, 13)),
    *((first + j, first + j + 1) for first in (1, 5, 9, 13, 17) for j in range(3)),
)
_PAIRED = ["shoulder", "elbow", "wrist", "pinky", "index", "thumb", "hip", "knee", "ankle", "heel", "foot"]
POSE_NAMES = (
    "nose",
    *(f"{side}_eye_{part}" for side in ("left", "right") for part in ("inner", "middle", "outer")),
    *(f"{side}_{part}" for part in ("ear", "mouth", *_PAIRED) for side in ("left", "right")),
)
_SIDE = ((11, 13), (13, 15), (15, 17), (15, 19), (15, 21), (17, 19), (11, 23), (23, 25), (25, 27), (27, 29))
POSE_SKELETON = (
    *((a + right, b + right) for a, b in (*_SIDE, (27, 31), (29, 31)) for right in (0, 1)),
    *((11, 12), (23, 24), (9, 10), (0, 1), (1, 2), (2, 3), (3, 7), (0, 4), (4, 5), (5, 6), (6, 8)),
)
HEATMAP_WINDOW = 7
"""Cells around a landmark that refine it, and the least peak among them: BlazePose's graph."""
HEATMAP_LEAST = 0.5


@dataclass(frozen=True)
class LandmarkOptions:
    """Options for decoding landmarks.

    Attributes:
        score: Minimum presence. Below it, the result is empty.
        logits: Whether the presence is before sigmoid.
        normalized: Whether coordinates are 0 to 1 of the input instead of its pixels.
    """

    score: float = 0.5
    logits: bool = False
    normalized: bool = False

    def __post_init__(self) -> None:
        within(0, 1, score=self.score)


@dataclass(frozen=True)
class FaceOptions(LandmarkOptions):
    """Options of MediaPipe's face network: presence is before sigmoid."""

    logits: bool = True


def hand_landmarks(
    outputs: Outputs, options: LandmarkOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``points`` [1, 63]: x, y, z of 21; ``presence`` [1, 1]; ``handedness`` [1, 1]: how surely it is class
    0 of two, if the model gives it."""
    points = _points(outputs["points"], 3, options, placed)
    classes = None
    if "handedness" in outputs:
        classes = np.array([_number(outputs["handedness"], "the handedness") < 0.5], np.int64)
    named = len(points) == len(HAND_NAMES)
    names, skeleton = (HAND_NAMES, HAND_SKELETON) if named else ((), ())
    return _instance(
        points, outputs, options, placed, labels, classes=classes, names=names, skeleton=skeleton
    )


def face_landmarks(
    outputs: Outputs, options: FaceOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``points`` [1, 1404]: x, y, z of 468, or as many as there are; ``presence`` [1, 1]."""
    return _instance(_points(outputs["points"], 3, options, placed), outputs, options, placed, labels)


def pose_landmarks(
    outputs: Outputs, options: LandmarkOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``points`` [1, 195]: x, y, z, visibility, presence of 39, of which 33 are the body's, the last two
    before sigmoid; ``presence`` [1, 1]; ``heatmap`` [1, h, w, 39], before sigmoid, refines them."""
    points = _points(outputs["points"], 5, options, placed)
    if "heatmap" in outputs:
        points = _refined(points, outputs["heatmap"], placed)
    points = points[: len(POSE_NAMES)]
    visible = _sigmoid(points[:, 3])[None]
    named = len(points) == len(POSE_NAMES)
    names, skeleton = (POSE_NAMES, POSE_SKELETON) if named else ((), ())
    return _instance(
        points, outputs, options, placed, labels, point_scores=visible, names=names, skeleton=skeleton
    )


def _points(output: Array, width: int, options: LandmarkOptions, placed: ImagePlacement) -> Array:
    """Split an output into rows of ``width`` values, the first three in pixels of the input: float32 [k,
    width]."""
    if not output.size or output.size % width:
        raise EngineError(f"landmarks have {width} values each, but the output is {list(output.shape)}")
    points = output.reshape(-1, width).astype(np.float32)
    if options.normalized:
        points[:, :3] *= np.array([placed.input_width, placed.input_height, placed.input_width], np.float32)
    return points


def _instance(
    points: Array,
    outputs: Outputs,
    options: LandmarkOptions,
    placed: ImagePlacement,
    labels: Sequence[str],
    *,
    classes: Array | None = None,
    point_scores: Array | None = None,
    names: Sequence[str] = (),
    skeleton: Sequence[tuple[int, int]] = (),
) -> Keypoints:
    """Return one instance, or none if its presence is too low. Points may lie outside of the frame."""
    presence = _number(outputs["presence"], "the presence")
    score = float(_sigmoid(presence) if options.logits else presence)
    count = int(score >= options.score)
    offset = np.array([placed.offset_x, placed.offset_y], np.float32)
    scale = np.array([placed.scale_x, placed.scale_y], np.float32)
    positions = ((points[:, :2] - offset) / scale)[None]
    depths = (points[:, 2] / scale[0])[None]
    return Keypoints(
        positions[:count],
        np.array([score], np.float32)[:count],
        None if classes is None else classes[:count],
        labels,
        None,
        None if point_scores is None else point_scores[:count],
        depths[:count],
        names,
        skeleton,
    )


def _number(output: Array, description: str) -> np.float32:
    if output.size != 1:
        raise EngineError(f"{description} is one number, but the output is {list(output.shape)}")
    return np.float32(output.reshape(-1)[0])


def _refined(points: Array, heatmap: Array, placed: ImagePlacement) -> Array:
    """x and y as the mean of the heatmap's cells around each landmark, weighted by their sigmoid."""
    if heatmap.ndim != 4 or heatmap.shape[0] != 1 or heatmap.shape[3] != len(points):
        shape = f"[1, height, width, {len(points)}]"
        raise EngineError(f"the heatmap is {shape}, but the output is {list(heatmap.shape)}")
    height, width = heatmap.shape[1:3]
    cells = np.array([width / placed.input_width, height / placed.input_height])
    refined = points.copy()
    reach = HEATMAP_WINDOW // 2
    for index, (column, row) in enumerate(np.trunc(points[:, :2] * cells).astype(np.int64).tolist()):
        if not (0 <= column < width and 0 <= row < height):
            continue
        rows = np.arange(max(0, row - reach), min(height, row + reach + 1))
        columns = np.arange(max(0, column - reach), min(width, column + reach + 1))
        sure = _sigmoid(heatmap[0, rows[:, None], columns, index].astype(np.float32))
        if sure.max() >= HEATMAP_LEAST:
            mean = np.array([(sure @ columns.astype(np.float32)).sum(), (rows @ sure).sum()]) / sure.sum()
            refined[index, :2] = mean / cells
    return refined


def _sigmoid(values: Array | np.float32) -> Array:
    real: Array = 1 / (1 + np.exp(-np.clip(values, -80, 80)))
    return real


ROLES = ("points", "presence")
DECODERS: Mapping[str, Decoder] = {
    "hand": Decoder(LandmarkOptions, hand_landmarks, ROLES, ("handedness",)),
    "face": Decoder(FaceOptions, face_landmarks, ROLES),
    "pose": Decoder(LandmarkOptions, pose_landmarks, ROLES, ("heatmap",)),
}
