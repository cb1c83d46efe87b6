"""Boxes at the peaks of heatmaps (CenterNet, CenterFace), by hand and cell by cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.centerface import CenterfaceOptions, detect_centerface
from edgekit.tasks.detect.centernet import CenternetOptions, detect_centernet

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def centernet_outputs() -> dict[str, Array]:
    planes = {"heatmap": 2, "size": 2, "offset": 2}
    made = {role: np.zeros((1, count, 8, 16), np.float32) for role, count in planes.items()}
    made["heatmap"] -= 10
    return made


def test_a_centre_its_size_and_offset() -> None:
    outputs = centernet_outputs()
    outputs["heatmap"][0, 1, 3, 6] = math.log(0.8 / 0.2)
    outputs["heatmap"][0, 1, 3, 7] = math.log(0.7 / 0.3)  # a lower neighbour of its class
    outputs["heatmap"][0, 0, 3, 7] = math.log(0.6 / 0.4)  # of another class
    outputs["size"][0, :, 3, 6:8] = [[3], [2]]
    outputs["offset"][0, :, 3, 6:8] = [[0.5], [0.25]]
    found = detect_centernet(outputs, CenternetOptions(), WHOLE, ["cat", "dog"])
    # x: (6.5 -+ 1.5) 4, y: (3.25 -+ 1) 4
    np.testing.assert_allclose(found.boxes, [[20, 9, 32, 17], [24, 9, 36, 17]], atol=1e-5)
    np.testing.assert_allclose(found.scores, [0.8, 0.6], rtol=1e-6)
    assert [one.label for one in found] == ["dog", "cat"]
    del outputs["offset"]  # then a centre is its cell's middle
    found = detect_centernet(outputs, CenternetOptions(), WHOLE)
    np.testing.assert_allclose(found.boxes[0], [20, 10, 32, 18], atol=1e-5)


@pytest.mark.parametrize("score", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("logits", [True, False])
def test_peaks_are_the_papers(logits: bool, score: float) -> None:
    rng = np.random.default_rng(1)
    outputs = centernet_outputs()
    heat: Array = rng.normal(0, 1, (1, 2, 8, 16)).astype(np.float32)
    if not logits:
        heat = 1 / (1 + np.exp(-heat))
    heat = np.round(heat, 1)  # so that neighbours are equal
    outputs |= {"heatmap": heat, "size": rng.uniform(1, 3, (1, 2, 8, 16)).astype(np.float32)}
    expected = []
    for kind in range(2):
        for y in range(8):
            for x in range(16):
                around = heat[0, kind, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                value = float(heat[0, kind, y, x])
                chance = 1 / (1 + math.exp(-value)) if logits else value
                if value == around.max() and chance > score:
                    expected.append((chance, kind))
    options = CenternetOptions(score=score, top=1000, logits=logits)
    found = detect_centernet(outputs, options, ImagePlacement(1000, 1000, 1000, 1000))
    assert len(found) == len(expected) > 5
    np.testing.assert_allclose(np.sort(found.scores), sorted(one[0] for one in expected), rtol=1e-5)
    assert np.bincount(found.classes, minlength=2).tolist() == [
        sum(e[1] == k for e in expected) for k in (0, 1)
    ]
    assert len(detect_centernet(outputs, CenternetOptions(score, 3, logits=logits), WHOLE)) == 3


def centerface_outputs() -> dict[str, Array]:
    planes = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 10}
    return {role: np.zeros((1, count, 8, 16), np.float32) for role, count in planes.items()}


def test_centerface_box_and_landmarks() -> None:
    outputs = centerface_outputs()
    outputs["heatmap"][0, 0, 3, 6] = 0.8
    outputs["scale"][0, :, 3, 6] = np.log([2.0, 3.0])  # height 8, width 12 pixels
    outputs["offset"][0, :, 3, 6] = [0.25, -0.5]  # centre y = (3 + .25 + .5) 4 = 15, x = (6 - .5 + .5) 4 = 24
    outputs["landmarks"][0, :, 3, 6] = [0.5, 0.25, 0.5, 0.75, 0.6, 0.5, 0.8, 0.3, 0.8, 0.7]  # y, x
    found = detect_centerface(outputs, CenterfaceOptions(score=0.5), WHOLE)
    np.testing.assert_allclose(found.boxes, [[18, 11, 30, 19]], atol=1e-4)
    assert found.landmarks is not None
    points = np.array([[21, 15], [27, 15], [24, 15.8], [21.6, 17.4], [26.4, 17.4]])
    np.testing.assert_allclose(found.landmarks[0], points, atol=1e-4)
    np.testing.assert_allclose(found.scores, [0.8])
