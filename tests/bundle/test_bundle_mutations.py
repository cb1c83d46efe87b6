"""No mutation of a bundle gives more than an answer or an EdgeKitError."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fixtures.bundle_mutations import KINDS, original, outcomes

pytestmark = pytest.mark.needs_ort


def test_200_mutations_are_answered_or_refused_and_none_ends_the_process(tmp_path: Path) -> None:
    found = list(outcomes(original(tmp_path), range(200)))
    assert [outcome.fault for outcome in found if outcome.fault] == []
    assert [outcome.seed for outcome in found] == list(range(200))
    assert Counter(outcome.kind for outcome in found) == dict.fromkeys(KINDS, 50)
    ends = Counter(outcome.end for outcome in found)
    assert min(ends[end] for end in ("refused when opened", "found by verify", "answers")) > 5
