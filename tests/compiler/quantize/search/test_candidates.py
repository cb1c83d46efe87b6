"""What a candidate is called and refused for, on a network of 3x3 and 1x1 convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.relative_time import RelativeTimer
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.pipeline.int8_evaluation import _precision
from edgekit.compiler.quantize.search import part_noise, search_context
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


def test_the_noise_of_parts_is_measured_once_for_all_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    runs, real = [0], search_context.run_qdq_graph

    def counted(model: ir.Model, samples: Sequence[Sample]) -> Sequence[Sample]:
        runs[0] += 1
        if runs == [2]:
            raise KeyboardInterrupt
        return real(model, samples)

    monkeypatch.setattr(part_noise, "run_qdq_graph", counted)
    path = models.write(tmp_path, TWO_CONVS)
    with candidates(tmp_path, path) as made, pytest.raises(KeyboardInterrupt):
        made.find_float_regions(CandidateConfig("all"))
    with candidates(tmp_path, path) as made:
        regions, snr_db = made.find_float_regions(CandidateConfig("all"))
        other = Candidates(made._context, made.target, replace(made.rules, target="another"), None, "test")
        assert other.find_float_regions(CandidateConfig("all")) == (regions, snr_db)
    assert list(snr_db) == ["a", "y"]
    assert runs == [3]  # what was measured before the interruption is not measured again


def test_placements_that_are_the_same_for_a_model_count_once(tmp_path: Path) -> None:
    with candidates(tmp_path, models.write(tmp_path, TWO_CONVS)) as made:
        assert made.placements == ("all", "128 columns and riders")  # its Convs are 1x1, with 3 channels


def test_a_structure_is_timed_once_for_all_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.6]
    monkeypatch.setattr(RelativeTimer, "ratio", lambda self, runner, pairs: times.pop(0))
    with candidates(tmp_path, timed=True) as made:
        assert [made.measure(CandidateConfig("all", recipe)).ratio for recipe in (QUICK, BASELINE)] == [
            0.6,
            0.6,
        ]
