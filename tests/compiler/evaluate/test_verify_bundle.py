from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.compiler.evaluate.verify_bundle import Check, CheckOutcome, verify_bundle
from edgekit.errors import BundleError, NoVariantError
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import small_bundle, small_manifest
from tests.fixtures.fake_engines import Engines, doubled, throws, wrong_name, wrong_shape


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines("ort")
    monkeypatch.setattr("edgekit.target.registry.engine", found)
    return found


def bundle_with(evidence: Mapping[str, object], precision: str = "fp32") -> Bundle:
    files = {"model.bin": "variants/v/model.bin"}
    return small_bundle([Variant("v", "ort", "ort", precision, files, {}, "verified", evidence)])


def test_a_bundle_of_rejected_variants_says_so_and_what_to_do(engines: Engines) -> None:
    variants = [
        Variant("a-int8", "ort", "ort", "int8", {}, {}, "rejected: 1.42x the time of fp32", {}),
        Variant("b-fp32", "ort", "ort", "fp32", {}, {}, "rejected: SNR 3 dB", {}),
    ]
    with pytest.raises(NoVariantError) as error:
        verify_bundle(small_bundle(variants))
    assert error.value.exit_code == 1
    assert str(error.value) == (
        "new bundle has nothing to run: the build rejected all variants\n"
        "  a-int8: 1.42x the time of fp32\n"
        "  b-fp32: SNR 3 dB\n"
        "  build it again with another target or precision, or more samples; force ships int8 as it is"
    )


def off_by(relative: float) -> object:
    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": (doubled(feeds)["y"] * np.float32(1 + relative)).astype(np.float32)}

    return run


def status(bundle: Bundle) -> str:
    (check,) = verify_bundle(bundle)
    assert check.failed == (check.outcome is CheckOutcome.FAILED)
    return check.status


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (CheckOutcome.VERIFIED, "verified on X 1"),
        (CheckOutcome.FAILED, "failed: on X 1"),
        (CheckOutcome.NOT_RUN, "not run: on X 1"),
    ],
)
def test_the_status_in_words(outcome: CheckOutcome, status: str) -> None:
    assert Check("v", outcome, "on X 1").as_json() == {"variant": "v", "status": status, "outputs": {}}


def test_the_same_answers_verify(engines: Engines) -> None:
    (check,) = verify_bundle(bundle_with({}))
    assert check.status == "verified on Ort Runtime 1.0"
    assert check.outputs["y"].snr_db is None
    assert engines["ort"].closed == 1
    assert engines["ort"].threads == [1]


@pytest.mark.parametrize(
    ("evidence", "precision", "asked"),
    [
        ({"accuracy": {"y": {"limit_db": 70.0}}}, "fp32", 70),
        ({"limits_db": {"y": 65.0}}, "fp32", 65),
        ({"accuracy": {"y": {"limit_db": 70.0}}, "limits_db": {"y": 50.0}}, "fp32", 70),
        ({}, "fp32", 100),
        ({"accuracy": {}}, "fp32", 100),
        ({"accuracy": ["y"], "limits_db": {"y": "none"}}, "unheard of", 100),
    ],
)
def test_every_output_is_held_to_a_limit(
    engines: Engines, evidence: Mapping[str, object], precision: str, asked: float
) -> None:
    """Also where the build could not run the variant: what was never compared is not verified."""
    engines["ort"].behaviour["v"] = off_by(1e-3)  # type: ignore[assignment]
    assert status(bundle_with(evidence, precision)) == (
        f"failed: output y: SNR 60.0 dB; the limit is {asked} dB"
    )


def test_a_limit_that_is_reached_verifies(engines: Engines) -> None:
    engines["ort"].behaviour["v"] = off_by(1e-3)  # type: ignore[assignment]
    assert status(bundle_with({"accuracy": {"y": {"limit_db": 59.0}}})) == "verified on Ort Runtime 1.0"
    assert status(bundle_with({}, "fp16")) == "verified on Ort Runtime 1.0"


def test_answers_that_are_not_finite_fail_in_words_and_in_json(engines: Engines) -> None:
    engines["ort"].behaviour["v"] = off_by(math.nan)  # type: ignore[assignment]
    (check,) = verify_bundle(bundle_with({}))
    assert check.status == (
        "failed: output y: it differs from the reference in shape, or in which values are finite; the "
        "limit is 100 dB"
    )
    assert check.outputs["y"].as_json()["snr_db"] is None


def test_an_engine_that_throws_or_answers_something_else_fails(engines: Engines) -> None:
    engines["ort"].behaviour["v"] = throws
    assert status(bundle_with({})) == "failed: Ort Runtime 1.0: RuntimeError: kernel died"
    assert engines["ort"].closed == 1
    engines["ort"].behaviour["v"] = wrong_name
    assert status(bundle_with({})) == (
        "failed: Ort Runtime 1.0: it returned z float32 1x6; the model's outputs are y float32 1x6"
    )
    engines["ort"].behaviour["v"] = wrong_shape
    assert status(bundle_with({})) == (
        "failed: Ort Runtime 1.0: it returned y float32 6x1; the model's outputs are y float32 1x6"
    )
    engines["ort"].refused["v"] = KeyError("signature")
    assert status(bundle_with({})) == "failed: Ort Runtime 1.0: KeyError: 'signature'"


def test_a_missing_engine_is_not_run(engines: Engines) -> None:
    engines["ort"].missing = True
    assert status(bundle_with({})) == (
        "not run: ort is not installed, and a test needs it: pip install 'edgekit-sdk[ort]'"
    )


def test_without_golden_vectors_nothing_is_verified(engines: Engines) -> None:
    manifest = {**small_manifest(), "golden": []}
    bundle = Bundle.create(manifest, {"variants/ort-fp32/model.bin": b"ort-fp32"})
    with pytest.raises(BundleError) as error:
        verify_bundle(bundle)
    assert str(error.value) == "new bundle has no golden vectors to verify with; build it again"


def test_every_entry_is_checked(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Bundle] = []
    monkeypatch.setattr(Bundle, "verify_entries", lambda self: checked.append(self))
    bundle = bundle_with({})
    verify_bundle(bundle)
    assert checked == [bundle]
