"""What a candidate is called and refused for, on a network of 3x3 and 1x1 convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.pipeline.int8_evaluation import _name
from edgekit.pipeline.int8_search import _Clock
from edgekit.quantize.search.candidates import Candidates
from edgekit.quantize.search.measurement import BASELINE, QUICK, CandidateConfig
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.fixtures import models
from tests.fixtures.quantization_data import quantization_data

pytestmark = pytest.mark.needs_ort


def candidates(folder: Path) -> Candidates:
    target = resolve(find_profile("ort"))
    context = quantization_data(models.write(folder, models.SMALL_CNN), 8).search_context
    assert target.rules is not None
    return Candidates(context, target, target.rules, None, "test")


def test_a_placement_that_leaves_nothing_is_refused_and_not_measured(tmp_path: Path) -> None:
    with candidates(tmp_path) as made:
        tried = made.measure(CandidateConfig("256 columns", BASELINE))
    assert (tried.fidelity, tried.ratio) == (None, None)
    assert tried.failure == "nothing is left that computes on integers"


def test_mixed_means_that_blocks_with_weights_stay_float(tmp_path: Path) -> None:
    with candidates(tmp_path) as made:
        everything, riders = (made.compile(CandidateConfig(name, QUICK)) for name in ("all", "no riders"))
        one = made.compile(CandidateConfig("all", QUICK, frozenset(everything.plan.weights)))
    assert [_name(each, ()) for each in (everything, riders, one)] == ["int8", "int8", "int8-mixed"]


def test_no_candidate_is_begun_that_takes_longer_than_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = _Clock(10.0)
    default, quick = CandidateConfig("all"), CandidateConfig("all", QUICK)
    assert clock.has_time(default)
    with clock.spending(default):
        now[0] += 6.0
    assert clock.left()
    assert not clock.has_time(default)
    assert clock.has_time(quick)
    with clock.spending(default):  # the first one had more to do
        now[0] += 1.0
    assert clock.has_time(default)
    now[0] += 3.0
    assert not clock.left()
    assert not clock.has_time(quick)
