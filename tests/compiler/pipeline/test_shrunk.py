"""``build(shrink="auto")``: smaller models as variants of their own. Times are replaced by file sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.timing import Timed
from edgekit.compiler.evaluate.verify_bundle import verify_bundle
from edgekit.compiler.pipeline import select_variants, shrunk
from edgekit.compiler.pipeline.build_bundle import build_bundle
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.errors import MissingDependency, UsageError
from edgekit.report.facts import facts_of
from edgekit.runtime import Session
from tests.fixtures.spare_networks import samples, spare_network

pytestmark = pytest.mark.needs_ort


@pytest.fixture(autouse=True)
def by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def ratio(variant: Timed, parent: Timed, *_: object) -> float:
        own, whole = (sum(map(len, each.artifact.files.values())) for each in (variant, parent))
        return own / whole

    monkeypatch.setattr(select_variants, "ratio_to_parent", ratio)
    monkeypatch.setattr(
        shrunk, "SHARES", (0.1, 0.2, 0.6)
    )  # of so small a network one step is half of a group


def built(folder: Path, **options: Any) -> Bundle:
    given: dict[str, Any] = {
        "targets": ["ort"],
        "samples": samples(),
        "shrink": "auto",
        "max_drop": "3dB",
        **options,
    }
    return build_bundle(BuildRequest(spare_network(folder), **given))


def test_smaller_models_are_variants_with_golden_outputs_of_their_own(tmp_path: Path) -> None:
    bundle = built(tmp_path)
    names = [variant.name for variant in bundle.variants]
    assert names == ["ort-fp32", "ort-shrunk10-fp32", "ort-shrunk60-fp32"]  # 20 % is the same as 10 %
    whole, *smaller = bundle.variants
    assert whole.shrunk is None
    assert [round(v.smaller_by, 2) for v in smaller] == [0.49, 0.73]
    assert all(v.usable for v in smaller)
    assert smaller[0].evidence["shrunk"]["snr_db"] > 30 > smaller[1].evidence["shrunk"]["snr_db"]
    ((feeds, expected),) = bundle.golden
    for variant in smaller:
        ((own_feeds, own),) = bundle.golden_of(variant)
        assert own_feeds is feeds
        assert all(not np.array_equal(own[name], expected[name]) for name in expected)
    assert [check.status for check in verify_bundle(bundle)] == [v.status for v in bundle.variants]
    assert "fp32, 73 % smaller" in bundle.report
    assert "smaller models on 8 of them held out for testing" in bundle.report


def test_the_page_draws_them_and_advises_the_whole_model(tmp_path: Path) -> None:
    bundle = built(tmp_path)
    facts = facts_of(bundle)
    points = {point.name: point for point in facts.points}
    assert points.keys() == {variant.name for variant in bundle.variants}
    assert points["ort-shrunk60-fp32"].accuracy == bundle.variants[2].evidence["shrunk"]["snr_db"]
    assert points["ort-fp32"].front
    assert facts.advice[0].startswith("On ort, use ort-fp32 ")


def test_a_session_runs_the_whole_model_unless_it_is_asked_for_a_smaller_one(tmp_path: Path) -> None:
    bundle = built(tmp_path)
    (sample,) = samples(1)
    with Session(bundle) as session:
        session.run(sample)
        assert session.active.variant == "ort-fp32"
    with Session(bundle, variant="ort-shrunk60-fp32") as session:
        session.run(sample)
        assert session.active.variant == "ort-shrunk60-fp32"


def test_where_fp16_is_rejected_smaller_models_are_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast(dict[str, float], verify.SNR_LIMITS_DB), "fp16", 500.0)
    bundle = built(tmp_path, precision="fp16", shrink="-10%")
    assert [(v.name, v.usable) for v in bundle.variants] == [
        ("ort-fp16", False), ("ort-fp32", True), ("ort-shrunk10-fp32", True),
    ]  # fmt: skip


def test_int8_is_that_of_the_whole_model(tmp_path: Path) -> None:
    bundle = built(tmp_path, precision="int8", force=True)
    by_name = {variant.name: variant for variant in bundle.variants}
    whole = next(v for v in bundle.variants if v.shrunk is None and v.precision.startswith("int8"))
    smaller = by_name[f"ort-shrunk60-{whole.precision}"]
    assert smaller.evidence["quantization"]["choice"] == whole.evidence["quantization"]["choice"]
    assert smaller.evidence["shrunk"]["parent"] == whole.name
    assert smaller.evidence["size_bytes"] < whole.evidence["size_bytes"]
    assert smaller.evidence["agreement"]["samples"] == 8
    assert [step["step"] for step in smaller.evidence["shrunk"]["path"]] == ["channels removed", "int8"]


def test_what_is_not_faster_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_variants, "ratio_to_parent", lambda *_: 0.98)
    bundle = built(tmp_path)
    assert [v.status for v in bundle.variants[1:]] == ["rejected: 0.98x the time of ort-fp32"] * 2
    assert not any(name.startswith("golden/0/shrunk") for name in _entries(bundle))


def test_what_a_more_accurate_one_is_as_fast_as_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select_variants, "_ratio_to_parent", lambda *_: 0.5)
    monkeypatch.setattr(select_variants, "ratio_to_parent", lambda *_: 0.98)
    monkeypatch.setattr(select_variants, "_milliseconds", lambda variant: -len(variant.name))
    bundle = built(tmp_path)
    reason = "0.98x the time of ort-fp32, which is more accurate"
    assert [v.reason for v in bundle.variants[1:]] == [reason] * 2


def test_the_accuracy_goal_ends_it(tmp_path: Path) -> None:
    bundle = built(tmp_path, max_drop="60dB")
    (smaller,) = bundle.variants[1:]
    assert smaller.status == "rejected: SNR 36.5 dB; 60 dB is required"
    assert bundle.manifest["options"]["shrink"] == "auto"
    assert bundle.manifest["options"]["max_drop"] == "60dB"


def test_one_of_a_given_size_is_held_to_a_goal_only_if_that_is_given(tmp_path: Path) -> None:
    bundle = built(tmp_path, shrink="-60%", max_drop=None)
    assert [variant.name for variant in bundle.variants] == ["ort-fp32", "ort-shrunk60-fp32"]
    smaller = bundle.variants[1]
    assert smaller.usable
    assert bundle.manifest["options"]["shrink"] == "-60%"
    (step,) = smaller.evidence["shrunk"]["path"]
    assert step["step"] == "channels removed"
    assert step["agreement"] == {k: v for k, v in smaller.evidence["agreement"].items() if k != "samples"}
    (smaller,) = built(tmp_path, shrink="-60%", max_drop="60dB").variants[1:]
    assert smaller.status.startswith("rejected: SNR ")


def test_training_needs_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.compiler.compress.torch.find_spec", lambda name: None)
    with pytest.raises(MissingDependency) as found:
        built(tmp_path, distil="1min")
    assert "--distil" in str(found.value)


def test_where_nothing_is_timed_there_is_no_smaller_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrunk, "runs_here", lambda profile: False)
    (smaller,) = built(tmp_path).variants[1:]
    assert smaller.reason == (
        "smaller models must be timed, and their engine or processor is not available here"
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"samples": None}, "--shrink needs samples to fit and judge smaller models: add --samples"),
        ({"shrink": "a lot"}, "--shrink is 'a lot'; it must be a percentage between 0 and 100, e.g. -20%"),
        (
            {"distil": "long"},
            "--distil is 'long'; it must be a length of training, e.g. 20min, 1h or 12epochs",
        ),
        (
            {"distil": "0min"},
            "--distil is '0min'; it must be a length of training, e.g. 20min, 1h or 12epochs",
        ),
        (
            {"shrink": None, "distil": "1h"},
            "--distil trains the models of --shrink; give --shrink -50% or --shrink auto too",
        ),
        ({"precision": "int8-weights"}, "--shrink builds smaller models in fp32, fp16, int8, auto,"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as found:
        built(tmp_path, **options)
    assert str(found.value).startswith(why)


def _entries(bundle: Bundle) -> list[str]:
    return [entry["name"] for entry in bundle.manifest["entries"]]
