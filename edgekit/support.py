"""What will not run, or will leave the fast path, per node and before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit import findings, target
from edgekit.errors import MissingDependency, UnsupportedError
from edgekit.findings import NOT_CHECKED, Finding
from edgekit.model_file import open_model
from edgekit.passes import run_passes
from edgekit.profile import Profile, find_profile, profile_names

if TYPE_CHECKING:
    import onnx_ir as ir


def check(
    model: str | Path,
    targets: Sequence[str] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> list[Finding]:
    """Say what each target would not run, or would run off its fast path.

    Args:
        model: Path of an ``.onnx`` file.
        targets: Targets or device profiles; None for all installed targets: one whose compiler needs a
            package that is not installed is a note then.
        shapes: Static shapes by input name.

    Returns:
        Findings, those that keep the model from being built first.

    Raises:
        ModelError: the file is not a model, or has dynamic dimensions that nothing freezes.
        ProfileError: an unknown target.
        MissingDependency: a target that was asked for by name can't compile here.
    """
    names = targets if targets is not None else sorted(set(profile_names().values()))
    profiles = [find_profile(name) for name in names]
    canonical = open_model(model, shapes)
    run_passes(canonical)
    if targets is not None:
        return check_canonical(canonical, profiles)
    found: list[Finding] = []
    for profile in profiles:
        try:
            found += check_canonical(canonical, [profile])
        except MissingDependency as missing:
            found.append(Finding(NOT_CHECKED, "note", profile.name, "", "", f"not checked: {missing}"))
    return sorted(found, key=_order)


def _order(finding: Finding) -> int:
    return ("error", "warning", "note").index(finding.severity)


def check_canonical(model: ir.Model, profiles: Sequence[Profile]) -> list[Finding]:
    """The findings of every profile about a canonical model; errors first."""
    found = [f for p in profiles for f in target.compiler(p.target).check_model(model, p)]
    return sorted(found, key=_order)


def refuse_unsupported(name: str, model: ir.Model, profiles: Sequence[Profile]) -> None:
    """Check, and refuse with every reason at once; warnings refuse nothing, the report has them as facts.

    Raises:
        UnsupportedError: at least one finding is an error.
    """
    errors = findings.errors(check_canonical(model, profiles))
    if errors:
        lines = []
        for profile in sorted({f.target for f in errors}):
            own = [f for f in errors if f.target == profile]
            lines.append(f"{len(own)} of {len(model.graph)} nodes of {name} can't run on {profile}")
            lines += findings.as_lines(own)
        lines.append("nothing was written")
        raise UnsupportedError("\n".join(lines), errors)
