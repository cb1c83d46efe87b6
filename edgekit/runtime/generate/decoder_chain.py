"""The decoders of one bundle in load order, and the one that is loaded; the next one where it fails.

The decisions are those of a session (runtime/fallback/policy.py). A variant that failed while it ran is tried
again after a cooldown, before a text begins and while no other goes on; one that did not load, when all have
failed: then the next text begins with the first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from edgekit.errors import EngineError, MissingDependency, ProfileError, UsageError, blame_of, reason_of
from edgekit.runtime import local_timings
from edgekit.runtime.fallback import strict_errors
from edgekit.runtime.fallback.load_order import rank_variants, why_emulated
from edgekit.runtime.fallback.policy import (
    Candidate,
    Failure,
    Fallback,
    best_candidate,
    due_for_retry,
    explain_fallbacks,
    no_variant_error,
    without,
)
from edgekit.runtime.fallback.variant_health import VariantHealth
from edgekit.runtime.generate.bundle_draft import draft_for
from edgekit.runtime.generate.memory_plan import MemoryPlan, check_memory
from edgekit.runtime.loading import unpacked_files
from edgekit.runtime.session_state import Active, SessionOptions, States, log
from edgekit.system.interrupts import pass_on
from edgekit.target import registry

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.generate.draft_model import DraftModel
    from edgekit.target.decoder import DecoderRunner

HISTORY_LIMIT = 100


class Decoders(Protocol):
    """Where a text session has its decoder from."""

    runner: DecoderRunner | None
    active: Active
    fallbacks: tuple[Fallback, ...]
    history: tuple[Fallback, ...]
    identity: str

    def load(self) -> DecoderRunner:
        """The decoder, loaded if none is."""

    def failed(self, problem: Exception) -> DecoderRunner:
        """The next one, after ``problem`` of the loaded one."""

    def recovers(self) -> bool:
        """Whether a better variant may be tried again by now; then the loaded one is freed, and ``load``
        tries it."""

    def draft(self) -> DraftModel | None:
        """The draft of the loaded decoder, not loaded; None: there is none. Whoever loads it closes it."""

    def close(self) -> None:
        """Free what is loaded."""


class OneDecoder:
    """A decoder that was loaded elsewhere: there is no other one.

    Attributes:
        identity: What its caches belong to; "" keeps none on disk.
    """

    def __init__(self, runner: DecoderRunner, name: str = "decoder", identity: str = "") -> None:
        self.runner: DecoderRunner | None = runner
        self.active = Active(name, name, runner.device, runner.precision)
        self.fallbacks: tuple[Fallback, ...] = ()
        self.history: tuple[Fallback, ...] = ()
        self.identity = identity

    def load(self) -> DecoderRunner:
        """It is."""
        if self.runner is None:
            raise EngineError("the decoder is closed")
        return self.runner

    def failed(self, problem: Exception) -> DecoderRunner:
        """Raises EngineError: there is no other."""
        raise EngineError(f"{self.active.variant} does not run: {reason_of(problem)}") from problem

    def recovers(self) -> bool:
        """There is no other."""
        return False

    def draft(self) -> DraftModel | None:
        """There is none."""
        return None

    def close(self) -> None:
        """Free it."""
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.close()


class DecoderChain:
    """The decoders of a bundle.

    Args:
        bundle: Has them.
        options: Of the session.
        context: Tokens of a text; None: as memory_plan.py says.
        conversations: How many caches there may be, for the plan of memory.
        kept_bytes: Memory of saved caches, for the plan.
        states: Told of each step of loading.

    Raises:
        UsageError, NoVariantError, MissingDependency, EngineError: as a Session.
    """

    def __init__(
        self,
        bundle: Bundle,
        options: SessionOptions,
        context: int | None,
        conversations: int,
        kept_bytes: int,
        states: States,
    ) -> None:
        self.runner: DecoderRunner | None = None
        self.active: Active
        self.fallbacks: tuple[Fallback, ...] = ()
        self.history: tuple[Fallback, ...] = ()
        self.identity = ""
        self._bundle, self._options, self._context, self._states = bundle, options, context, states
        self._conversations, self._kept_bytes = conversations, kept_bytes
        self._health = VariantHealth()
        self._order = rank_variants(bundle, options, local_timings.recalled(bundle, options.threads))
        if options.strict and self._order.unusable_request is not None:
            raise strict_errors.request_unusable(self._order, options)
        self._candidate: Candidate
        self._plan: tuple[MemoryPlan, int]
        self.load()

    def load(self) -> DecoderRunner:
        """The decoder, the best one that works, loaded if none is."""
        while self.runner is None:
            health = self._health
            candidate = best_candidate(self._order, health.failures)
            if candidate is None:
                error = no_variant_error(self._bundle.name, self._order, health.failures)
                # The next text may fare better: an engine that is not installed stays out.
                health.restore({name: f for name, f in health.failures.items() if f.missing}, {})
                raise error
            try:
                if why := why_emulated(candidate.variant, self._options):
                    self._order = without(self._order, candidate.variant.name, why)
                    continue
                runner = self._open(candidate.variant)
            except (MissingDependency, ProfileError) as problem:
                self._missing(candidate, problem)
            except UsageError:  # the options do not fit the model
                raise
            except Exception as problem:  # an engine may throw anything
                pass_on(problem)
                self._fail(candidate, problem)
            else:
                self._activate(candidate, runner)
                self.runner = runner  # last: an interrupt leaves none without its identity
        return self.runner

    def failed(self, problem: Exception) -> DecoderRunner:
        """Load the next one, after ``problem`` of the loaded one.

        Raises:
            NoVariantError: none is left.
            EngineError: strict.
        """
        if not self._options.strict:
            self._drop()
        self._fail(self._candidate, problem, running=True)
        runner = self.load()
        log().warning("fell back: %s", self.history[-1] if self.history else "")
        return runner

    def recovers(self) -> bool:
        """As ``Decoders.recovers``. If it fails again, its next cooldown is twice as long."""
        active = None if self.runner is None else self._candidate.variant.name
        due = due_for_retry(self._order, self._health.cooldowns, active, time.monotonic())
        if due is None:
            return False
        self._health.recovered(due.variant.name, time.monotonic())
        self._drop()
        return True

    def draft(self) -> DraftModel | None:
        """As ``Decoders.draft``. Raises BundleError: it is malformed."""
        plan, spare_bytes = self._plan
        version, probe = self.active.engine, self._probe if self._options.probe else None
        return draft_for(
            self._bundle, self._candidate.variant, plan, spare_bytes, self._options, version, probe
        )

    def close(self) -> None:
        """Free what is loaded."""
        self._drop()

    def _open(self, variant: Variant) -> DecoderRunner:
        bundle = self._bundle
        size_bytes = sum(bundle.size_bytes(entry) for entry in variant.files.values())
        self._plan = check_memory(
            variant.name, variant.options, size_bytes, self._context, self._conversations, self._kept_bytes
        )
        if self._options.probe:
            self._probe(variant)
        self._states.enter("verifying", variant.name)
        unpacked = unpacked_files.unpack_noted(bundle, variant)
        self._states.enter("loading", variant.name)
        return registry.open_decoder(
            variant.target, unpacked.files, variant.options, self._options.threads, self._plan[0].capacity
        )

    def _probe(self, variant: Variant) -> None:
        from edgekit.runtime.loading import probe  # here: most sessions do not probe

        self._states.enter("verifying", variant.name)
        found = probe.probe_once(self._bundle, variant, self._options.threads)
        if found.why:
            error = EngineError(found.why)
            error.blame = found.blame
            raise error

    def _activate(self, candidate: Candidate, runner: DecoderRunner) -> None:
        variant = candidate.variant
        version = registry.engine(variant.target).engine_version()
        known = self.fallbacks
        self._candidate = candidate
        self.active = Active(variant.name, version, runner.device, runner.precision)
        self.identity = f"{local_timings.artifact(self._bundle, variant)} {version}"
        self.fallbacks = explain_fallbacks(self._order, self._health.failures, candidate)
        new = tuple(fallback for fallback in self.fallbacks if fallback not in known)
        self.history = (*self.history, *new)[-HISTORY_LIMIT:]
        self._states.enter("ready", variant.name)

    def _fail(self, candidate: Candidate, problem: Exception, running: bool = False) -> None:
        if self._options.strict:
            raise strict_errors.variant_failed(candidate, problem) from problem
        failure = Failure(reason_of(problem), blame=blame_of(problem))
        note = self._health.failed_running if running else self._health.failed_loading
        note(candidate.variant.name, failure, time.monotonic())

    def _missing(self, candidate: Candidate, problem: MissingDependency | ProfileError) -> None:
        """No variant of a missing engine can be loaded."""
        if self._options.strict:
            raise strict_errors.engine_missing(self._order, candidate, self._options, problem) from None
        self._health.engine_missing(self._order, candidate.variant.target, problem, time.monotonic())

    def _drop(self) -> None:
        runner, self.runner = self.runner, None
        if runner is not None:
            try:
                runner.close()
            except Exception as problem:  # it is no longer needed
                pass_on(problem)
                log().warning("%s did not close: %s", self.active.engine, type(problem).__name__)
