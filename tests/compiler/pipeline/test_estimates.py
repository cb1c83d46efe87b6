"""The estimate of a target's own tool: in the evidence, in every text, and never called measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.bundle.evidence import Evidence
from edgekit.compiler.evaluate.verify_bundle import render as verified
from edgekit.compiler.evaluate.verify_bundle import verify_bundle
from edgekit.compiler.explain.explain import explain
from edgekit.compiler.explain.text import render as explained
from edgekit.compiler.pipeline.estimates import hold_to_memory
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EngineError, MissingDependency
from edgekit.target import Artifact, registry
from edgekit.target.build_target import resolve
from edgekit.target.cost_estimate import CostEstimate, NodeEstimate
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Fact, Profile
from edgekit.tensor_spec import Content
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort

NODES = (
    NodeEstimate("features", "CONV", "NPU", 900),
    NodeEstimate("scores", "SOFTMAX", "CPU", None, "its input is float32"),
)
FOUND = CostEstimate(
    "slide rule 3", "chip-128 at 500 MHz", 1234, 2.5, {"ram": 1536}, NODES, ("the CPU is not in cycles",)
)
SAID = [
    "estimated by slide rule 3 (chip-128 at 500 MHz), not measured: 1,234 cycles, 2.5 ms, ram 1.5 KiB, "
    "1 of 2 nodes on NPU, 1 on CPU",
    "on CPU: SOFTMAX scores: its input is float32",
    "the CPU is not in cycles",
]


def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, ram: int | None = None) -> Bundle:
    """For ONNX Runtime, as if it had a tool that estimates: one that gives or raises ``answer``."""
    generic = find_profile("ort")
    facts = {} if ram is None else {"ram": Fact(ram, "KiB", "its manual")}
    board = replace(generic, title="a small board", facts=facts)
    monkeypatch.setattr("edgekit.compiler.pipeline.build_bundle.find_profile", lambda name: board)
    real, asked = registry.compiler("ort"), []

    def estimate(files: Mapping[str, Content], profile: Profile) -> CostEstimate | None:
        asked.append((sorted(files), profile.name))
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    class Estimating:
        TARGET = real.TARGET._replace(estimate=estimate)
        check_model = staticmethod(real.check_model)
        compile_model = staticmethod(real.compile_model)

    monkeypatch.setattr(registry, "compiler", lambda name: Estimating())
    bundle = edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort"])
    assert asked == [(["model.onnx"], "ort")]
    return bundle


def test_it_is_evidence_and_in_every_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = build(tmp_path, monkeypatch, FOUND)
    (variant,) = bundle.variants
    assert variant.evidence["cost"] == FOUND.as_json()
    for said in SAID:
        assert f"  note      ort-fp32  {said}" in bundle.report
    (check,) = verify_bundle(bundle)
    assert list(check.estimates) == SAID == check.as_json()["estimates"]
    assert f"  estimate  ort-fp32  {SAID[0]}" in verified([check])
    (found,) = explain(bundle)
    assert [(c["node"], c["device"], c["cycles"], c["why"]) for c in found["costs"]] == [
        ("scores", "CPU", None, "its input is float32"),
        ("features", "NPU", 900, ""),
    ]
    assert "  estimated 2 nodes by slide rule 3, not measured" in explained([found])


def test_a_saved_bundle_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = build(tmp_path, monkeypatch, FOUND)
    bundle.save(tmp_path / "m.edgekit")
    assert Bundle.open(tmp_path / "m.edgekit").report == bundle.report


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (
            MissingDependency("rule", "estimating", "pip install rule"),
            "rule is not installed, and estimating needs it: pip install rule",
        ),
        (EngineError("slide rule 3 refuses the file"), "slide rule 3 refuses the file"),
        (ValueError("slipped"), "a bug in EdgeKit or in the engine: ValueError: slipped"),
    ],
)
def test_without_an_estimate_the_variant_is_kept_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, why: str
) -> None:
    bundle = build(tmp_path, monkeypatch, problem)
    (variant,) = bundle.variants
    assert variant.verified
    assert variant.evidence["cost"] == {"failed": why}
    assert f"  note      ort-fp32  its cost was not estimated: {why}" in bundle.report


def test_a_profile_that_the_tool_knows_nothing_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (variant,) = build(tmp_path, monkeypatch, None).variants
    assert "cost" not in variant.evidence


def test_what_does_not_fit_the_profiles_memory_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (variant,) = build(tmp_path, monkeypatch, FOUND, ram=1).variants
    assert variant.status == (
        "rejected: needs 1.5 KiB of RAM (estimated by slide rule 3), but a small board has 1 KiB"
    )
    assert not variant.files


def test_force_does_not_make_it_fit() -> None:
    board = replace(find_profile("ort"), title="a small board", facts={"flash": Fact(4, "KiB", "its manual")})
    target = replace(resolve(find_profile("ort")), profile=board)
    artifact = Artifact({"model.onnx": b"1"})
    evidence: Evidence = {"size_bytes": 1, "engine": "abacus 2", "compile": {"memory_bytes": {"flash": 1}}}
    variant = VariantBuild(target, "int8", forced=True, artifact=artifact, evidence=evidence)
    hold_to_memory([variant])
    assert variant.evidence["memory"] == {"flash": {"bytes": 1, "limit_bytes": 4096, "by": "of its files"}}
    assert not variant.rejected
    evidence["runner"] = {"memory_bytes": {"flash": 5000}}  # the engine knows better than the compiler
    hold_to_memory([variant])
    assert variant.status == (
        "rejected: needs 4.9 KiB of flash (recorded by abacus 2), but a small board has 4 KiB"
    )


def test_what_fits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = build(tmp_path, monkeypatch, FOUND, ram=2)
    (variant,) = bundle.variants
    assert variant.verified
    assert variant.evidence["memory"] == {
        "ram": {"bytes": 1536, "limit_bytes": 2048, "by": "estimated by slide rule 3"}
    }
    assert "  note      ort-fp32  takes ram 1.5 KiB of 2 KiB (estimated by slide rule 3)" in bundle.report
