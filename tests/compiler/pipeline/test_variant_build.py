from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgekit.bundle.variant import parse_status
from edgekit.compiler.evaluate.samples import random_samples
from edgekit.compiler.evaluate.timing import REPORTED_RUNS, TIMED_RUNS, Timed
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.pipeline import select_variants, variant_build
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.select_variants import time_variants
from edgekit.compiler.pipeline.try_variant import compile_float, try_variant
from edgekit.compiler.pipeline.variant_build import VariantBuild, run_reference, runs_here
from edgekit.system.timings import files_digest
from edgekit.target import Artifact
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Fact
from edgekit.tensor_spec import Json, TensorSpec
from tests.fixtures import models

ORT = resolve(find_profile("ort"))
TRUTH = ReferenceOutputs((), (), [{"x": np.zeros(1)}])


def trial(name: str, parent: VariantBuild | None = None, status: str = "verified on Ort 1") -> VariantBuild:
    artifact = Artifact({"model.bin": name.encode()})
    outcome, reason = parse_status(status)
    precision = name.removeprefix("ort-")
    found = VariantBuild(ORT, precision, parent, artifact=artifact, digest=name, evidence={})
    found.outcome, found.reason = outcome, reason
    return found


def float_trial(target: BuildTarget, precision: str, *before: VariantBuild) -> VariantBuild:
    """Try the small network; the first of ``before`` is its parent in another precision."""
    parent = before[0] if precision != before[0].precision or target is ORT else None
    variant = VariantBuild(target, precision, parent)
    model = models.parse(models.SMALL_CNN)
    return try_variant(variant, Faults("0" * 64), compile_float, model, TRUTH, before)


def judge(
    monkeypatch: pytest.MonkeyPatch, each: list[VariantBuild], *min_ms: float, confirmed: float = 0.0
) -> list[str]:
    timings: list[Json] = [{"min_ms": value} for value in min_ms]
    monkeypatch.setattr(select_variants, "time_in_turns", lambda variants, *_: timings[: len(variants)])
    monkeypatch.setattr(select_variants, "confirmed_ratio", lambda *_: confirmed)
    time_variants(each, TRUTH, Faults("0" * 64))
    return [t.status for t in each]


def test_variants_that_are_compared_run_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def timed(variants: Sequence[Timed], _: ReferenceOutputs, count: int) -> list[Json]:
        runs.append(count)
        return [{"min_ms": 1.0} for _ in variants]

    monkeypatch.setattr(select_variants, "time_in_turns", timed)
    parent = trial("ort-fp32")
    time_variants([parent], TRUTH, Faults("0" * 64))
    time_variants([parent, trial("ort-fp16", parent)], TRUTH, Faults("0" * 64))
    assert runs == [REPORTED_RUNS, TIMED_RUNS] == [10, 20]


def test_by_force_the_first_reason_is_told() -> None:
    forced = replace(trial("ort-int8"), forced=True)
    for why in ("SNR 3.0 dB; 12.0 dB is required", "1.20x the time of ort-fp32"):
        forced.reject(why)
    assert forced.status == "verified on Ort 1, shipped by force: SNR 3.0 dB; 12.0 dB is required"


def test_slower_than_its_parent_is_rejected_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = trial("ort-fp32")
    child, other = trial("ort-fp16", parent), trial("ort-int8", parent)
    assert judge(monkeypatch, [parent, child, other], 10.0, 12.7, 12.4, confirmed=1.27) == [
        "verified on Ort 1",
        "rejected: 1.27x the time of ort-fp32",
        "verified on Ort 1",
    ]
    assert [t.evidence["timing"]["min_ms"] for t in (parent, child, other)] == [10.0, 12.7, 12.4]


def test_slower_for_one_busy_moment_is_not_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = trial("ort-fp32")
    kept = judge(monkeypatch, [parent, trial("ort-fp16", parent)], 10.0, 18.5, confirmed=1.02)
    assert kept == ["verified on Ort 1"] * 2


def test_what_did_not_run_is_neither_timed_nor_a_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = trial("ort-fp32", status="rejected: SNR")
    child = trial("ort-fp16", parent)
    assert judge(monkeypatch, [parent, child], 99.0) == ["rejected: SNR", "verified on Ort 1"]
    assert "timing" not in parent.evidence


