"""Check for nodes that a target can't run, or runs off its fast path, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.compiler.build.faults import Fault, Faults, traceback_path
from edgekit.compiler.importers.contract import ImportOptions, Source
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.model.onnx_file import assumed_shapes, opened_digest
from edgekit.compiler.passes import run_passes
from edgekit.diagnostics import ASSUMED_SHAPES, FAULT, NOT_CHECKED, Finding
from edgekit.errors import MissingDependency
from edgekit.target.build_target import resolve
from edgekit.target.check_support import check_canonical, severity_rank
from edgekit.target.installed_profiles import find_profile, profile_names


def check(
    model: str | Path | Source,
    targets: Sequence[str] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    trust_pickle: bool = False,
) -> list[Finding]:
    """Run ``edgekit.check`` in this process; its docstring lists arguments and errors."""
    names = targets if targets is not None else sorted(set(profile_names().values()))
    resolved = [resolve(find_profile(name)) for name in names]
    canonical, _ = open_source_model(model, shapes, ImportOptions({}, example_inputs, trust_pickle))
    found: list[Finding] = []
    if assumed := assumed_shapes(canonical):
        found.append(Finding(ASSUMED_SHAPES, "note", "", "", "", assumed))
    run_passes(canonical)
    faults = Faults(opened_digest(canonical))
    for target in resolved:
        name = target.profile.name
        try:
            own = faults.contain(name, f"{name}-check", partial(check_canonical, canonical, [target]))
        except MissingDependency as missing:
            if targets is not None:
                raise
            own = [Finding(NOT_CHECKED, "note", name, "", "", f"not checked: {missing}")]
        found += [_of_fault(name, own)] if isinstance(own, Fault) else own
    return sorted(found, key=severity_rank)


def _of_fault(target: str, fault: Fault) -> Finding:
    """Return the finding for a target whose check met a fault: nothing can be built for it."""
    path = traceback_path(fault.traceback)
    trace = f"; traceback: {path}" if path else ""
    return Finding(FAULT, "error", target, "", "", f"{fault.reason}{trace}")
