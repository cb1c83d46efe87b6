"""The first sentences: what to use where, what it costs, what to do next."""

from __future__ import annotations

import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.bundle.advice import advice
from edgekit.tensor_spec import Json
from tests.fixtures.bundles import small_bundle
from tests.report.reported import reported_bundle, timing, variant


def sentences(bundle: Bundle) -> tuple[str, str, str]:
    return advice(bundle.manifest, bundle.variants)


def test_the_fastest_variant_of_a_profile_is_advised_with_its_price() -> None:
    assert sentences(reported_bundle()) == (
        "Use ort-int8-mixed on ort (1.5 MB); timed on A CPU, 2 threads: ort-int8-mixed 6 ms.",
        "ort-int8-mixed: 38% of the space of fp32; 60% of its time on A CPU, 2 threads; "
        "self-mAP 0.910 (float model 1.000).",
        "Next: copy the bundle to the device and run edgekit verify there.",
    )


def test_the_smallest_is_advised_where_none_was_timed() -> None:
    """The order does not matter, and the reason is stated where there was a choice."""
    bundle = small_bundle([variant("first", "fp32", size_bytes=900), variant("b", "fp16", size_bytes=500)])
    bundle.manifest["samples"] = {"origin": "8 files"}
    what, cost, _ = sentences(bundle)
    assert what == "Use b on ort (0.5 kB); not timed, so the smallest: b."
    assert cost.startswith("b: 56% of the space of fp32")
    bundle.variants[:] = bundle.variants[:1]
    what, cost, _ = sentences(bundle)
    assert what == "Use first on ort (0.9 kB); not timed: first."
    assert cost.startswith("These are float32, like the source model;")


def test_a_time_counts_more_than_a_size() -> None:
    timed = variant("timed", "fp32", size_bytes=900, timing=timing(5.0))
    bundle = small_bundle([variant("small", "fp16", size_bytes=500), timed])
    assert sentences(bundle)[0] == "Use timed on ort (0.9 kB); timed on A CPU, 2 threads: timed 5 ms."


def test_the_next_step_is_the_one_that_matters_most() -> None:
    away = variant("a", "fp32", executed={"stands_in_for": "a Jetson"}, size_bytes=900)
    bundle = small_bundle([away])
    bundle.manifest["samples"] = {"origin": "2 seeded random inputs"}
    assert sentences(bundle)[2].startswith("Next: build again with real --samples")
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[2] == ("Next: run edgekit verify on ort, which the build did not have.")


def test_after_a_search_that_was_cut_more_time_is_the_next_step() -> None:
    cut = {"tried": [{"lost": ""}] * 14, "left_out": 6, "limit_s": 60.0}
    bundle = small_bundle([variant("v", "int8", size_bytes=900, search=cut)])
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[2] == (
        "Next: build again with --time-budget 90 to measure the int8 candidates that were left out."
    )
    del bundle.variants[0].evidence["search"]["limit_s"]
    assert sentences(bundle)[2] == "Next: build again to measure the int8 candidates that were left out."


def of_profile(profile: str, p50_ms: tuple[float, float] | None, **evidence: Json) -> list[Variant]:
    """int8 and fp32 of a profile, timed or not."""
    return [
        variant(
            f"{profile}-{precision}",
            precision,
            size_bytes=size,
            **{**evidence, **({} if p50_ms is None else {"timing": timing(p50_ms[number])})},
        )._replace(profile=profile, files={"model.bin": f"variants/{profile}/{precision}/model.bin"})
        for number, (precision, size) in enumerate((("int8", 1000), ("fp32", 4000)))
    ]


def test_what_was_not_timed_has_no_time_and_a_time_names_its_machine() -> None:
    """Three devices, one of which was timed, on the processor of the build."""
    away = {"executed": {"stands_in_for": "its chip"}}
    three = [
        *of_profile("rpi5", (32.5, 83.0)),
        *of_profile("iphone", None, **away),
        *of_profile("orin", None, **away),
    ]
    bundle = small_bundle(three)
    bundle.manifest["samples"] = {"origin": "8 files"}
    bundle.manifest["profiles"] = {"iphone": {"facts": {"os": {"value": "iOS 18"}}}, "orin": {"facts": {}}}
    assert sentences(bundle) == (
        "Use rpi5-int8 on rpi5 (1.0 kB), iphone-int8 on iphone (1.0 kB) and orin-int8 on orin (1.0 kB); "
        "timed on A CPU, 2 threads: rpi5-int8 32.5 ms; "
        "not timed, so the smallest: iphone-int8 and orin-int8.",
        "rpi5-int8, iphone-int8 and orin-int8: 25% of the space of fp32; "
        "rpi5-int8 39% of its time on A CPU, 2 threads.",
        "Next: run edgekit verify on orin, which the build did not have; take iphone-int8 to iphone with "
        "edgekit export and measure it in the app, for edgekit verify does not run there.",
    )


def test_times_of_two_machines_are_not_compared() -> None:
    small, whole = of_profile("rpi5", (32.5, 83.0))
    small.evidence["timing"]["cpu"] = "Another"
    bundle = small_bundle([small, whole])
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[1] == "rpi5-int8: 25% of the space of fp32."


@pytest.mark.parametrize(
    ("facts", "verb"),
    [
        ({"os": {"value": "iOS 15"}}, "edgekit export"),
        ({"os": {"value": "android"}}, "edgekit export"),
        ({"flash": {"value": 1024}, "ram": {"value": 256}}, "edgekit export"),
        ({"os": {"value": "macOS 15"}}, "edgekit verify on b,"),
        ({"os": {"value": "linux"}}, "edgekit verify on b,"),
        ({}, "edgekit verify on b,"),
    ],
)
def test_verify_is_advised_where_python_runs(facts: dict[str, Json], verb: str) -> None:
    bundle = small_bundle(of_profile("b", None, executed={"stands_in_for": "its chip"}))
    bundle.manifest["samples"] = {"origin": "8 files"}
    bundle.manifest["profiles"] = {"b": {"facts": facts}}
    assert verb in sentences(bundle)[2]


def test_nothing_is_advised_where_everything_was_rejected() -> None:
    bundle = small_bundle([variant("a", "fp32", "rejected: too slow", size_bytes=900)])
    assert sentences(bundle)[0] == "Nothing here can be used."
