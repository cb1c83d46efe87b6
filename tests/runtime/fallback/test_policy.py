"""The decisions, against 1,000s of drawn bundles and failures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.bundle import Variant
from edgekit.bundle.advice import advised
from edgekit.errors import MissingDependency, NoVariantError
from edgekit.runtime.fallback.policy import (
    Failure,
    Fallback,
    best_candidate,
    built_for_instructions,
    built_for_processor,
    estimates,
    explain_fallbacks,
    no_variant_error,
    rank,
)
from edgekit.tensor_spec import Json
from tests.fixtures.bundles import variant

TARGETS = ["ort", "tflite", "openvino"]
STATUSES = ["verified on X 1.0", "not run: no engine", "rejected: slow"]
variant_lists = st.lists(
    st.tuples(st.sampled_from(TARGETS), st.sampled_from(STATUSES), st.sampled_from(["fp32", "fp16"])),
    max_size=7,
).map(lambda rows: [variant(f"v{i}", t, status=s, precision=p) for i, (t, s, p) in enumerate(rows)])
times = st.dictionaries(st.sampled_from([f"v{i}" for i in range(7)]), st.floats(0.01, 1e4))


@given(variant_lists, times, st.sampled_from([None, *TARGETS]))
def test_whatever_fails_it_ends_and_every_hop_is_explained(
    variants: list[Variant], times_ms: dict[str, float], asked: str | None
) -> None:
    plan = rank(variants, times_ms, asked)
    usable = {v.name for v in variants if v.usable}
    assert {c.variant.name for c in plan.candidates} == usable
    assert set(plan.skipped) == {v.name for v in variants} - usable
    failures: dict[str, Failure] = {}
    tried = []
    while (candidate := best_candidate(plan, failures)) is not None:
        name = candidate.variant.name
        assert candidate.variant.usable
        assert name not in tried
        tried.append(name)
        chain = explain_fallbacks(plan, failures, candidate)
        assert len(chain) == len(failures) + (plan.unusable_request is not None)
        assert all(hop.reason and hop.cost and hop.from_ != hop.to for hop in chain)
        assert all(a.to == b.from_ for a, b in pairwise(chain))
        assert not chain or chain[-1].to == name
        failures[name] = Failure(f"{name} failed")
    assert set(tried) == usable
    text = str(no_variant_error("b.edgekit", plan, failures))
    assert all(v.name in text for v in variants)


@given(variant_lists, times, st.sampled_from(TARGETS))
def test_order(variants: list[Variant], times_ms: dict[str, float], asked: str) -> None:
    ranked = [c.variant for c in rank(variants, times_ms, asked).candidates]
    keys = [(v.target != asked, not v.verified, v.name not in times_ms) for v in ranked]
    assert keys == sorted(keys)
    for a, b in pairwise(ranked):
        same = (a.target == asked, a.status) == (b.target == asked, b.status)
        if same and a.name in times_ms and b.name in times_ms:
            assert times_ms[a.name] <= times_ms[b.name] * 1.03
    assert rank(variants, times_ms, asked) == rank(variants, times_ms, asked)


def names(variants: list[Variant], times_ms: dict[str, float], asked: str | None = None) -> str:
    return " ".join(c.variant.name for c in rank(variants, times_ms, asked).candidates)


def test_fastest_first_and_what_nobody_timed_last() -> None:
    variants = [variant(name, "ort") for name in "abcd"]
    assert names(variants, {"b": 3.0, "c": 1.0, "d": 2.0}) == "c d b a"
    assert names(variants, {}) == "a b c d"


def test_of_variants_that_nobody_timed_the_smallest_is_tried_first_as_the_report_advises() -> None:
    sizes = {"fp32": 40, "fp16": 20, "int8": 10}
    variants = [variant(name, "tensorrt", size_bytes=size) for name, size in sizes.items()]
    variants += [variant("unstated", "tensorrt"), variant("text", "tensorrt", size_bytes="1")]  # type: ignore[arg-type]
    assert names(variants, {}) == "int8 fp16 fp32 unstated text"
    assert names(variants, {"fp32": 9.0}) == "fp32 int8 fp16 unstated text"
    assert [v.name for v in advised(variants)] == ["int8"]


def test_within_three_percent_the_bundles_order_decides() -> None:
    variants = [variant(name, "ort") for name in "abc"]
    assert names(variants, {"a": 1.02, "b": 1.0, "c": 1.01}) == "a b c"
    assert names(variants, {"a": 1.05, "b": 1.0, "c": 1.01}) == "b c a"


def test_what_was_not_verified_comes_after_what_was() -> None:
    variants = [variant("new", "coreml", status="not run: no Mac"), variant("old", "ort")]
    assert names(variants, {"new": 1.0, "old": 9.0}) == "old new"
    assert names(variants, {"new": 1.0, "old": 9.0}, "coreml") == "new old"


def test_a_smaller_model_comes_after_all_that_compute_the_whole_one() -> None:
    smaller = variant("small", "ort")._replace(shrunk={"multiplications": [100, 70], "golden": []})
    variants = [smaller, variant("new", "coreml", status="not run: no Mac"), variant("old", "ort")]
    times_ms = {"small": 1.0, "old": 9.0}
    assert names(variants, times_ms) == "old new small"
    assert names(variants, times_ms, "ort") == "old new small"
    order = rank(variants, times_ms, None, (), "small")
    assert [c.variant.name for c in order.candidates] == ["small", "old", "new"]
    order = rank(variants, times_ms)
    failures = {name: Failure(f"{name} failed") for name in ("old", "new")}
    (_, last) = explain_fallbacks(order, failures, order.candidates[-1])
    assert last.cost == "a smaller model: 30 % fewer multiplications"


def test_times_of_the_build_machine_are_scaled_to_this_one() -> None:
    built = {"a": 10.0, "b": 20.0, "c": 40.0}
    assert estimates(built, {}) == built
    assert estimates(built, {"a": 30.0, "b": 100.0}) == {"a": 30.0, "b": 100.0, "c": 160.0}
    assert estimates({}, {"x": 1.0}) == {"x": 1.0}


ARM, X86 = ({"facts": {"arch": {"value": name}}} for name in ("arm64", "x86_64"))


@pytest.mark.parametrize(
    ("profiles", "kind", "expected"),
    [
        ({"b": ARM, "c": X86}, "aarch64", {"b"}),  # built on x86-64, runs on ARM
        ({"b": ARM, "c": X86}, "x86_64", set()),  # the times are of this kind: they decide
        ({"b": ARM, "c": X86}, "riscv64", set()),
        ({"a": {"facts": []}, "b": {"facts": {"arch": {"value": 7}}}, "c": "x"}, "aarch64", set()),
    ],
)
def test_what_is_made_for_this_processor_is_known_where_times_are_of_another(
    profiles: dict[str, Json], kind: str, expected: set[str]
) -> None:
    timing = {"timing": {"p50_ms": 1.0, "machine": "x86_64"}}
    variants = [Variant(n, "ort", n, "fp32", {}, {}, "verified", timing) for n in ("a", "b", "c")]
    assert built_for_processor(variants, profiles, kind) == expected
    untold = [Variant(n, "ort", n, "fp32", {}, {}, "verified", {"timing": {"p50_ms": 1.0}}) for n in "abc"]
    assert built_for_processor(untold, profiles, kind) == set()


def test_what_is_made_for_this_processor_goes_before_what_was_faster_on_another() -> None:
    variants = [
        variant("any", "ort"),
        variant("pi", "tflite"),
        variant("pi8", "tflite"),
        variant("new", "tflite", status="not run: no engine"),
    ]
    times_ms = {"any": 1.0, "pi": 3.0, "pi8": 2.0}
    pi = {"pi", "pi8", "new"}
    assert [c.variant.name for c in rank(variants, times_ms, None, pi).candidates] == [
        "pi8",
        "pi",
        "any",
        "new",
    ]
    assert rank(variants, times_ms, "ort", pi).candidates[0].variant.name == "any"


def test_a_missing_engine_is_one_hop_and_its_cost_is_told() -> None:
    variants = [
        variant("ort-fp32", "ort"),
        variant("ort-fp16", "ort", precision="fp16"),
        variant("lite-fp16", "tflite", precision="fp16"),
    ]
    plan = rank(variants, {"ort-fp32": 7.2, "ort-fp16": 7.5, "lite-fp16": 10.44})
    gone = Failure("ort is not installed", missing=True)
    assert explain_fallbacks(plan, {"ort-fp32": gone, "ort-fp16": gone}, plan.candidates[2]) == (
        Fallback(
            "ort-fp32",
            "lite-fp16",
            "ort is not installed",
            "10.4 ms instead of 7.2 ms (+45 %), fp16 instead of fp32",
        ),
    )


def test_a_cost_that_nobody_measured() -> None:
    plan = rank([variant("a", "ort"), variant("b", "coreml", status="not run: no Mac")], {})
    (hop,) = explain_fallbacks(plan, {"a": Failure("broken")}, plan.candidates[1])
    assert hop.cost == "not verified"
    plan = rank([variant("a", "ort"), variant("b", "tflite")], {"a": 1.0})
    (hop,) = explain_fallbacks(plan, {"a": Failure("broken")}, plan.candidates[1])
    assert hop.cost == "not measured"


def test_an_engine_whose_variants_were_all_rejected_is_a_hop_too() -> None:
    plan = rank([variant("slow", "tflite", status="rejected: slow"), variant("a", "ort")], {}, "tflite")
    (hop,) = explain_fallbacks(plan, {}, plan.candidates[0])
    assert (hop.from_, hop.to, hop.reason) == ("slow", "a", "rejected: slow")


def test_nothing_works() -> None:
    plan = rank([variant("a", "ort"), variant("slow", "ort", status="rejected: slow")], {})
    error = no_variant_error("b.edgekit", plan, {"a": Failure("it is broken")})
    assert str(error) == (
        "no variant of b.edgekit works here\n"
        "  a     it is broken\n"
        "  slow  rejected: slow\n"
        "  if `edgekit verify` fails on it too, the bundle or an engine is at fault, not the input"
    )
    assert isinstance(error, NoVariantError)
    assert error.exit_code == 1
    gone = no_variant_error("b.edgekit", plan, {"a": Failure("not installed", missing=True)})
    assert gone.exit_code == MissingDependency.exit_code == 3


@pytest.mark.parametrize("variants", [[], [variant("slow", "ort", status="rejected: slow")]])
def test_nothing_to_try(variants: list[Variant]) -> None:
    assert best_candidate(rank(variants, {}), {}) is None


def test_a_bundle_whose_build_kept_nothing_needs_no_engine() -> None:
    plan = rank([variant("slow", "ort", status="rejected: slow")], {})
    assert str(no_variant_error("b.edgekit", plan, {})) == (
        "no variant of b.edgekit works here\n"
        "  slow  rejected: slow\n"
        "  its build rejected all of them: build it again, e.g. with another target or precision"
    )


def test_what_the_processor_lacks_is_skipped_with_the_reason() -> None:
    variants = [variant("ov-fp32", "openvino"), variant("ov-bf16", "openvino")]
    times_ms = {"ov-fp32": 2.0, "ov-bf16": 1.0}
    assert best_candidate(rank(variants, times_ms), {}).variant.name == "ov-bf16"  # type: ignore[union-attr]
    plan = rank(variants, times_ms, unsuited={"ov-bf16": "it needs a processor with bf16"})
    assert [c.variant.name for c in plan.candidates] == ["ov-fp32"]
    assert plan.skipped == {"ov-bf16": "it needs a processor with bf16"}
    plan = rank(variants, times_ms, named="ov-bf16", unsuited=plan.skipped)
    (hop,) = explain_fallbacks(plan, {}, plan.candidates[0])
    assert (hop.from_, hop.to, hop.reason) == ("ov-bf16", "ov-fp32", "it needs a processor with bf16")


def test_an_arithmetic_that_only_the_profile_s_processor_has_goes_first() -> None:
    needs: dict[str, Json] = {"needs_isa": ["avx512_bf16", "amx_bf16"]}
    profiles: dict[str, Json] = {
        "xeon": {"facts": {"isa": {"value": ["avx2", "amx_bf16"]}}},
        "any": {"facts": {"isa": {"value": ["avx2"]}}},
        "odd": {"facts": {"isa": 7}},
    }
    variants = [
        variant(profile, "openvino", options=needs)._replace(profile=profile) for profile in [*profiles, "no"]
    ]
    assert built_for_instructions(variants, profiles) == {"xeon"}
    timed = variant("xeon", "openvino", options=needs, p50_ms=1.0)._replace(profile="xeon")
    assert built_for_instructions([timed], profiles) == frozenset()
