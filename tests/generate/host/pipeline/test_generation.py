"""The precisions that a build of a model tries, which generates tokens."""

from pathlib import Path

import pytest

from edgekit.bundle.variant import Status
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.try_variant import Compiled
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EngineError
from edgekit.generate.host.pipeline.generation import build_in_turn
from edgekit.system.progress import Stage
from edgekit.target.build_target import resolve
from edgekit.target.contract import Artifact
from edgekit.target.installed_profiles import find_profile

pytestmark = pytest.mark.needs_ort


def tried(precisions: list[str], fallbacks: list[str], good: set[str], failing: str = "") -> list[str]:
    """Build variants of which those in ``good`` are kept; return their names with what became of them."""
    shown = list[str]()

    def compile_variant(variant: VariantBuild) -> Compiled:
        if variant.precision == failing:
            raise EngineError("the engine is gone")
        return Compiled(Artifact({}), judge)

    def judge(variant: VariantBuild) -> None:
        variant.outcome, variant.reason = Status.VERIFIED, "on ORT"
        if variant.precision not in good:
            variant.reject("not good enough")

    def progress(stage: Stage) -> None:
        if stage.seconds is not None:
            shown.append(stage.detail)

    described = {"ort-int8": "; 3 of 4 texts"}
    target = resolve(find_profile("ort"))
    variants = build_in_turn(
        compile_variant, target, precisions, fallbacks, False, Faults("0"), progress, described
    )
    assert [variant.name for variant in variants] == [row.split()[0] for row in shown]
    return shown


def test_further_precisions_are_built_until_one_is_good_enough() -> None:
    further = ["int8-weights", "fp32"]
    kept, refused = "ort-int8  verified on ORT; 3 of 4 texts", "ort-int8  rejected: not good enough"
    assert tried(["int8"], further, {"int8"}) == [kept]
    assert tried(["int8"], further, {"fp32"}) == [
        refused, "ort-int8-weights  rejected: not good enough", "ort-fp32  verified on ORT",
    ]  # fmt: skip
    assert tried(["int8", "fp32"], [], set()) == [refused, "ort-fp32  rejected: not good enough"]
    assert tried(["int8", "fp32"], further, {"fp32"}) == [refused, "ort-fp32  verified on ORT"]


def test_a_target_that_met_a_fault_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
    (row,) = tried(["int8"], ["fp32"], {"fp32"}, failing="int8")
    assert "the engine is gone" in row
