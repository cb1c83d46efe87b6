"""The errors of a strict session, where another one would fall back."""

from __future__ import annotations

from edgekit.errors import MissingDependency, NoVariantError, ProfileError
from edgekit.runtime.fallback.policy import Candidate, LoadOrder
from edgekit.target import registry


def requested_engine_unusable(order: LoadOrder, requested: str | None) -> NoVariantError:
    """The requested engine has no usable variant."""
    assert order.unusable_request is not None
    name = order.unusable_request.name
    return NoVariantError(
        f"{requested} was requested and has no usable variant; {name} was {order.skipped[name]}"
    )


def engine_missing(
    order: LoadOrder, candidate: Candidate, requested: str | None, problem: MissingDependency | ProfileError
) -> MissingDependency:
    """The first variant's engine is not installed: how to install it, and what would have run instead."""
    missing, name, install = candidate.variant.target, "", ""
    if isinstance(problem, MissingDependency):
        name, install = problem.name, problem.install
    why = "was requested" if missing == requested else f"has the best variant, {candidate.variant.name},"
    how = f" ({install})" if install else ""
    error = MissingDependency(name, "this bundle", install)
    error.args = (f"{missing} {why} and is not installed{how}; {_otherwise(order, missing)}",)
    return error


def _otherwise(order: LoadOrder, missing: str) -> str:
    for candidate in order.candidates:
        if candidate.variant.target != missing:
            try:
                version = registry.engine(candidate.variant.target).engine_version()
            except Exception:  # not installed either
                continue
            return f"without --strict {version.rpartition(' ')[0] or version} would have run"
    return "no other engine of this bundle is installed either"
