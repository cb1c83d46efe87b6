"""EfficientNMS_TRT as a function, against a plain loop by NVIDIA's description."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.model.reference import Reference
from edgekit.tensor_spec import Array
from tests.fixtures.nms_plugin import IOU, KEPT, LEAST, detector

pytestmark = pytest.mark.needs_ort


def overlap(a: Array, b: Array) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inner = float(np.prod(np.maximum(sides, 0)))
    return inner / float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner)


def detections(boxes: Array, scores: Array, agnostic: bool, background: int) -> list[tuple[int, int]]:
    """Indices (class, box) of the chosen boxes of an image, best first."""
    order = [(c, n) for c in range(scores.shape[1]) for n in range(len(boxes)) if c != background]
    order = sorted((p for p in order if scores[p[1], p[0]] > LEAST), key=lambda p: -scores[p[1], p[0]])
    chosen: list[tuple[int, int]] = []
    for c, n in order:
        rivals = [m for k, m in chosen if agnostic or k == c]
        if all(overlap(boxes[n], boxes[m]) <= IOU for m in rivals):
            chosen.append((c, n))
    return chosen[:KEPT]


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(
    ("attributes", "centers", "agnostic", "background", "sigmoid"),
    [
        ("box_coding=0, background_class=-1, score_activation=0", False, False, -1, False),
        ("box_coding=1, background_class=1, score_activation=1", True, False, 1, True),
        ("box_coding=0, class_agnostic=1", False, True, -1, False),
    ],
)
def test_function(
    opset: int, attributes: str, centers: bool, agnostic: bool, background: int, sigmoid: bool
) -> None:
    rng = np.random.default_rng(opset)
    low, size = rng.uniform(0, 4, (2, 9, 2)), rng.uniform(1, 3, (2, 9, 2))
    corners = np.concatenate([low, low + size], 2).astype(np.float32)
    coded = np.concatenate([low + size / 2, size], 2).astype(np.float32) if centers else corners
    scores = rng.uniform(0, 1, (2, 9, 3)).astype(np.float32)
    given = np.log(scores / (1 - scores)) if sigmoid else scores
    model = detector(attributes, opset)
    got = Reference(model).run({"x": coded, "y": given})
    assert [value.shape for value in got.values()] == [(2, 1), (2, KEPT, 4), (2, KEPT), (2, KEPT)]
    for image in range(2):
        want = detections(corners[image], scores[image], agnostic, background)
        count = len(want)
        assert int(got["n"][image, 0]) == count > 3
        assert got["k"][image].tolist() == [c for c, _ in want] + [0] * (KEPT - count)
        np.testing.assert_allclose(got["b"][image, :count], [corners[image, n] for _, n in want], atol=1e-5)
        np.testing.assert_allclose(got["s"][image, :count], [scores[image, n, c] for c, n in want], atol=1e-5)
        assert not got["b"][image, count:].any()
        assert not got["s"][image, count:].any()


def test_fewer_boxes_than_outputs() -> None:
    model = detector("box_coding=0", boxes=2, images=1)
    assert [spec.shape for spec in signature(model)[1]] == [(1, 1), (1, KEPT, 4), (1, KEPT), (1, KEPT)]
    boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6]]], np.float32)
    got = Reference(model).run({"x": boxes, "y": np.full((1, 2, 3), 0.9, np.float32)})
    assert int(got["n"][0, 0]) == 6
