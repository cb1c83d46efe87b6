"""Decoders against their origins' own code: outputs of small networks, with what that code found in them.

The files were made with Ultralytics 8.4.190, transformers 5.23.0 and
MediaPipe 0.10.21.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing import processing
from edgekit.processing.card import parse_card
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.segment_instances import Instances

Array = npt.NDArray[Any]
FILES = sorted((Path(__file__).parent / "golden").glob("*.npz"))
PIXELS, SCORE = 0.02, 1e-3


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_finds_what_the_origin_finds(path: Path) -> None:
    with np.load(path) as file:
        saved = dict(file)
    card = parse_card(json.loads(str(saved["task"])))
    assert card.task is not None
    frames = [name.split(".")[0] for name in saved if name.endswith(".frame")]
    for number in frames:
        width, height = saved[f"{number}.frame"].tolist()
        outputs = {name: saved[f"{number}.outputs.{name}"] for name in card.task.outputs.values()}
        found = processing.decode(card, outputs, processing.placement(card, width, height))
        places, scores = places_of(found), found.scores
        expected = saved[f"{number}.places"]
        assert len(found) == len(expected)
        classes = found.classes if found.classes is not None else np.zeros(len(found), np.int64)
        free = set(range(len(found)))
        for one in range(len(expected)):  # equal scores may stand in another order
            same = [
                other
                for other in free
                if abs(float(scores[other]) - float(saved[f"{number}.scores"][one])) <= SCORE
                and np.abs(places[other] - expected[one]).max() <= PIXELS
                and classes[other] == saved[f"{number}.classes"][one]
            ]
            assert same, f"nothing of ours is at {expected[one]}"
            free.discard(same[0])
            if isinstance(found, Keypoints) and found.point_scores is not None:
                more = saved[f"{number}.more_scores"][one]
                np.testing.assert_allclose(found.point_scores[same[0]], more, atol=SCORE)
            if isinstance(found, Instances):
                packed = saved[f"{number}.masks"]
                masks = np.unpackbits(packed, count=len(expected) * width * height).astype(bool)
                whole = masks.reshape(len(expected), height, width)[one]
                # A pixel whose sum is as near to 0 as float32 rounds may fall to either side.
                assert np.count_nonzero(found.mask(same[0]) != whole) <= 2
    assert sum(len(saved[f"{number}.scores"]) for number in frames) > 0


def places_of(found: Any) -> Array:
    """Corners of boxes, then keypoints: float [n, m]."""
    if isinstance(found, OrientedDetections):
        return found.corners.reshape(len(found), 8)
    boxes: Array = found.boxes
    points = found.points if isinstance(found, Keypoints) else None
    if isinstance(found, Detections):
        points = found.landmarks
    if points is None:
        return boxes
    return np.concatenate([boxes, points.reshape(len(found), points.shape[1] * 2)], axis=1)
