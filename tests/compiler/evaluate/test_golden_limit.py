"""A build judges all samples together; a device has the golden vector alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.golden_limit import DEVICE_MARGIN_DB, golden_limits_db
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle

EXACT = np.ones(100, np.float32)


def test_only_a_limit_that_the_variant_misses_itself_is_lowered() -> None:
    expected = {"near": EXACT, "far": EXACT, "equal": EXACT, "lost": EXACT}
    results = {"near": EXACT * 1.001, "far": EXACT * 1.05, "equal": EXACT, "lost": -EXACT}
    limits = golden_limits_db(expected, results, dict.fromkeys(expected, 40.0))
    assert limits == {"far": pytest.approx(26.0 - DEVICE_MARGIN_DB, abs=0.1), "lost": 0.0}


@pytest.mark.needs_ort
@pytest.mark.needs_shared
def test_what_was_verified_is_verified_again(shared: Path) -> None:
    """On noise this detector's outputs are near zero, and its golden vector has 27 dB alone."""
    bundle = edgekit.build(
        shared / "models/ch_PP-OCRv4_det_infer.onnx", targets=["ort"], shapes={"x": (1, 3, 320, 320)}
    )
    (check,) = verify_bundle(bundle)
    assert check.outcome is CheckOutcome.VERIFIED, check
