"""The short form of ``python -m tests.fuzz.readers``, and that it finds what is planted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.readers import Fault, share_of

CASES = 2000
SLOW = "s of processor time"


def test_readers_refuse_or_read_2000_mutations(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("cryptography")
    pytest.importorskip("zstandard")
    counts: Counter[str] = Counter()
    faults = []
    for found in share_of(tmp_path / "work", range(CASES), 0):
        if isinstance(found, Fault):
            if not found.what.endswith(SLOW):  # of a clock, which a test does not judge
                faults.append(found)
        else:
            counts.update(found)
    assert faults == []
    assert counts.total() == CASES
    assert len({key.rpartition(" ")[0] for key in counts}) == 30  # each reader had its turn
    assert min(counts[f"{name} read"] for name in ("bundle", "manifest", "signature", "state of a store")) > 5
