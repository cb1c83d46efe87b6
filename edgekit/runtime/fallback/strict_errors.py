"""What a strict session says where another one would have fallen back."""

from __future__ import annotations

from edgekit.errors import MissingDependency, NoVariantError, ProfileError
from edgekit.runtime.fallback.policy import Candidate, LoadOrder
from edgekit.target import registry


def asked_in_vain(plan: LoadOrder, asked: str | None) -> NoVariantError:
    """The engine that was asked for has no variant that may run."""
    assert plan.asked_in_vain is not None
    name = plan.asked_in_vain.name
    return NoVariantError(f"{asked} was asked for and has no variant to run; {name} was {plan.skipped[name]}")


def engine_missing(
    plan: LoadOrder, candidate: Candidate, asked: str | None, problem: MissingDependency | ProfileError
) -> MissingDependency:
    """The first variant's engine is not installed: how to install it, and what else would have run."""
    missing, name, install = candidate.variant.target, "", ""
    if isinstance(problem, MissingDependency):
        name, install = problem.name, problem.install
    why = "was asked for" if missing == asked else f"has the best variant, {candidate.variant.name},"
    how = f" ({install})" if install else ""
    error = MissingDependency(name, "this bundle", install)
    error.args = (f"{missing} {why} and is not installed{how}; {_otherwise(plan, missing)}",)
    return error


def _otherwise(plan: LoadOrder, missing: str) -> str:
    for candidate in plan.candidates:
        if candidate.variant.target != missing:
            try:
                version = registry.engine(candidate.variant.target).engine_version()
            except Exception:  # then not this one
                continue
            return f"without --strict {version.rpartition(' ')[0] or version} would have run"
    return "no other engine of this bundle is installed either"
