"""Fidelity of mattes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.matting import Matte
from edgekit.tasks.matting.metric import alpha_agreement


def test_alpha_agreement() -> None:
    a, b = (Matte(np.full((2, 2), value, np.float32)) for value in (0.5, 0.75))
    assert alpha_agreement([a, a], [a, b]) == pytest.approx(1 - 0.125)
