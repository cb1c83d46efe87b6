"""Check for nodes that a target can't run, or runs off its fast path, before anything is compiled.

A model with dynamic dimensions is checked with suggested shapes, and with other shapes that fit, so that
everything that stops a build is listed at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir

from edgekit.compiler.importers.contract import ImportOptions, Source
from edgekit.compiler.importers.conversion import as_source, import_source, open_converted
from edgekit.compiler.model.input_shapes import shape_option
from edgekit.compiler.model.onnx_file import assumed_shapes, opened_digest
from edgekit.compiler.model.reference import refusal
from edgekit.compiler.model.suggested_shapes import DynamicShapesError, SuggestedShapes
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.faults import Fault, Faults, traceback_path
from edgekit.compiler.pipeline.ways_out import with_ways_out
from edgekit.diagnostics import ASSUMED_SHAPES, DYNAMIC, FAULT, NOT_CHECKED, REFUSED, Finding, errors
from edgekit.errors import MissingDependency, ModelError
from edgekit.target.build_target import BuildTarget, resolve
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
    fixed, notes = dict(shapes or {}), list[Finding]()
    if isinstance(model, str | os.PathLike) and as_source(model) != Path(model):
        from edgekit.compiler.card_inference.draft import draft_card

        fixed = {**draft_card(model, shapes, example_inputs, trust_pickle).card.shapes(), **fixed}
        options = " ".join(shape_option(name, shape) for name, shape in fixed.items())
        text = f"shapes as edgekit build takes them from the folder's files: {options}"
        notes.append(Finding(ASSUMED_SHAPES, "note", "", "", "", text))
    imported = import_source(model, ImportOptions(fixed, example_inputs, trust_pickle))

    def found_with(more: Mapping[str, tuple[int, ...]], step: str = "check") -> list[Finding]:
        opened = open_converted(model, imported, {**fixed, **more})
        return _findings_of(opened, resolved, step, targets is not None)

    try:
        findings = found_with({})
    except DynamicShapesError as problem:
        findings = _found_provisionally(problem.suggested, found_with)
    return sorted([*notes, *findings], key=_order)


def _order(finding: Finding) -> tuple[int, bool, bool, str]:
    """Return the sort key: errors first, then what holds for all targets, then by what to do."""
    return severity_rank(finding), finding.target != "", not finding.fix, finding.fix


def _found_provisionally(
    suggested: SuggestedShapes, found_with: Callable[..., list[Finding]]
) -> list[Finding]:
    """Return a finding for each input with dynamic dimensions, and those of the targets with the suggested
    shapes. Each of them that other shapes avoid says so."""
    missing = [
        Finding(
            DYNAMIC,
            "error",
            "",
            name,
            "",
            f"it has dynamic dimensions; suggested: {suggested.by_input.get(name, 'as other inputs')}",
            shape_option(name, shape),
        )
        for name, shape in suggested.shapes.items()
    ]
    try:
        findings = found_with(suggested.shapes)
    except ModelError as problem:
        return [*missing, Finding(REFUSED, "error", "", "", "", f"with them, {problem}")]
    for shapes in suggested.alternatives:
        try:
            others = {_subject(finding) for finding in found_with(shapes, "check-again")}
        except ModelError:
            continue
        differing = [
            shape_option(name, shape) for name, shape in shapes.items() if shape != suggested.shapes[name]
        ]
        avoided = [replace(item, avoided_by=" ".join(differing)) for item in findings]
        findings = [
            item if _subject(item) in others else other for item, other in zip(findings, avoided, strict=True)
        ]
        break
    return [*missing, *findings]


def _subject(finding: Finding) -> tuple[str, str, str, str]:
    return finding.code, finding.target, finding.node, finding.op


def _findings_of(
    model: ir.Model, targets: Sequence[BuildTarget], step: str, are_named: bool
) -> list[Finding]:
    """Return the findings of all targets about an opened model, which the passes change."""
    findings: list[Finding] = []
    if assumed := assumed_shapes(model):
        findings.append(Finding(ASSUMED_SHAPES, "note", "", "", "", assumed))
    refused = refusal(model)
    run_passes(model)
    faults = Faults(opened_digest(model))
    for target in targets:
        name = target.profile.name
        try:
            outcome = faults.contain(name, f"{name}-{step}", partial(check_canonical, model, [target]))
        except MissingDependency as missing:
            if are_named:
                raise
            outcome = [Finding(NOT_CHECKED, "note", name, "", "", f"not checked: {missing}")]
        findings += (
            [_of_fault(name, outcome)] if isinstance(outcome, Fault) else with_ways_out(model, outcome)
        )
    if refused and {target.profile.name for target in targets} - {f.target for f in errors(findings)}:
        findings.append(Finding(REFUSED, "error", "", "", "", f"no variant can be verified: {refused}"))
    return findings


def _of_fault(target: str, fault: Fault) -> Finding:
    """Return the finding for a target whose check met a fault: nothing can be built for it."""
    path = traceback_path(fault.traceback)
    trace = f"; traceback: {path}" if path else ""
    return Finding(FAULT, "error", target, "", "", f"{fault.reason}{trace}")
