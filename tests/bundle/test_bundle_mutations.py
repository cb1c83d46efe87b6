"""No mutation of a bundle gives more than an answer or an EdgeKitError."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from tests.fixtures.bundle_mutations import KINDS, mutated, original, outcomes
from tests.fixtures.bundles import packed_parts

pytestmark = pytest.mark.needs_ort


def test_200_mutations_are_answered_or_refused_and_none_ends_the_process(tmp_path: Path) -> None:
    found = list(outcomes(original(tmp_path), range(200)))
    assert [outcome.fault for outcome in found if outcome.fault] == []
    assert [outcome.seed for outcome in found] == list(range(200))
    assert Counter(outcome.kind for outcome in found) == dict.fromkeys(KINDS, 50)
    ends = Counter(outcome.end for outcome in found)
    assert min(ends[end] for end in ("refused when opened", "found by verify", "answers")) > 5


def test_a_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    path = original(tmp_path)
    with Bundle.open(path) as bundle:
        manifest, data = packed_parts(bundle)
    whole, before = path.read_bytes(), json.dumps(manifest)
    files = [mutated(whole, manifest, data, seed) for seed in range(40)]
    assert files == [mutated(whole, manifest, data, seed) for seed in range(40)]
    assert json.dumps(manifest) == before
    assert len(set(files)) > 35
