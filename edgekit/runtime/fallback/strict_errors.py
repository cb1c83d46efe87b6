"""The errors of a strict session, where another one would fall back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import (
    EngineError,
    MissingDependency,
    NonFiniteOutputError,
    NoVariantError,
    ProfileError,
    reason_of,
)
from edgekit.runtime.fallback.policy import LoadOrder, RankedVariant
from edgekit.system.interrupts import pass_on
from edgekit.target import registry

if TYPE_CHECKING:
    from edgekit.runtime.session_state import SessionOptions


def request_unusable(order: LoadOrder, options: SessionOptions) -> NoVariantError:
    """Return the error for a requested variant or engine that is not usable."""
    assert order.unusable_request is not None
    name, requested = order.unusable_request.name, options.engine
    if name == options.variant:
        return NoVariantError(f"variant {name} was requested and was {order.skipped[name]}")
    return NoVariantError(
        f"{requested} was requested and has no usable variant; {name} was {order.skipped[name]}"
    )


def variant_failed(candidate: RankedVariant, problem: Exception) -> EngineError:
    """Return the error for a variant that does not load or run."""
    name = candidate.variant.name
    kind = NonFiniteOutputError if isinstance(problem, NonFiniteOutputError) else EngineError
    return kind(f"{name} does not run: {reason_of(problem)}; strict forbids fallbacks")


def engine_missing(
    order: LoadOrder,
    candidate: RankedVariant,
    options: SessionOptions,
    problem: MissingDependency | ProfileError,
) -> MissingDependency:
    """Return the error for the first variant's missing engine: how to install it, and the fallback."""
    missing, name, install = candidate.variant.target, "", ""
    if isinstance(problem, MissingDependency):
        name, install = problem.name, problem.install
    best = "requested" if candidate.variant.name == options.variant else "best"
    reason = (
        "was requested" if missing == options.engine else f"has the {best} variant, {candidate.variant.name},"
    )
    install_hint = f" ({install})" if install else ""
    error = MissingDependency(name, "this bundle", install)
    error.args = (f"{missing} {reason} and is not installed{install_hint}; {_otherwise(order, missing)}",)
    return error


def _otherwise(order: LoadOrder, missing: str) -> str:
    for candidate in order.candidates:
        if candidate.variant.target != missing:
            try:
                version = registry.engine(candidate.variant.target).engine_version()
            except Exception as problem:  # not installed either
                pass_on(problem)
                continue
            return f"without --strict {version.rpartition(' ')[0] or version} would have run"
    return "no other engine of this bundle is installed either"
