"""The search for int8 against its clock: it goes on where it stopped, and auto begins with what int8 does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgekit
from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.int8 import Shortlist, choose, measure_further
from edgekit.compiler.pipeline.int8_evaluation import try_int8
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import DEFAULT, QUICK, CandidateConfig, Measurement
from edgekit.compiler.quantize.search.measurement_cache import SHIPPED
from edgekit.system.progress import Stage
from edgekit.target.build_target import resolve
from edgekit.target.contract import Runner
from edgekit.target.installed_profiles import find_profile
from tests.compiler.quantize.search import planted

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the search sees, on which every measurement takes 10 s, of a small network with latencies
    that depend on the placement alone."""
    now, measured = [1000.0], Candidates._measured

    def slow(self: Candidates, config: CandidateConfig) -> Measurement:
        now[0] += 10.0
        return measured(self, config)

    def run(
        self: Candidates, config: CandidateConfig, float_share: float, runner: Runner
    ) -> tuple[Any, float]:
        ratio = {"all": 0.7, "no riders": 0.65}.get(config.placement, 0.75) + float_share / 4
        return [runner.run(sample) for sample in self._context.validation], ratio

    monkeypatch.setattr(planted, "SIZE", 8)
    monkeypatch.setattr(Candidates, "_measured", slow)
    monkeypatch.setattr(Candidates, "_run", run)
    for module in ("int8", "int8_search"):
        time = SimpleNamespace(monotonic=lambda: now[0])
        monkeypatch.setattr(f"edgekit.compiler.pipeline.{module}.time", time)
    return now


