"""A target during a build: resolved by name once, then passed on."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.errors import MissingDependency
from edgekit.target import registry
from edgekit.target.contract import Compiler, Engine, TargetInfo
from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Rules


@dataclass(frozen=True)
class BuildTarget:
    """A profile with the two modules of its target.

    Attributes:
        profile: The target or device to build for.
        compiler: The host side, ``compile.py``.
        engine: The device side, ``run.py``; its engine need not be installed.
        rules: Quantization rules; None where the target has no int8.
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
        """Runs artifacts on this machine: the engine or, where it is not installed, the target's reference
        executor if it has one."""
        try:
            self.engine.engine_version()
        except MissingDependency:
            return self.info.reference_executor or self.engine
        return self.engine

    def missing(self) -> MissingDependency | None:
        """Why artifacts can't run on this machine; None where they can."""
        try:
            self.executor().engine_version()
        except MissingDependency as missing:
            return missing
        return None


def resolve(profile: Profile) -> BuildTarget:
    """Look up and load the target of a profile.

    Raises:
        ProfileError: there is no such target.
    """
    compiler, engine = registry.compiler(profile.target), registry.engine(profile.target)
    rules_for = compiler.TARGET.quantization_rules
    return BuildTarget(profile, compiler, engine, None if rules_for is None else rules_for(profile))
