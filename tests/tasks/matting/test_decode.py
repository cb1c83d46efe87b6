"""Mattes made by hand."""

from __future__ import annotations

import numpy as np

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.matting.decode import MattingOptions, matte

WHOLE = ImagePlacement(4, 2, 4, 2)
ALPHA = np.array([[[[0, 0.25, 0.5, 1.0]] * 2]], np.float32)


def test_alpha_and_foreground() -> None:
    colours = np.stack([np.full((2, 4), value, np.float32) for value in (1, 0.5, -0.1)])[None]
    found = matte({"alpha": ALPHA, "foreground": colours}, MattingOptions(), WHOLE)
    np.testing.assert_allclose(found.alpha, ALPHA[0, 0])
    assert found.foreground is not None
    assert found.foreground[0, 0].tolist() == [255, 128, 0]
    assert str(found) == "foreground   25.0%\nedges        50.0%\nbackground   25.0%"
    assert found.as_json() == {
        "width": 4,
        "height": 2,
        "foreground": 0.25,
        "background": 0.25,
        "mean_alpha": 0.4375,
    }


def test_another_background() -> None:
    found = matte({"alpha": ALPHA}, MattingOptions(), WHOLE)
    frame = np.full((2, 4, 3), 200, np.uint8)
    mixed = found.over(frame, np.array([0, 100, 200]))
    assert mixed[0].tolist() == [[0, 100, 200], [50, 125, 200], [100, 150, 200], [200, 200, 200]]


def test_logits_and_stretching() -> None:
    logits = np.log(ALPHA[..., 1:3] / (1 - ALPHA[..., 1:3]))
    placed = ImagePlacement(2, 2, 2, 2)
    found = matte({"alpha": logits}, MattingOptions(logits=True), placed)
    np.testing.assert_allclose(found.alpha[0], [0.25, 0.5], rtol=1e-6)
    stretched = matte({"alpha": ALPHA[..., 1:3]}, MattingOptions(stretch=True), placed)
    np.testing.assert_allclose(stretched.alpha[0], [0, 1])