def searched(folder: Path, cache: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """A build with a cache of that name, and what its search found."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / cache))
    given = {"targets": ["ort"], "precision": "int8", "samples": planted.samples(12)}
    bundle = edgekit.build(planted.sound(folder), **{**given, **options})
    return bundle, next(v.evidence["search"] for v in bundle.variants if "search" in v.evidence)


def test_a_search_that_was_cut_goes_on_until_it_is_whole(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out, counts = [], []
    for _ in range(8):
        started = clock[0]
        bundle, search = searched(tmp_path, "cache", monkeypatch, precision="auto", time_budget=55)
        left_out.append(search["left_out"])
        counts.append(len(search["tried"]))
        if not left_out[-1]:
            break
        assert 0 < clock[0] - started < 55 + 30, "some is measured anew, in the time there is"
    assert left_out[0] > 0, "cut at first"
    assert left_out[-1] == 0, "whole in the end"
    assert counts == sorted(counts)
    spent = clock[0]
    again, _ = searched(tmp_path, "cache", monkeypatch, precision="auto", time_budget=55)
    assert clock[0] == spent, "nothing is measured twice"
    assert again.digest == bundle.digest
    _, whole = searched(tmp_path, "another", monkeypatch, precision="auto", time_budget=1e6)
    assert [row["choice"] for row in search["tried"]] == [row["choice"] for row in whole["tried"]]


def shipped_choices(bundle: edgekit.Bundle) -> list[str]:
    """The candidates that were verified on the test samples."""
    tested = [v for v in bundle.variants if "quantization" in v.evidence and v.status.startswith("verified")]
    return [v.evidence["quantization"]["choice"] for v in tested]


def retrained(model: Path, change: float) -> Path:
    """The same graph with weights that differ by that share."""
    proto, rng = onnx.load(model), np.random.default_rng(1)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        noisy = array * (1 + change * rng.normal(size=array.shape))
        tensor.CopyFrom(numpy_helper.from_array(noisy.astype(array.dtype), tensor.name))
    path = model.with_name("retrained.onnx")
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_the_search_of_a_retrained_model_begins_with_what_the_last_build_shipped(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    bundle, first = searched(tmp_path, "cache", monkeypatch, precision=precision)
    assert "resumed" not in first
    shipped = shipped_choices(bundle)
    model = retrained(tmp_path / "planted.onnx", 0.01)
    monkeypatch.setattr(planted, "sound", lambda folder: model)
    bundle, again = searched(tmp_path, "cache", monkeypatch, precision=precision)
    assert again["resumed"]
    assert shipped_choices(bundle)[:1] == shipped[:1]
    most = 2 if precision == "int8" else 3  # auto ships two, of which the clock may drop one
    assert len(again["tried"]) <= most < len(first["tried"])
    _, fresh = searched(tmp_path, "empty", monkeypatch, precision=precision)
    assert "resumed" not in fresh
    assert len(fresh["tried"]) > len(again["tried"])


def test_what_the_last_build_shipped_must_be_good_enough_again(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(tmp_path, "cache", monkeypatch)
    run = Candidates._run

    def slower(self: Candidates, config: CandidateConfig, *arguments: Any) -> tuple[Any, float | None]:
        outputs, ratio = run(self, config, *arguments)
        return outputs, 1.2 if config.placement == "all" else ratio

    monkeypatch.setattr(Candidates, "_run", slower)
    model = retrained(tmp_path / "planted.onnx", 0.01)
    monkeypatch.setattr(planted, "sound", lambda folder: model)
    _, again = searched(tmp_path, "cache", monkeypatch)
    assert "resumed" not in again
    assert [row["choice"] for row in again["tried"]] == ["all, l4, gptq, bias", "all, l4, nearest"]


@pytest.mark.parametrize("seconds", [0, 15, 25, 125])
def test_auto_ships_nothing_worse_than_int8_in_the_same_time(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    chosen = {}
    for precision in ("int8", "auto"):
        _, search = searched(tmp_path, precision, monkeypatch, precision=precision, time_budget=seconds)
        chosen[precision] = [row for row in search["tried"] if not row["lost"]]
    (int8,) = chosen["int8"]
    assert any(
        auto["snr_db"] >= int8["snr_db"] and 0.97 * auto["ratio"] <= int8["ratio"] for auto in chosen["auto"]
    )


def test_the_progress_line_says_what_is_tried(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[Stage] = []
    searched(tmp_path, "cache", monkeypatch, time_budget=55, progress=stages.append)
    lines = [stage.detail for stage in stages]
    for step in ("quantizing", "compiling", "running"):
        assert f"ort, candidate 1: {step}" in lines
    assert "ort, candidate 2: rounding weights" in lines
    assert "ort: testing on 4 held-out samples" in lines


def test_the_most_accurate_one_is_tested_where_the_fastest_fails(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[VariantBuild] = []

    def failing_first(*arguments: Any) -> VariantBuild:
        tested.append(try_int8(*arguments))
        if len(tested) == 1:
            tested[0].reject("its heads are off")
        return tested[-1]

    def preferred(measured: Sequence[Measurement]) -> Measurement:
        return min(measured, key=lambda each: each.rank)  # as if the fastest were the least accurate

    monkeypatch.setattr("edgekit.compiler.pipeline.int8.try_int8", failing_first)
    monkeypatch.setattr("edgekit.compiler.pipeline.int8.preferred", preferred)
    monkeypatch.setattr("edgekit.compiler.pipeline.int8.best_with_baseline", lambda winner, *_: winner)
    bundle, _ = searched(tmp_path, "cache", monkeypatch)
    _, int8 = bundle.variants
    assert len(tested) == 2
    assert (int8.name, tested[0].rejected) == ("ort-int8", True)
    first, second = (candidate(each.evidence["quantization"]) for each in tested)
    reasons = {candidate(row): row["lost"] for row in int8.evidence["search"]["tried"] if not row["floats"]}
    assert reasons[first] == "on the test samples: its heads are off"
    assert reasons[second] == ""
    assert candidate(int8.evidence["quantization"]) == second


def candidate(row: Mapping[str, Any]) -> str:
    return json.dumps([row["placement"], row["recipe"]], sort_keys=True)


def test_what_is_tested_second_has_a_better_recipe() -> None:
    def measured(placement: str, recipe: Recipe, snr_db: float) -> Measurement:
        fidelity = Fidelity(Score("SNR", snr_db, "dB"), snr_db)
        return Measurement(CandidateConfig(placement, recipe), fidelity, 0.7)

    first, second = measured("all", QUICK, 25.0), measured("256 columns", QUICK, 28.0)
    refined, tested = measured("256 columns", DEFAULT, 32.0), list[CandidateConfig]()

    def test(config: CandidateConfig, before: object) -> Any:
        tested.append(config)
        return SimpleNamespace(rejected=config != refined.config, doubtful=False, reason="too few")

    shortlist = Shortlist([first, second], {first.config: "", second.config: ""}, [first, second], [first])
    measure = {refined.config: refined}.__getitem__
    choose(BuildOptions("int8"), shortlist, test, measure, lambda: pytest.fail("there is another"))
    assert tested == [first.config, refined.config]
    assert shortlist.winners == [refined]
    losses = {str(entry["choice"]): entry["lost"] for entry in shortlist.entries()}
    assert losses[str(first.config)] == "on the test samples: too few"
    assert losses[str(refined.config)] == ""


def test_nothing_is_tested_second_if_no_candidate_is_faster_than_the_parent() -> None:
    def measured(placement: str) -> Measurement:
        fidelity = Fidelity(Score("SNR", 30.0, "dB"), 30.0)
        return Measurement(CandidateConfig(placement, QUICK), fidelity, 1.1)

    both, tested = [measured("all"), measured("256 columns")], list[CandidateConfig]()

    def test(config: CandidateConfig, before: object) -> Any:
        tested.append(config)
        rejected = SimpleNamespace(rejected=False, reason="")
        rejected.reject = lambda reason: vars(rejected).update(rejected=True, reason=reason)
        return rejected

    shortlist = Shortlist(both, {m.config: "" for m in both}, both, [])
    (variant,) = choose(BuildOptions("int8"), shortlist, test, lambda _: pytest.fail("fitted"), lambda: None)
    assert (tested, variant.reason) == ([both[0].config], "1.10x the time of fp32")


@pytest.mark.needs_tflite
def test_placements_that_were_inaccurate_on_one_target_are_left_out_on_the_next(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, second = Candidates._measured, "128 columns and riders"

    def scored(self: Candidates, config: CandidateConfig) -> Measurement:
        score = 0.8 if config.placement == second else 0.99
        return replace(measured(self, config), fidelity=Fidelity(Score("self-mAP", score), 20.0))

    monkeypatch.setattr(Candidates, "_measured", scored)
    monkeypatch.setattr(planted, "sound", planted.fragile_layer)  # its placements differ
    monkeypatch.setattr("edgekit.compiler.pipeline.int8.measure_further", lambda *_: None)
    cold, _ = searched(tmp_path, "cache", monkeypatch, targets=["ort", "tflite"])
    again, _ = searched(tmp_path, "cache", monkeypatch, targets=["ort", "tflite"])
    alone, _ = searched(tmp_path, "cache", monkeypatch, targets=["tflite"])

    def placements(bundle: edgekit.Bundle, profile: str) -> set[str]:
        searches = (v.evidence.get("search") for v in bundle.variants if v.profile == profile)
        return {row["placement"] for row in next(filter(None, searches))["tried"]}

    assert second in placements(cold, "ort")
    assert second not in placements(cold, "tflite")
    assert placements(again, "tflite") == placements(cold, "tflite")
    assert second in placements(alone, "tflite")  # its search is not the one that learned from ort


@pytest.mark.parametrize("second_is_proved", [False, True])
def test_a_doubtful_variant_is_shipped_only_if_the_most_accurate_other_one_is_not_proved(
    second_is_proved: bool,
) -> None:
    def measured(placement: str, snr_db: float, ratio: float) -> Measurement:
        return Measurement(CandidateConfig(placement), Fidelity(Score("SNR", snr_db, "dB"), snr_db), ratio)

    first, second = measured("all", 25.0, 0.5), measured("256 columns", 28.0, 0.7)

    def test(config: CandidateConfig, before: object) -> Any:
        doubtful = config == first.config or not second_is_proved
        evidence = {"agreement": {"not_proved": "not proved on 43 test samples"}}
        return SimpleNamespace(config=config, rejected=False, doubtful=doubtful, evidence=evidence)

    def measure(config: CandidateConfig) -> Measurement:
        pytest.fail(f"{config} is measured")

    def further() -> Measurement:
        pytest.fail("placements that the search left out are measured")

    shortlist = Shortlist([first, second], {first.config: "", second.config: ""}, [first, second], [first])
    (shipped,) = choose(BuildOptions("int8"), shortlist, test, measure, further)
    losses = {str(entry["choice"]): entry["lost"] for entry in shortlist.entries()}
    if second_is_proved:
        assert shipped.config == second.config
        assert losses[str(first.config)] == "on the test samples: not proved on 43 test samples"
    else:
        assert shipped.config == first.config
        assert losses[str(first.config)] == ""
    only = Shortlist([first], {first.config: ""}, [first], [first])
    (shipped,) = choose(BuildOptions("int8"), only, test, measure, further)
    assert shipped.config == first.config


def test_a_placement_that_the_search_left_out_is_measured_if_the_only_good_one_fails_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planted, "SIZE", 8)
    data, options = planted.ground_of(planted.fragile_layer(tmp_path)), BuildOptions("int8", Goal(snr_db=1.0))
    target = resolve(find_profile("ort"))
    assert target.rules is not None
    tested: list[CandidateConfig] = []

    def test(config: CandidateConfig, before: object) -> Any:
        tested.append(config)
        return SimpleNamespace(rejected=config.placement == "all", doubtful=False, reason="too few")

    version = target.executor().engine_version()
    with Candidates(data.search_context, target, target.rules, None, version) as made:
        first, quick = (made.measure(CandidateConfig("all", recipe)) for recipe in (DEFAULT, QUICK))
        missed = {first.config: "", quick.config: ""}  # another recipe of a structure is no second structure
        shortlist = Shortlist([first, quick], missed, [first, quick], [first])
        further = partial(measure_further, options, data, made, shortlist)
        choose(options, shortlist, test, made.measure, further)
        assert tested[1].placement == made.placements[1]
    assert [winner.config for winner in shortlist.winners] == tested[1:]
    assert len(shortlist.measured) == len(shortlist.missed) == 4  # the other one with a better recipe too


@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_the_whole_search_follows_if_what_the_last_build_shipped_fails_the_test(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    searched(tmp_path, "cache", monkeypatch, precision=precision)
    model = retrained(tmp_path / "planted.onnx", 0.01)
    monkeypatch.setattr(planted, "sound", lambda folder: model)
    tested: list[VariantBuild] = []

    def failing_first(*arguments: Any) -> VariantBuild:
        tested.append(try_int8(*arguments))
        if len(tested) == 1:
            tested[0].reject("its heads are off")
        return tested[-1]

    monkeypatch.setattr("edgekit.compiler.pipeline.int8.try_int8", failing_first)
    bundle, again = searched(tmp_path, "cache", monkeypatch, precision=precision)
    fresh_bundle, fresh = searched(tmp_path, "empty", monkeypatch, precision=precision)
    assert "resumed" not in again
    assert {row["choice"] for row in again["tried"]} == {row["choice"] for row in fresh["tried"]}
    assert shipped_choices(bundle) == shipped_choices(fresh_bundle)


def test_a_child_process_reads_what_the_build_of_another_model_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEKIT_TRUSTED")
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    model = planted.sound(tmp_path)
    options: dict[str, Any] = {"targets": ["ort"], "precision": "int8", "samples": planted.samples(12)}
    first = edgekit.build(model, **options)
    (shipped,) = (tmp_path / "cache" / SHIPPED).glob("*.json")
    again = edgekit.build(retrained(model, 0.01), **options)
    assert again.variants[-1].evidence["search"]["resumed"]
    assert shipped_choices(again) == shipped_choices(first)
    unusual = shipped.read_text(encoding="utf-8").replace('"positions":4096', '"positions":1000000000')
    shipped.write_text(unusual, encoding="utf-8")
    assert "resumed" not in edgekit.build(retrained(model, 0.02), **options).variants[-1].evidence["search"]
