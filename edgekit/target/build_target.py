"""A target during a build: resolved by name once, then passed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import EdgeKitError, MissingDependency
from edgekit.target import registry
from edgekit.target.contract import Artifact, Compiler, Engine, EngineInfo, Runner, TargetInfo
from edgekit.target.precisions import FULL_PRECISION, TABLE
from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Rules, WeightForm
from edgekit.tensor_spec import Json, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.diagnostics import Finding


@dataclass(frozen=True)
class BuildTarget:
    """A profile with the two modules of its target.

    Attributes:
        profile: The target or device to build for.
        compiler: The host side, ``compile.py``.
        engine: The device side, ``run.py``; its engine need not be installed.
        rules: Quantization rules; None if the target has no int8.
    """

    profile: Profile
    compiler: Compiler
    engine: Engine
    rules: Rules | None

    @property
    def name(self) -> str:
        """Name of the target, e.g. ``tflite``; the profile's name may be ``rpi5``."""
        return self.profile.target

    @property
    def info(self) -> TargetInfo:
        return self.compiler.TARGET

    def executor(self) -> Engine:
        """Return the engine that runs artifacts on this machine. If it is not installed, return the target's
        reference executor if there is one."""
        try:
            self.engine.engine_version()
        except MissingDependency:
            return self.info.reference_executor or self.engine
        return self.engine

    def compiled_as(self, precision: str) -> str:
        """Return the precision to pass to ``compile_model``. A compiler that does not list one gets full
        precision, and reads from Q/DQ pairs what is integer."""
        return precision if precision in self.info.precisions else FULL_PRECISION

    def missing(self) -> MissingDependency | None:
        """Return the missing dependency that artifacts need to run on this machine, or None if they can
        run."""
        try:
            self.executor().engine_version()
        except MissingDependency as missing:
            return missing
        return None


class NotLoaded:
    """Both modules of a target whose import failed, or whose rules did: every step meets the reason.

    Args:
        problem: Exception that the target raised.
    """

    TARGET = TargetInfo(("fp32",), ("nchw", "nhwc", "uint8"))
    ENGINE = EngineInfo()

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        raise self._problem

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        raise self._problem

    def engine_version(self) -> str:
        raise self._problem

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> Runner:
        raise self._problem


def resolve(profile: Profile) -> BuildTarget:
    """Look up and load the target of a profile. What a broken one raises shows when it is first used.

    Raises:
        ProfileError: there is no such target.
    """
    try:
        compiler, engine = registry.compiler(profile.target), registry.engine(profile.target)
        rules_for = compiler.TARGET.quantization_rules
        return BuildTarget(profile, compiler, engine, None if rules_for is None else rules_for(profile))
    except EdgeKitError:
        raise
    except Exception as problem:
        # Rules for everything: whether it has them is not known, and not why it is refused.
        forms = tuple(WeightForm(row.name, (), "") for row in TABLE if row.stage == "weights")
        none = NotLoaded(problem)
        return BuildTarget(profile, none, none, Rules(profile.target, "int8", False, (), weight_forms=forms))
