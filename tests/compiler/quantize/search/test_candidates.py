"""What a candidate is called and refused for, on a network of 3x3 and 1x1 convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.relative_time import RelativeTimer
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.pipeline.int8_evaluation import _precision
from edgekit.compiler.pipeline.int8_search import _Clock
from edgekit.compiler.quantize.search import search_context, sensitivity
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import BASELINE, QUICK, CandidateConfig
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.fixtures import models
from tests.fixtures.quantization_data import quantization_data

pytestmark = pytest.mark.needs_ort


def candidates(folder: Path, path: Path | None = None, timed: bool = False) -> Candidates:
    target = resolve(find_profile("ort"))
    context = quantization_data(path or models.write(folder, models.SMALL_CNN), 8).search_context
    assert target.rules is not None
    parent = target.compiler.compile_model(context.model, target.profile, "fp32") if timed else None
    return Candidates(context, target, target.rules, parent, "test")


def test_a_placement_that_leaves_nothing_is_refused_and_not_measured(tmp_path: Path) -> None:
    with candidates(tmp_path) as made:
        tried = made.measure(CandidateConfig("256 columns", BASELINE))
    assert (tried.fidelity, tried.ratio) == (None, None)
    assert tried.failure == "no node would be left to run on integers"


def test_mixed_means_that_blocks_with_weights_stay_float(tmp_path: Path) -> None:
    with candidates(tmp_path) as made:
        everything, riders = (made.compile(CandidateConfig(name, QUICK)) for name in ("all", "no riders"))
        one = made.compile(CandidateConfig("all", QUICK, frozenset(everything.plan.weights)))
    assert [_precision(each, ()) for each in (everything, riders, one)] == ["int8", "int8", "int8-mixed"]


TWO_CONVS = """
<ir_version: 8, opset_import: ["": 17]>
two (float[1,3,16,16] image) => (float[1,3,16,16] y)
<float[3,3,1,1] w = {1,-0.5,0.25, 0,1,0.5, -1,0.5,1}, float[3,3,1,1] v = {1,0,0, 0,1,0, 0,0,1}>
{
    a = Conv(image, w)
    r = Relu(a)
    y = Conv(r, v)
}
"""


def test_sensitivities_that_were_cut_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    runs, real = [0], search_context.run_qdq_graph

    def counted(model: ir.Model, samples: Sequence[Sample]) -> Sequence[Sample]:
        runs[0] += 1
        return real(model, samples)

    monkeypatch.setattr(sensitivity, "run_qdq_graph", counted)
    path = models.write(tmp_path, TWO_CONVS)
    for answers, known in (([True, False], 1), ([True, True], 2), ([], 2)):
        left = iter(answers)
        with candidates(tmp_path, path) as made:
            found = made.find_float_regions(CandidateConfig("all"), partial(next, left, True))[1]
        assert len(found) == known
    assert runs == [2]


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
    assert clock.has_time(quick, 0.8)  # 7 of 10 s are gone, and the last quick one took none
    assert not clock.has_time(quick, 0.7)
    left_out = clock.left_out
    assert left_out == 1  # what has no time in its part alone may still have some
    now[0] += 3.0
    assert not clock.left()
    assert not clock.has_time(quick)


def test_placements_that_are_the_same_for_a_model_count_once(tmp_path: Path) -> None:
    with candidates(tmp_path, models.write(tmp_path, TWO_CONVS)) as made:
        assert made.placements == ("all", "128 columns and riders")  # its Convs are 1x1, with 3 channels


@pytest.mark.parametrize(
    ("rough", "times", "expected"),
    [
        (0.6, [0.7], 0.7),  # they agree
        (0.6, [1.2, 0.62], 0.62),  # the second one was disturbed
        (0.6, [1.2, 1.1], 1.1),  # the rough one was
        (0.9, [1.2], 1.2),  # it promised little
    ],
)
def test_two_times_that_contradict_each_other_are_decided_by_a_third(
    rough: float, times: list[float], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RelativeTimer, "rough_ratio", lambda self, runner: rough)
    monkeypatch.setattr(RelativeTimer, "ratio", lambda self, runner: times.pop(0))
    with candidates(tmp_path, timed=True) as made:
        assert made.measure(CandidateConfig("all", QUICK)).ratio == rough
        assert made.measure(CandidateConfig("all", BASELINE)).ratio == expected
    assert not times
