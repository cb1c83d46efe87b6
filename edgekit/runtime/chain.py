"""The fallback chain of one bundle: load the best variant that works, and the next one when it fails.

policy.py decides; this loads, activates and closes. ``SessionChain`` runs arrays on it, ``DecoderChain`` (in
generate/) texts. Not thread-safe: the caller holds a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.errors import (
    EngineError,
    MissingDependency,
    NonFiniteOutputError,
    NoVariantError,
    ProfileError,
    RejectedInputError,
    blame_of,
    reason_of,
)
from edgekit.runtime import local_timings
from edgekit.runtime.fallback import policy
from edgekit.runtime.fallback.load_order import rank_variants, why_emulated
from edgekit.runtime.fallback.policy import Failure, Fallback, LoadOrder, RankedVariant, best_candidate
from edgekit.runtime.fallback.variant_health import VariantHealth
from edgekit.runtime.session_state import Active, SessionOptions, States, log
from edgekit.system.interrupts import pass_on
from edgekit.target import registry


class Loaded(Protocol):
    """A loaded variant: a ``Runner`` or a ``DecoderRunner``."""

    device: str
    precision: str

    def close(self) -> None:
        """Free it."""


R = TypeVar("R", bound=Loaded)

HISTORY_LIMIT = 100
"""Changes kept in the history; a variant that keeps failing and recovering must not fill the memory."""


class Chain(Generic[R]):
    """The variants in load order, and the one that is loaded.

    Attributes:
        fallbacks: Steps by which the active variant was reached.
        history: Changes of the active variant, the newest last.
    """

    def __init__(self, bundle: Bundle, options: SessionOptions, states: States) -> None:
        self.runner: R | None = None
        self.active: Active
        self.candidate: RankedVariant
        self.fallbacks: tuple[Fallback, ...] = ()
        self.history: tuple[Fallback, ...] = ()
        self._bundle, self._options, self._states = bundle, options, states
        self.local_times = local_timings.recalled(bundle)
        self.load_order = rank_variants(bundle, options, self.local_times)
        self._health = VariantHealth()
        self._changing = False

    _not_a_variants_fault: tuple[type[Exception], ...] = ()
    """Errors of ``_admit`` and ``_open`` after which no other variant is tried."""

    # --- for subclasses ----------------------------------------------------------------------------------

    def _admit(self, variant: Variant) -> None:
        """Raise if a variant must not be loaded; called before its engine is imported."""

    def _open(self, variant: Variant) -> R:
        raise NotImplementedError

    def _take_standby(self, variant: Variant) -> R | None:
        """Return the variant, if it is loaded already; the caller then owns it."""
        return None

    # --- loading -----------------------------------------------------------------------------------------

    def _load_next(self) -> None:
        """Load the best candidate that has not failed, and record the fallbacks that led to it.

        Raises:
            NoVariantError: all failed.
            EngineError, MissingDependency: ``strict``, and the first one failed.
            An error in ``_not_a_variants_fault``.
        """
        if self._options.strict and self.load_order.unusable_request is not None:
            raise _request_unusable(self.load_order, self._options)
        while True:
            candidate = best_candidate(self.load_order, self._health.failures)
            if candidate is None:
                raise policy.no_variant_error(self._bundle.name, self.load_order, self._health.failures)
            try:
                if not self._load(candidate):
                    continue
            except Exception as problem:  # an engine may throw anything
                pass_on(problem)
                if isinstance(problem, self._not_a_variants_fault):
                    raise
                self._fail(candidate, problem)
            else:
                self._activate(candidate)
                return

    def _load(self, candidate: RankedVariant) -> bool:
        """Load a candidate. False: the order was changed, because its engine only emulates the device, or the
        times measured here are of another version of it."""
        variant = candidate.variant
        self.runner = self._take_standby(variant)
        if self.runner is None:
            if reason := why_emulated(variant, self._options):
                self.load_order = policy.without(self.load_order, variant.name, reason)
                return False
            engine = registry.engine(variant.target)
            self._admit(variant)
            version = engine.engine_version()
            if self.local_times.get(variant.name, (0.0, version))[1] != version:
                self.local_times = {}
                self.load_order = rank_variants(self._bundle, self._options, self.local_times)
                return False
            self.runner = self._open(variant)
        self.active = self._describe(variant, self.runner)
        return True

    def _activate(self, candidate: RankedVariant) -> None:
        previous = self.fallbacks
        self.candidate = candidate
        self._update_fallbacks()
        self._record(*(fallback for fallback in self.fallbacks if fallback not in previous))
        self._states.enter("ready", candidate.variant.name)

    def _update_fallbacks(self) -> None:
        if self.runner is not None:
            self.fallbacks = policy.explain_fallbacks(self.load_order, self._health.failures, self.candidate)

    def _active_name(self) -> str | None:
        return self.active.variant if self.runner is not None else None

    def _describe(self, variant: Variant, runner: R) -> Active:
        version = registry.engine(variant.target).engine_version()
        return Active(variant.name, version, runner.device, runner.precision)

    def _record(self, *changes: Fallback) -> None:
        self.history = (*self.history, *changes)[-HISTORY_LIMIT:]

    # --- failing -----------------------------------------------------------------------------------------

    def _fail_running(self, problem: Exception, timed_out: bool = False, rejected: bool = False) -> None:
        """Close the active variant, which failed at a request. Raises EngineError if strict.

        Args:
            timed_out: Whether it timed out and may still be running.
            rejected: See ``Failure``.
        """
        if timed_out or not self._options.strict:
            self.drop_runner()
        self._refuse_fallback(self.candidate, problem)
        failure = Failure(
            reason_of(problem),
            still_running=timed_out,
            blame=blame_of(problem),
            non_finite=isinstance(problem, NonFiniteOutputError),
            rejected=rejected,
        )
        self._health.failed_running(self.candidate.variant.name, failure)

    def _fail(self, candidate: RankedVariant, problem: Exception) -> None:
        """Record that a variant did not load. Without its engine, no variant of its target can."""
        if isinstance(problem, (MissingDependency, ProfileError)):
            if self._options.strict:
                order, options = self.load_order, self._options
                raise _engine_missing(order, candidate, options, problem) from None
            self._health.engine_missing(self.load_order, candidate.variant.target, problem)
            return
        self._refuse_fallback(candidate, problem)
        self._health.failed_loading(
            candidate.variant.name, Failure(reason_of(problem), blame=blame_of(problem))
        )

    def _refuse_fallback(self, candidate: RankedVariant, problem: Exception) -> None:
        if self._options.strict:
            raise _variant_failed(candidate, problem) from problem

    def _is_input_at_fault(self, problem: Exception, run_known: Callable[[], object]) -> bool:
        """Return whether a failure is the input's fault. A moment ago no variant could compute an input, and
        the loaded one still computes a known one (``run_known`` raises if it does not). Then nothing is
        unloaded: such inputs, repeated, must not make every request load every variant."""
        if not self._health.expects_bad_inputs or not self._may_be_the_input(problem):
            return False
        try:
            run_known()
        except Exception as wrong:  # an engine may throw anything
            pass_on(wrong)
            return False
        return True

    def _may_be_the_input(self, problem: Exception) -> bool:
        return isinstance(problem, NonFiniteOutputError)

    def _no_variant(self, error: NoVariantError, ran: Collection[str]) -> NoVariantError:
        """Return the error of a request on which every variant failed; of another class if all that ``ran``
        gave non-finite outputs, or rejected the input."""
        failures = [self._health.failures.get(name) for name in ran]
        if not ran or not all(failure and (failure.non_finite or failure.rejected) for failure in failures):
            return error
        self._health.input_failed()
        if all(failure and failure.non_finite for failure in failures):
            return NonFiniteOutputError(*error.args)
        return RejectedInputError(*error.args)

    def drop_runner(self) -> None:
        """Close the active variant, if there is one."""
        runner, self.runner = self.runner, None
        if runner is not None:
            try:
                runner.close()
            except Exception as problem:  # it is no longer needed
                pass_on(problem)
                log().warning("%s did not close: %s", self.active.engine, problem)


def _request_unusable(order: LoadOrder, options: SessionOptions) -> NoVariantError:
    assert order.unusable_request is not None
    name, requested = order.unusable_request.name, options.engine
    if name == options.variant:
        return NoVariantError(f"variant {name} was requested and was {order.skipped[name]}")
    return NoVariantError(
        f"{requested} was requested and has no usable variant; {name} was {order.skipped[name]}"
    )


def _variant_failed(candidate: RankedVariant, problem: Exception) -> EngineError:
    name = candidate.variant.name
    kind = NonFiniteOutputError if isinstance(problem, NonFiniteOutputError) else EngineError
    return kind(f"{name} does not run: {reason_of(problem)}; strict forbids fallbacks")


def _engine_missing(
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
            return f"without strict, {version.rpartition(' ')[0] or version} would have run"
    return "no other engine of this bundle is installed either"
