"""A target as a build uses it: looked up by name once, then passed on."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.errors import MissingDependency
from edgekit.target import registry
from edgekit.target.contract import Compiler, Engine, TargetInfo
from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Rules


@dataclass(frozen=True)
class BuildTarget:
    """What is built for: a profile, with the two halves of its target.

    Attributes:
        profile: The target or device.
        compiler: The host half.
        engine: The device half, whether its engine is installed or not.
        rules: What is computed on integers; None where the target has no int8.
    """

    profile: Profile
    compiler: Compiler
    engine: Engine
    rules: Rules | None

    @property
    def name(self) -> str:
        """Of the target, e.g. ``tflite``; the profile's may be ``rpi5``."""
        return self.profile.target

    @property
    def info(self) -> TargetInfo:
        return self.compiler.TARGET

    def executor(self) -> Engine:
        """What runs artifacts on this machine: the engine; where it is not installed, the target's reference
        executor, if it has one."""
        try:
            self.engine.engine_version()
        except MissingDependency:
            return self.info.reference_executor or self.engine
        return self.engine

    def missing(self) -> MissingDependency | None:
        """Why nothing runs artifacts on this machine; None where something does."""
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
