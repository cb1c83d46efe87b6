"""Mean absolute difference of alpha on labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.processing.predictions.matting import Matte
from edgekit.tasks.matting import accuracy
from tests.fixtures.cards import card

Image = pytest.importorskip("PIL.Image")
CARD = card({"kind": "matting", "decode": "alpha", "outputs": {"alpha": "y"}})


@pytest.mark.parametrize(("dtype", "white"), [(np.uint8, 255), (np.uint16, 65535), (np.uint8, 1)])
def test_mean_absolute_difference(tmp_path: Path, dtype: type, white: int) -> None:
    (tmp_path / "alpha").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "a.jpg")
    Image.fromarray(np.array([[0, 0], [white, white]], dtype)).save(tmp_path / "alpha" / "a.png")
    (sample,) = accuracy.read_mattes(tmp_path, CARD).samples
    error = accuracy.measure(sample.label, Matte(np.array([[0, 0.5], [0.5, 1]], np.float32)), CARD)
    assert error == pytest.approx(0.25)
    scores = accuracy.score([error, 0.0], CARD)
    assert scores.value(np.ones(2, np.int64)) == pytest.approx(0.125)
    assert list(scores.faults) == ["alpha differs by 0.250", "alpha differs by 0.000"]
    assert scores.groups == {}
