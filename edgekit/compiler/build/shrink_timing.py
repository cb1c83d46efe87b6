"""Times a smaller model against the model on engines of this machine."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgekit.compiler.build.variant_build import VariantBuild, build_variant, run_reference, runs_here
from edgekit.compiler.evaluate.relative_time import ratio_to_parent
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.onnx_file import signature
from edgekit.errors import MissingDependency, UnsupportedError
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.check_support import check_canonical, refuse_unsupported
from edgekit.target.installed_profiles import find_profile, profile_names


class ModelTimer:
    """Compiles and times models against one model, in float32 on one thread.

    Args:
        model: The canonical model.
        samples: Some that models are verified with; the first one is timed.
        targets: Targets to time on.

    Attributes:
        not_timed: Target -> why it is left out.
    """

    def __init__(self, model: ir.Model, samples: Sequence[Sample], targets: Sequence[BuildTarget]) -> None:
        self._samples = samples
        self._parents: list[VariantBuild] = []
        self.not_timed: dict[str, str] = {}
        reference = self._reference(model)
        for target in targets:
            try:
                refuse_unsupported("it", model, check_canonical(model, [target]))
                parent = build_variant(model, target, "fp32", reference, [])
            except UnsupportedError:
                self.not_timed[target.profile.name] = "it has nodes that this target does not support"
                continue
            if parent.timed:
                self._parents.append(parent)
            else:
                self.not_timed[target.profile.name] = parent.status

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of those that are timed."""
        return tuple(parent.profile.name for parent in self._parents)

    def ratios(self, model: ir.Model, only: str = "") -> dict[str, float]:
        """Return target -> ratio of another model's time to this model's.

        Args:
            model: Canonical, with the same inputs and outputs.
            only: Time on this target alone.
        """
        ratio_by_target = {}
        reference = self._reference(model)
        for parent in self._parents:
            name = parent.profile.name
            if only not in ("", name):
                continue
            variant = build_variant(model, parent.target, "fp32", reference, [])
            if variant.timed:
                ratio_by_target[name] = ratio_to_parent(variant.to_time, parent.to_time, reference)
            else:
                self.not_timed[name] = variant.status
        return ratio_by_target

    def _reference(self, model: ir.Model) -> ReferenceOutputs:
        return run_reference(model, *signature(model), self._samples)


def targets_to_time(names: Sequence[str]) -> list[BuildTarget]:
    """Return the targets with these names, or all whose engine is installed.

    Raises:
        ProfileError: a target does not exist.
        MissingDependency: the engine of one that is named is not installed.
    """
    if not names:
        every = [resolve(find_profile(name)) for name, target in profile_names().items() if name == target]
        return [target for target in every if _objection(target) is None and runs_here(target.profile)]
    targets = [resolve(find_profile(name)) for name in dict.fromkeys(names)]
    for target in targets:
        missing = _objection(target)
        if missing is not None:
            raise missing
    return targets


def _objection(target: BuildTarget) -> MissingDependency | None:
    """Return why its engine cannot be timed here: a reference executor's times do not count."""
    try:
        target.engine.engine_version()
    except MissingDependency as missing:
        return missing
    return None
