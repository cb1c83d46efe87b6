"""The first sentences: what to use where, what it costs, what to do next."""

from __future__ import annotations

from edgekit.bundle import Bundle
from edgekit.bundle.advice import advice
from tests.fixtures.bundles import small_bundle
from tests.report.reported import reported_bundle, variant


def sentences(bundle: Bundle) -> tuple[str, str, str]:
    return advice(bundle.manifest, bundle.variants)


def test_the_fastest_variant_of_a_profile_is_advised_with_its_price() -> None:
    assert sentences(reported_bundle()) == (
        "Use ort-int8-mixed on ort (6 ms, 1.5 MB).",
        "ort-int8-mixed: 60% of the time and 38% of the space of fp32; "
        "self-mAP is 0.910 (float model 1.000).",
        "Next: copy the bundle to the device and run edgekit verify there.",
    )


def test_what_was_not_timed_is_as_the_runtime_takes_it() -> None:
    bundle = small_bundle([variant("first", "fp32", size_bytes=900), variant("b", "fp16", size_bytes=500)])
    bundle.manifest["samples"] = {"origin": "8 files"}
    what, cost, _ = sentences(bundle)
    assert what == "Use first on ort (not timed, 0.9 kB)."
    assert cost.startswith("These are float32, as the source model is;")


def test_the_next_step_is_the_one_that_matters_most() -> None:
    away = variant("a", "fp32", executed={"stands_in_for": "a Jetson"}, size_bytes=900)
    bundle = small_bundle([away])
    bundle.manifest["samples"] = {"origin": "2 seeded random inputs"}
    assert sentences(bundle)[2].startswith("Next: build again with --samples from real use")
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[2] == (
        "Next: run edgekit verify on the hardware of ort, which the build did not have."
    )


def test_nothing_is_advised_where_everything_was_rejected() -> None:
    bundle = small_bundle([variant("a", "fp32", "rejected: too slow", size_bytes=900)])
    assert sentences(bundle)[0] == "Nothing here can be used."
