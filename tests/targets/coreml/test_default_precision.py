"""Precision of a build without ``--precision``: fp16 for iPhones, fp32 for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit
from edgekit.batch.rebuild import recipe
from edgekit.bundle import Bundle
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile, profile_names
from tests.fixtures.models import SMALL_CNN, write
from tests.targets.coreml.networks import NOISY, X

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_coreml]
IPHONES = {"ios-15", "ios-26", "iphone-12", "iphone-15-pro"}


def built_for(bundle: Bundle) -> dict[str, list[str]]:
    return {
        profile: [variant.precision for variant in bundle.variants if variant.profile == profile]
        for profile in bundle.manifest["profiles"]
    }


def test_the_profiles_with_a_precision_of_their_own() -> None:
    own = {name for name in profile_names() if find_profile(name).own_precision != "fp32"}
    assert own == IPHONES
    for name in own:
        target = resolve(find_profile(name))
        assert target.profile.own_precision in target.info.precisions


def test_each_profile_is_built_in_its_own_precision_unless_one_is_requested(tmp_path: Path) -> None:
    path, targets = write(tmp_path, SMALL_CNN), ["iphone-15-pro", "ort", "coreml"]
    own = edgekit.build(path, targets=targets)
    assert built_for(own) == {"iphone-15-pro": ["fp16"], "ort": ["fp32"], "coreml": ["fp32"]}
    requested = edgekit.build(path, targets=targets, precision="fp32")
    assert built_for(requested) == {name: ["fp32"] for name in targets}
    assert [bundle.manifest["options"]["precision"] for bundle in (own, requested)] == [None, "fp32"]


def test_a_rebuild_leaves_the_choice_to_the_profile(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL_CNN)
    for precision in (None, "fp32"):
        saved = edgekit.build(path, targets=["ios-26"], precision=precision).save(tmp_path / "m.edgekit")
        with Bundle.open(saved) as bundle:
            arguments = recipe(bundle, saved, {})
        assert arguments["precision"] == precision
        again = edgekit.build(**arguments)
        assert again.variants[0].files == bundle.variants[0].files
        assert again.variants[0].precision == (precision or "fp16")


def test_the_report_says_what_the_neural_engine_runs(tmp_path: Path) -> None:
    """The variant's limit asks for float32 layers, which it names."""
    bundle = edgekit.build(write(tmp_path, NOISY), targets=["iphone-12", "mac-m2"], samples=[{"x": X}])
    assert built_for(bundle) == {"iphone-12": ["fp16"], "mac-m2": ["fp32"]}
    phone, mac = (variant.evidence["compile"]["neural_engine"] for variant in bundle.variants)
    assert (
        f"iphone-12-fp16  Neural Engine: computes in float16; no known rule keeps {phone['eligible']} of "
        f"{sum(phone.values())} operators off it, {phone['not']} run on the CPU or the GPU; "
        "float32 layers, off it: lifted, kept, lowered"
    ) in bundle.report
    assert (
        f"mac-m2-fp32  Neural Engine: not used; all {mac['not']} operators run on the CPU or the GPU"
    ) in bundle.report


def test_a_model_with_its_own_integers_stays_int8(tmp_path: Path) -> None:
    from tests.fixtures.models import QUANTIZED

    bundle = edgekit.build(write(tmp_path, QUANTIZED), targets=["iphone-15-pro"])
    assert built_for(bundle) == {"iphone-15-pro": ["int8"]}
