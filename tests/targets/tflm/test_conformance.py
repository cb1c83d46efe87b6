"""Cases of the conformance grid on TFLite Micro: each is answered rightly, or refused with its node.

Of the families that a network on integers is made of; docs/chips.md has the counts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance import grid

pytestmark = [pytest.mark.needs_tflm, pytest.mark.needs_ort]
FAMILIES = {"blocks": 27, "conv": 168, "norm": 48, "pool": 95, "quant": 80}
"""Family -> how many of its cases pass, at least."""
TWICE_ROUNDED = "its softmax is a step of 1/256 off, and the pair after it rounds that again, coarsely"
WRONG = {"quant/qdq_int8_softmax": TWICE_ROUNDED, "quant/qdq_uint8_softmax": TWICE_ROUNDED}
"""Case -> why the engine itself is wrong; verification rejects these."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family(family: str, tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    troubles = {}
    for key in (key for key in grid.CASES if key.startswith(f"{family}/")):
        try:
            outcome = grid.run_case(key, "tflm", tmp_path)
        except Exception as crash:  # the family goes on; the test fails with it
            troubles[key] = f"crash: {crash}"
            continue
        found[outcome.kind] += 1
        if outcome.kind == "wrong" and key not in WRONG:
            troubles[key] = outcome.detail
    assert not troubles
    assert found["wrong"] == sum(key.startswith(f"{family}/") for key in WRONG)
    assert found["pass"] >= FAMILIES[family], found