@pytest.mark.needs_ort
def test_the_noise_floor_is_that_of_nudged_inputs() -> None:
    model = models.parse(models.SMALL_CNN)
    inputs = (TensorSpec("image", "float32", (1, 3, 16, 16)),)
    outputs = (TensorSpec("scores", "float32", (1, 4)), TensorSpec("features", "float32", (1, 4, 16, 16)))
    truth = run_reference(model, inputs, outputs, random_samples(inputs).arrays)
    floor_db = truth.floors_db["features"]
    assert floor_db is not None
    assert 120 < floor_db < 170
    assert truth.saturating == {"scores"}


@pytest.mark.needs_ort
def test_the_noise_floor_is_that_of_the_worst_sample() -> None:
    """The golden vector is one sample: one that the model hardly answers to must verify too."""
    model = models.parse("""<ir_version: 8, opset_import: ["": 17]> g (float[1,64] x) => (float[1] y)
        <float[64] ones = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
                           1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}>
        { y = MatMul (x, ones) }""")
    inputs, outputs = (TensorSpec("x", "float32", (1, 64)),), (TensorSpec("y", "float32", (1,)),)
    rng = np.random.default_rng(0)
    cancelling = np.concatenate([x := rng.uniform(1, 2, 32), -x + 1e-4])[None].astype(np.float32)
    large = np.full((1, 64), 100, np.float32)
    alone, both = (
        run_reference(model, inputs, outputs, [{"x": x} for x in samples]).floors_db["y"]
        for samples in ([cancelling], [cancelling, large])
    )
    assert alone is not None
    assert both is not None
    assert both <= alone < 100


@pytest.mark.needs_ort
def test_the_same_bytes_as_the_parent_are_rejected() -> None:
    model = models.parse(models.SMALL_CNN)
    parent = trial("ort-fp32")
    parent.artifact = ORT.compiler.compile_model(model, ORT.profile, "fp32")
    parent.digest = files_digest(parent.artifact.files)
    found = float_trial(ORT, "fp32", parent)
    assert found.status == "rejected: identical to ort-fp32"


@pytest.mark.needs_ort
def test_two_builds_of_the_same_bytes_share_no_evidence() -> None:
    model, first = models.parse(models.SMALL_CNN), trial("ort-fp32")
    first.artifact = ORT.compiler.compile_model(model, ORT.profile, "fp32")
    first.digest = files_digest(first.artifact.files)
    first.evidence = {"size_bytes": 9, "executed": {"device": "CPU"}, "compile": {"ops": {"Conv": 1}}}
    again = float_trial(replace(ORT, profile=replace(ORT.profile, name="other")), "fp32", first)
    assert (again.name, again.status) == ("other-fp32", first.status)
    rejected = float_trial(ORT, "fp16", first)
    for found in (again, rejected):
        assert found.evidence == first.evidence
        found.evidence["executed"]["device"] = "GPU"
        found.evidence["compile"]["ops"]["Conv"] = 2
    assert first.evidence["executed"] == {"device": "CPU"}
    assert first.evidence["compile"] == {"ops": {"Conv": 1}}


def test_the_same_bytes_are_timed_once_and_each_build_has_its_own_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = trial("ort-fp32"), trial("ort-fp32")
    judge(monkeypatch, [one, other], 10.0, 99.0)
    assert one.evidence["timing"] == other.evidence["timing"] == {"min_ms": 10.0}
    assert one.evidence["timing"] is not other.evidence["timing"]


@pytest.mark.parametrize(
    ("arch", "machine", "here"),
    [
        (None, "x86_64", True),
        ("x86_64", "AMD64", True),
        ("arm64", "aarch64", True),
        ("aarch64", "x86_64", False),
    ],
)
def test_times_tell_only_of_processors_of_a_kind(
    arch: str | None, machine: str, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    facts = {} if arch is None else {"arch": Fact(arch, "", "a test")}
    profile = replace(find_profile("ort"), facts=facts)
    assert runs_here(profile) is here
    parent, child = trial("ort-fp32"), trial("ort-int8")
    child.target, child.evidence["quantization"] = replace(ORT, profile=profile), {}
    assert (child.slower_limit == 1.0) is here
    assert parent.slower_limit == variant_build.SLOWER_LIMIT


def test_by_force_a_variant_is_shipped_but_not_one_that_does_not_run() -> None:
    good, broken = trial("a"), trial("b", status="rejected: no kernel")
    good.forced = broken.forced = True
    good.reject("2.00x the time of c")
    broken.reject("2.00x the time of c")
    assert good.status == "verified on Ort 1, shipped by force: 2.00x the time of c"
    assert broken.status == "rejected: no kernel"
