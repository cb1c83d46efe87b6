"""What a candidate is called and refused for, on a network of 3x3 and 1x1 convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import target
from edgekit.int8_proof import _name
from edgekit.int8_search import _Clock
from edgekit.profile import find_profile
from edgekit.quantize.candidate import Candidates
from edgekit.quantize.search import PLAIN, QUICK, Choice
from tests import models
from tests.test_ground import ground

pytestmark = pytest.mark.needs_ort


def candidates(folder: Path) -> Candidates:
    profile = find_profile("ort")
    bench = ground(models.write(folder, models.SMALL_CNN), 8).bench
    return Candidates(bench, profile, target.compiler("ort").quantization_rules(profile), None, "test")


def test_a_placement_that_leaves_nothing_is_refused_and_not_measured(tmp_path: Path) -> None:
    with candidates(tmp_path) as made:
        tried = made.measure(Choice("256 columns", PLAIN))
    assert (tried.found, tried.ratio) == (None, None)
    assert tried.refused == "nothing is left that computes on integers"


def test_mixed_means_that_blocks_with_weights_stay_float(tmp_path: Path) -> None:
    with candidates(tmp_path) as made:
        everything, riders = (made.make(Choice(name, QUICK)) for name in ("all", "no riders"))
        one = made.make(Choice("all", QUICK, frozenset(everything.plan.weights)))
    assert [_name(each, ()) for each in (everything, riders, one)] == ["int8", "int8", "int8-mixed"]


def test_no_candidate_is_begun_that_takes_longer_than_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = _Clock(10.0)
    default, quick = Choice("all"), Choice("all", QUICK)
    assert clock.in_time(default)
    with clock.spending(default):
        now[0] += 6.0
    assert clock.left()
    assert not clock.in_time(default)
    assert clock.in_time(quick)
    with clock.spending(default):  # the first one had more to do
        now[0] += 1.0
    assert clock.in_time(default)
    now[0] += 3.0
    assert not clock.left()
    assert not clock.in_time(quick)
