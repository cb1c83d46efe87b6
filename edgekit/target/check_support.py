"""Check of a canonical model's nodes against what the targets can run, before anything is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit import diagnostics as findings
from edgekit.diagnostics import Finding
from edgekit.errors import UnsupportedError
from edgekit.target.build_target import BuildTarget

if TYPE_CHECKING:
    import onnx_ir as ir


def severity_rank(finding: Finding) -> int:
    """0 for an error, 1 for a warning, 2 for a note: the sort key of findings."""
    return ("error", "warning", "note").index(finding.severity)


def check_canonical(model: ir.Model, targets: Sequence[BuildTarget]) -> list[Finding]:
    """Return the findings of every target about a canonical model; errors first."""
    unsorted = [f for t in targets for f in t.compiler.check_model(model, t.profile)]
    return sorted(unsorted, key=severity_rank)


def refuse_unsupported(name: str, model: ir.Model, all_findings: Sequence[Finding]) -> None:
    """Refuse a model with all errors that targets found in it. Warnings go into the report instead.

    Raises:
        UnsupportedError: at least one finding is an error.
    """
    errors = findings.errors(all_findings)
    if errors:
        lines = []
        for profile in sorted({f.target for f in errors}):
            target_errors = [f for f in errors if f.target == profile]
            lines.append(f"{len(target_errors)} of {len(model.graph)} nodes of {name} can't run on {profile}")
            lines += findings.as_lines(target_errors)
        lines.append("nothing was written")
        raise UnsupportedError("\n".join(lines), errors)
