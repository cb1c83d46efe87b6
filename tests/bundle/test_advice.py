"""The first sentences: what to use where, what it costs, what to do next."""

from __future__ import annotations

import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.bundle.advice import advice, advice_lines, choices
from edgekit.tensor_spec import Json
from tests.fixtures.bundles import small_bundle
from tests.report.reported import reported_bundle, timing, variant


def sentences(bundle: Bundle) -> tuple[str, ...]:
    return advice(bundle.manifest, bundle.variants)


def test_the_fastest_variant_of_a_profile_is_advised_with_its_price() -> None:
    assert sentences(reported_bundle()) == (
        "On ort, use ort-int8-mixed (1.5 MB, 6 ms, 1.7x the speed of fp32, 91.0 % kept). "
        "Accurate: ort-fp32 (4.0 MB, 10 ms, as the source).",
        "Timed on A CPU, 2 threads.",
        "Next: copy the bundle to the device and run edgekit verify there.",
    )


def scored(name: str, p50_ms: float, value: float, **proof: Json) -> Variant:
    """An int8 variant with this agreement."""
    agreement = {"metric": "self-mAP", "value": value, "unit": "", "samples": 64, **proof}
    return variant(name, "int8", size_bytes=500, timing=timing(p50_ms), agreement=agreement)


def chosen(*variants: Variant) -> list[tuple[str, str]]:
    return [(one.role, one.variant.name) for group in choices(variants).values() for one in group]


def test_one_rule_chooses_by_what_the_samples_prove() -> None:
    """The fastest within the limit at the lower end of its interval; balanced: at most half of its loss."""
    whole = variant("fp32", "fp32", size_bytes=900, timing=timing(10.0))
    fast, even = scored("fast", 4.0, 0.96, low=0.951), scored("even", 6.0, 0.985, low=0.97)
    unproved = scored("unproved", 2.0, 0.97, low=0.9, not_proved="8 more samples")
    assert chosen(unproved, fast, even, whole) == [
        ("fastest", "fast"), ("balanced", "even"), ("accurate", "fp32"), ("unproved", "unproved"),
    ]  # fmt: skip
    assert chosen(unproved, whole) == [("fastest", "fp32"), ("unproved", "unproved")]
    equal = scored("equal", 4.0, 1.0, low=0.8, not_proved="8 more samples")
    assert chosen(equal, whole) == [("fastest", "fp32"), ("unproved", "equal")]  # not the most accurate
    assert chosen(unproved) == [("fastest", "unproved")]
    assert chosen(even, whole) == [("fastest", "even"), ("accurate", "fp32")]


def test_the_table_has_a_bar_for_the_speed_and_the_interval() -> None:
    whole = variant("fp32", "fp32", size_bytes=900, timing=timing(10.0))
    fast = scored("fast", 4.0, 0.96, low=0.951)
    assert advice_lines([fast, whole]) == [
        "  use       variant  time   speed      size    kept (min)",
        "  fastest   fast     4 ms   2.5x ####  0.5 kB  96.0 % (95.1)",
        "  accurate  fp32     10 ms  1.0x ##    0.9 kB  as the source",
        "  Timed on A CPU, 2 threads.",
    ]
    task = {"metric": "mAP", "value": 0.3931, "float": 0.387}
    fast = fast._replace(evidence={**fast.evidence, "task": task})
    assert advice_lines([fast, whole])[1:] == [
        "  fastest   fast     4 ms   2.5x ####  0.5 kB  0.393  96.0 % (95.1)",
        "  accurate  fp32     10 ms  1.0x ##    0.9 kB  -      as the source",
        "  Timed on A CPU, 2 threads.",
        "  mAP of the float model: 0.387.",
    ]
    assert "mAP 0.393 of 0.387, 96.0 % kept (at least 95.1)" in choices([fast, whole])["ort"][0].as_text()
    assert advice_lines([variant("a", "fp32", "rejected: too slow", size_bytes=900)]) == []


def test_the_smallest_is_advised_where_none_was_timed() -> None:
    """The order does not matter."""
    bundle = small_bundle([variant("first", "fp32", size_bytes=900), variant("b", "fp16", size_bytes=500)])
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[0].startswith("On ort, use b (0.5 kB, not timed, ")
    bundle.variants[:] = bundle.variants[:1]
    assert sentences(bundle)[0].startswith("On ort, use first (0.9 kB, not timed, ")


def test_a_time_counts_more_than_a_size() -> None:
    timed = variant("timed", "fp32", size_bytes=900, timing=timing(5.0))
    bundle = small_bundle([variant("small", "fp16", size_bytes=500), timed])
    assert sentences(bundle)[0].startswith("On ort, use timed (0.9 kB, 5 ms, ")


def test_the_next_step_is_the_one_that_matters_most() -> None:
    away = variant("a", "fp32", executed={"stands_in_for": "a Jetson"}, size_bytes=900)
    bundle = small_bundle([away])
    bundle.manifest["samples"] = {"origin": "2 seeded random inputs"}
    assert sentences(bundle)[-1].startswith("Next: build again with real --samples")
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[-1] == ("Next: run edgekit verify on ort, which the build did not have.")


def test_after_a_search_that_was_cut_more_time_is_the_next_step() -> None:
    cut = {"tried": [{"lost": ""}] * 14, "left_out": 6, "limit_s": 60.0}
    bundle = small_bundle([variant("v", "int8", size_bytes=900, search=cut)])
    bundle.manifest["samples"] = {"origin": "8 files"}
    assert sentences(bundle)[-1] == (
        "Next: build again with --time-budget 90 to measure the int8 candidates that were left out."
    )
    del bundle.variants[0].evidence["search"]["limit_s"]
    assert sentences(bundle)[-1] == "Next: build again to measure the int8 candidates that were left out."


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
    assert [sentence.partition(" (")[0] for sentence in sentences(bundle)[:3]] == [
        "On rpi5, use rpi5-int8", "On iphone, use iphone-int8", "On orin, use orin-int8",
    ]  # fmt: skip
    assert "not timed" in sentences(bundle)[1]
    assert sentences(bundle)[3:] == (
        "Timed on A CPU, 2 threads.",
        "Next: run edgekit verify on orin, which the build did not have; take iphone-int8 to iphone with "
        "edgekit export and measure it in the app, for edgekit verify does not run there.",
    )


def test_times_of_two_machines_are_not_compared() -> None:
    small, whole = of_profile("rpi5", (32.5, 83.0))
    small.evidence["timing"]["cpu"] = "Another"
    assert choices([small, whole])["rpi5"][0].speed is None


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
    assert verb in sentences(bundle)[-1]


def test_nothing_is_advised_where_everything_was_rejected() -> None:
    bundle = small_bundle([variant("a", "fp32", "rejected: too slow", size_bytes=900)])
    assert sentences(bundle)[0] == "Nothing here can be used."
