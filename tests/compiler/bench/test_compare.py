from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.compiler.bench import compare as bench_compare
from edgekit.compiler.bench.compare import Side, compare, compare_bundles, render_comparisons, statement
from edgekit.errors import BundleError, MissingDependency, UsageError
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import small_bundle, small_manifest, variant
from tests.fixtures.fake_engines import Engines, doubled

TWO = [variant("a-fp32", "a"), variant("b-fp32", "b")]


class Clock:
    """Time that passes only when a variant runs: ``ms`` each, with noise of 2 %."""

    def __init__(self, engines: Engines, **ms: float) -> None:
        self.now = 0.0
        self._random = np.random.default_rng(0)
        for name, each in ms.items():
            engines[name].behaviour[f"{name}-fp32"] = self._behaviour(each)

    def _behaviour(self, ms: float) -> Any:
        def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
            self.now += ms / 1000 * float(np.exp(self._random.normal(0, 0.02)))
            return doubled(feeds)

        return run

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines("a", "b")
    monkeypatch.setattr("edgekit.target.registry.engine", found)
    return found


def _compared(engines: Engines, monkeypatch: pytest.MonkeyPatch, a: float, b: float) -> Any:
    monkeypatch.setitem(bench_compare.CLOCKS, "wall", Clock(engines, a=a, b=b))
    bundle = small_bundle(TWO)
    return compare(Side(bundle, "a-fp32", "A"), Side(bundle, "b-fp32", "B"), threads=1, seconds=1)


def test_what_is_three_percent_slower_is_found(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(engines, monkeypatch, 1.03, 1.0)
    assert found["differs"]
    assert 1.02 < found["low"] <= found["ratio"] <= found["high"] < 1.04
    assert statement(found).startswith("A is 3.")
    assert " % slower than B, 95 %: 2." in statement(found)
    assert found["ms"] == (pytest.approx(1.03, rel=0.01), pytest.approx(1.0, rel=0.01))
    assert found["rounds"] >= found["blocks"] * 10


def test_equal_ones_do_not_differ(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(engines, monkeypatch, 1.0, 1.0)
    assert not found["differs"]
    assert statement(found).startswith("no significant difference (95 %): A takes -0.")


def test_every_block_opens_both_anew_and_closes_them(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compared(engines, monkeypatch, 1.0, 1.0)
    for name in "ab":
        assert engines[name].loaded == [f"{name}-fp32"] * bench_compare.BLOCKS
        assert engines[name].closed == bench_compare.BLOCKS


def test_faster_and_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = {"first": "A", "second": "B", "ratio": 0.959, "low": 0.95, "high": 0.968}
    found |= {"confidence": 0.95, "differs": True, "ms": (9.59, 10.0), "blocks": 20, "rounds": 400}
    found |= {"threads": 2, "clock": "cpu", "busy": True}
    assert render_comparisons([found]).splitlines() == [
        "  A is 4.1 % faster than B, 95 %: 3.2 to 5.0",
        "  measured  9.59 ms and 10 ms a run, CPU time on 2 threads, 400 rounds in 20 blocks",
    ]
    found["clock"] = "wall"
    assert "the machine is busy" in render_comparisons([found])


def test_a_variant_of_the_bundle_or_another_bundle(engines: Engines, tmp_path: Path) -> None:
    bundle = small_bundle(TWO)
    (one,) = compare_bundles(bundle, "b-fp32", variant="a-fp32", threads=1, seconds=0.001)
    assert (one["first"], one["second"]) == ("a-fp32", "b-fp32")
    path = tmp_path / "other.edgekit"
    small_bundle(TWO[1:]).save(path)
    (one,) = compare_bundles(bundle, str(path), threads=1, seconds=0.001)
    assert (one["first"], one["second"]) == ("new bundle:b-fp32", f"{path}:b-fp32")


@pytest.mark.parametrize(
    ("against", "variant", "why"),
    [
        ("c-fp32", None, r"^c-fp32 is neither a variant of new bundle nor a bundle$"),
        ("b-fp32", "no", r"^new bundle has no variant of that name that can run here$"),
    ],
)
def test_what_is_not_there(engines: Engines, against: str, variant: str | None, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        compare_bundles(small_bundle(TWO), against, variant=variant, threads=1, seconds=0.001)


def test_no_variant_in_common(engines: Engines, tmp_path: Path) -> None:
    path = tmp_path / "other.edgekit"
    small_bundle([variant("c-fp32", "a")]).save(path)
    with pytest.raises(UsageError, match=r"^no variant in common: a-fp32, b-fp32 and c-fp32$"):
        compare_bundles(small_bundle(TWO), str(path), threads=1, seconds=0.001)


def test_other_inputs_can_not_be_compared(engines: Engines) -> None:
    bundle = small_bundle(TWO)
    inputs = [{**spec, "name": "z"} for spec in bundle.manifest["inputs"]]
    other = Bundle.create({**bundle.manifest, "inputs": inputs, "golden": [], "variants": []}, {})
    with pytest.raises(UsageError, match=r"have different inputs, so they cannot be compared$"):
        compare(Side(bundle, "a-fp32", "A"), Side(other, "a-fp32", "B"), threads=1)


def test_an_engine_that_is_missing(engines: Engines) -> None:
    engines["a"].missing = True
    bundle = small_bundle(TWO)
    with pytest.raises(MissingDependency):
        compare(Side(bundle, "a-fp32", "A"), Side(bundle, "b-fp32", "B"), threads=1, seconds=0.001)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
def test_a_comparison_has_an_end(engines: Engines, seconds: float) -> None:
    side = Side(small_bundle(TWO), "a-fp32", "A")
    with pytest.raises(UsageError, match=rf"^seconds must be greater than 0, not {seconds:g}$"):
        compare(side, side, seconds=seconds)


def test_without_golden_vectors_there_is_nothing_to_compare_on(engines: Engines) -> None:
    manifest = {**small_manifest(TWO), "golden": []}
    contents = {f"variants/{each.name}/model.bin": b"" for each in TWO}
    side = Side(Bundle.create(manifest, contents), "a-fp32", "A")
    with pytest.raises(BundleError, match=r" has no golden vectors to run; build it again$"):
        compare(side, side)
