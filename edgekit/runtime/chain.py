"""The fallback chain of one bundle: load the best variant that works, and the next one when it fails.

policy.py decides; this opens, runs and closes. Not thread-safe: the Session holds a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from edgekit.errors import EngineError, MissingDependency, NoVariantError, ProfileError, blame_of, reason_of
from edgekit.runtime import background, local_timings
from edgekit.runtime.fallback import policy, strict_errors
from edgekit.runtime.fallback.load_order import rank_variants, why_emulated
from edgekit.runtime.fallback.policy import Candidate, Cooldown, Failure, Fallback, best_candidate
from edgekit.runtime.fallback.variant_health import VariantHealth
from edgekit.runtime.loading.load_variant import VariantLoader
from edgekit.runtime.loading.output_checks import OutputChecks, non_finite_inputs
from edgekit.runtime.session_state import Active, SessionOptions, States, log
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.deadline.deadline import Deadline
    from edgekit.target.contract import Runner

HISTORY_LIMIT = 100
"""Changes kept in the history; a variant that keeps failing and recovering must not fill the memory."""


class Chain:
    """The variants in load order, and the one that is loaded.

    Attributes:
        runner: The loaded variant; None if none is loaded.
        active: Describes ``runner``, or the last one.
        deadline: The session's, or None.
        changes_pending: Whether anything may change before the next request; if so, ``between_requests`` is
            called.
        fallbacks: How the active variant was reached.
        history: Changes of the active variant, the newest last.
    """

    def __init__(
        self, bundle: Bundle, options: SessionOptions, states: States, deadline: Deadline | None = None
    ) -> None:
        self.runner: Runner | None = None
        self.active: Active
        self.changes_pending = False
        self.fallbacks: tuple[Fallback, ...] = ()
        self.history: tuple[Fallback, ...] = ()
        self.output_checks = OutputChecks(bundle.outputs, lambda: bundle.golden)
        self.local_times = local_timings.recalled(bundle, options.threads)
        self.preparations = background.Preparations()
        self._retries = background.Preparations()
        self.deadline = deadline
        self._bundle, self._options, self._states = bundle, options, states
        self._loader = VariantLoader(bundle, options, self.output_checks, deadline)
        self.load_order = rank_variants(self._bundle, self._options, self.local_times)
        self._health = VariantHealth()
        self._changing = False
        self._inherited: Runner | None = None
        self.candidate: Candidate
        self._load_next()
        self._prepare()
        self._end_change()
        if deadline is not None:
            while (failed := deadline.wait_for_standby()) is not None:
                self._standby_failed(*failed)

    # --- running -----------------------------------------------------------------------------------------

    def run_on_next(self, feeds: Mapping[str, Array], problem: Exception | None) -> dict[str, Array]:
        """Run on the next variant that works. Raises NoVariantError if all fail, EngineError if strict."""
        self._begin_change()
        failures, cooldowns = dict(self._health.failures), dict(self._health.cooldowns)
        history = self.history
        tried: set[str] = set()
        deadline, outputs = self.deadline, None
        began_s = 0.0 if deadline is None else deadline.began_s(self.runner)
        try:
            while outputs is None:
                if problem is not None:
                    tried.add(self.candidate.variant.name)
                    outputs, problem = self._late_answer(feeds, problem, tried)
                    if outputs is not None:
                        break
                    self._fail_running(problem)
                if self.runner is None:
                    self._load_next_or_retry(failures, cooldowns, tried)
                assert self.runner is not None
                try:
                    answered = self.runner.run(feeds)
                    self.output_checks.check(answered)
                except Exception as again:  # an engine may throw anything
                    pass_on(again)
                    problem = again
                else:
                    outputs = answered
            if deadline is not None:
                deadline.note_if_late(began_s)
            self._end_change()
            if self.history != history:
                log().warning("fell back: %s", self.history[-1])
            return outputs
        except NoVariantError as error:
            causes = [f"{line}, which may be the cause" for line in non_finite_inputs(feeds)]
            error.args = ("\n  ".join([str(error), *causes]),)
            self._health.restore(failures, cooldowns)
            self.history = history
            self.drop_runner()
            self._states.enter("loading")
            self._end_change()
            raise
        except EngineError:
            self._end_change()
            raise

    def _late_answer(
        self, feeds: Mapping[str, Array], problem: Exception, tried: set[str]
    ) -> tuple[dict[str, Array] | None, Exception]:
        """Return the first late result of the active variant or its standby, or None and the error."""
        if self.deadline is None or self._options.strict:
            return None, problem
        others = len(self.load_order.candidates) > 1
        late = self.deadline.late_answer(self.runner, problem, feeds, self.output_checks.check, others)
        if late.failed is not None:
            name, failure = late.failed
            tried.add(name)
            self._health.failed_running(name, failure, monotonic())
        if late.standby:
            last, history = self.candidate.variant.name, self.history
            self._fail_running(late.problem)
            self._health.recovered(late.standby, monotonic())
            candidate = next(c for c in self.load_order.candidates if c.variant.name == late.standby)
            self._load(candidate)
            self._activate(candidate)
            if self.history == history:  # the standby is the better variant
                self._record(policy.promotion(self.load_order, last, candidate, reason_of(late.problem)))
        return late.outputs, late.problem

    def between_requests(self) -> None:
        """Between two requests: activate what is ready, retry what has cooled down."""
        if self._changing:
            self._recover_from_interrupt()
        self._begin_change()
        self._switch_to_prepared()
        self._retry_cooled_down()
        if self.deadline is not None and (failed := self.deadline.poll_standby()) is not None:
            self._standby_failed(*failed)
        self._end_change()

    def _begin_change(self) -> None:
        """Until ``_end_change``. If an interrupt prevents that, the next request sees it and recovers."""
        self._changing = self.changes_pending = True

    def _recover_from_interrupt(self) -> None:
        """After an interrupt: unload everything and make the health records consistent again."""
        self._retries.cancel()
        if self.deadline is not None:
            self.deadline.drop_standby()
        self.drop_runner()
        self._health.repair(monotonic())
        self._prepare()

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings, e.g. an unusable cache or a hung variant."""
        return self._loader.notes + (() if self.deadline is None else self.deadline.notes)

    def forked(self) -> Runner | None:
        """In a forked process: drop background work. The loaded runner, which is returned, is never closed:
        its engine may wait for threads of the parent."""
        self.preparations, self._retries = background.Preparations(), background.Preparations()
        self._inherited = self.runner
        self.changes_pending = True
        return self.runner

    def close(self) -> None:
        self.preparations.cancel()
        self._retries.cancel()
        if self.deadline is not None:
            self.deadline.drop_standby()
        self.drop_runner()
        self.changes_pending = False

    # --- loading -----------------------------------------------------------------------------------------

    def _load_next(self) -> None:
        """Load the best candidate that has not failed, and record the fallbacks that led to it."""
        if self._options.strict and self.load_order.unusable_request is not None:
            raise strict_errors.request_unusable(self.load_order, self._options)
        while True:
            candidate = best_candidate(self.load_order, self._health.failures)
            if candidate is None:
                raise policy.no_variant_error(self._bundle.name, self.load_order, self._health.failures)
            try:
                if not self._load(candidate):
                    continue
            except Exception as problem:  # an engine may throw anything
                pass_on(problem)
                self._fail(candidate, problem)
            else:
                self._activate(candidate)
                return

    def _load_next_or_retry(
        self, failures: Mapping[str, Failure], cooldowns: Mapping[str, Cooldown], tried: set[str]
    ) -> None:
        """``_load_next``; if nothing is left, retry what failed at earlier requests, once a request."""
        try:
            self._load_next()
        except NoVariantError:
            hanging = [] if self.deadline is None else self.deadline.hanging_variants
            again = policy.retry_candidates(failures, cooldowns, tried, hanging)
            if not again:
                raise
            tried.update(again)
            for name in again:
                self._health.recovered(name, monotonic())
            last = self.candidate.variant.name
            self._load_next()
            if (failure := self._health.failures.get(last)) is not None:
                self._record(policy.promotion(self.load_order, last, self.candidate, failure.reason))

    def _load(self, candidate: Candidate) -> bool:
        """Load a candidate. False: the order was changed, because its engine only emulates the device, or its
        recorded time is of another engine version."""
        variant = candidate.variant
        self.runner = self.deadline.take_standby(variant.name) if self.deadline is not None else None
        if self.runner is not None:
            self.active = self._describe(variant, self.runner)
            return True
        if why := why_emulated(variant, self._options):
            self.load_order = policy.without(self.load_order, variant.name, why)
            return False
        engine = registry.engine(variant.target)
        if self._options.probe:
            self._loader.probe(variant, self._states.enter)  # before its engine is imported
        version = engine.engine_version()
        if self.local_times.get(variant.name, (0.0, version))[1] != version:
            del self.local_times[variant.name]
            self.load_order = rank_variants(self._bundle, self._options, self.local_times)
            return False
        self.runner = self._loader.open(variant, self._states.enter)
        self.active = self._describe(variant, self.runner)
        return True

    # --- changing ----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Start preparing, in the background, the variants that are built on the device."""
        failed, variants = self._health.failures, () if self._options.strict else self._bundle.variants
        out = {v.target for v in variants if v.name in failed and failed[v.name].missing}
        out.add(self.candidate.variant.target)
        for variant in background.variants_to_prepare(variants, out, self._options):
            if variant.name not in self.preparations.states():
                self.preparations.begin(variant.name, partial(self._loader.open, variant))

    def _switch_to_prepared(self) -> None:
        """Activate prepared variants that are faster."""
        if not self.preparations.any_done():
            return
        # Not the caller's feeds: if every variant fails on those, the prepared one is not at fault.
        golden = self._bundle.golden
        feeds = golden[0][0] if golden else {spec.name: spec.zeros() for spec in self._bundle.inputs}
        active = None if self._options.engine or self._options.variant else self.runner
        for name, runner, why in self.preparations.poll_finished(active, feeds):
            if name == self._active_name():  # activated meanwhile, from an engine that was built already
                background.close_quietly(runner)
                continue
            if runner is None:
                self._health.failed_loading(name, Failure(why), monotonic())
                self._update_fallbacks()
                continue
            candidate, self.load_order = policy.move_to_front(self.load_order, name)
            self._replace(candidate, runner, "its preparation finished")

    def _retry_cooled_down(self) -> None:
        """Retry cooled-down variants in the background; one that passes its checks becomes active again."""
        health, now_s = self._health, monotonic()
        for name, runner, why in self._retries.poll_finished(None, {}):
            failure = health.failures.get(name)
            if runner is None:
                if failure is not None:  # else it was retried at a request meanwhile, and is active
                    health.failed_running(name, failure._replace(reason=why), now_s)
                    self._update_fallbacks()
                continue
            health.recovered(name, now_s)
            returned = best_candidate(self.load_order, health.failures)
            if failure is not None and returned is not None and returned.variant.name == name:
                self._replace(returned, runner, f"it works again, after: {failure.reason}")
            else:
                background.close_quietly(runner)  # it is active already, or a better one is
        if not self._retries.waiting:
            candidate = policy.due_for_retry(self.load_order, health.cooldowns, self._active_name(), now_s)
            if candidate is not None and self._may_retry(candidate.variant.name):
                self._retries.begin(
                    candidate.variant.name, partial(self._loader.open_checked, candidate.variant)
                )

    def _may_retry(self, name: str) -> bool:
        hung = self._health.failures[name].stuck
        return not hung or self.deadline is None or self.deadline.may_retry_hung

    def _update_fallbacks(self) -> None:
        if self.runner is not None:
            self.fallbacks = policy.explain_fallbacks(self.load_order, self._health.failures, self.candidate)

    def _replace(self, candidate: Candidate, runner: Runner, reason: str) -> None:
        """A better variant replaces the active one."""
        self._record(policy.promotion(self.load_order, self.active.variant, candidate, reason))
        self.drop_runner()
        self._health.recovered(candidate.variant.name, monotonic())
        self.runner, self.active = runner, self._describe(candidate.variant, runner)
        self._activate(candidate)

    def _activate(self, candidate: Candidate) -> None:
        known = self.fallbacks
        self.candidate = candidate
        self.fallbacks = policy.explain_fallbacks(self.load_order, self._health.failures, candidate)
        self._record(*(fallback for fallback in self.fallbacks if fallback not in known))
        if self.deadline is not None:
            self.deadline.set_active(self.runner)
        self._states.enter("ready", candidate.variant.name)

    def _end_change(self) -> None:
        """After a request: load the standby, and note whether anything may change before the next one."""
        if self.deadline is not None and not self._options.strict:
            failures, active = self._health.failures, self._active_name()
            following = policy.next_standby(self.load_order, failures, active, self.deadline.hanging_variants)
            if following is None:
                self.deadline.drop_standby()
            else:
                variant = following.variant
                self.deadline.load_standby(variant.name, partial(self._loader.open, variant))
        cooling = policy.is_cooling(self.load_order, self._health.cooldowns, self._active_name())
        standby = self.deadline is not None and self.deadline.standby_pending
        self._changing = False
        self.changes_pending = bool(cooling or standby or self.preparations.waiting or self._retries.waiting)

    def _standby_failed(self, name: str, why: str) -> None:
        if name != self._active_name():
            self._health.failed_loading(name, Failure(why), monotonic())
        self._end_change()

    def _active_name(self) -> str | None:
        return self.active.variant if self.runner is not None else None

    def _describe(self, variant: Variant, runner: Runner) -> Active:
        version = registry.engine(variant.target).engine_version()
        return Active(variant.name, version, runner.device, runner.precision)

    def _record(self, *changes: Fallback) -> None:
        self.history = (*self.history, *changes)[-HISTORY_LIMIT:]

    # --- failing -----------------------------------------------------------------------------------------

    def _fail_running(self, problem: Exception) -> None:
        """The active variant failed at a request."""
        stuck = self.deadline is not None and self.deadline.note_if_hung(
            self.candidate.variant.name, self.runner
        )
        if stuck or not self._options.strict:
            self.drop_runner()
        self._refuse_fallback(self.candidate, problem)
        failure = Failure(reason_of(problem), stuck=stuck, blame=blame_of(problem))
        self._health.failed_running(self.candidate.variant.name, failure, monotonic())

    def _fail(self, candidate: Candidate, problem: Exception) -> None:
        """A variant did not load. Without its engine, no variant of its target can."""
        if isinstance(problem, (MissingDependency, ProfileError)):
            if self._options.strict:
                order, options = self.load_order, self._options
                raise strict_errors.engine_missing(order, candidate, options, problem) from None
            self._health.engine_missing(self.load_order, candidate.variant.target, problem, monotonic())
            return
        self._refuse_fallback(candidate, problem)
        failure = Failure(reason_of(problem), blame=blame_of(problem))
        self._health.failed_loading(candidate.variant.name, failure, monotonic())

    def _refuse_fallback(self, candidate: Candidate, problem: Exception) -> None:
        if self._options.strict:
            raise strict_errors.variant_failed(candidate, problem) from problem

    def drop_runner(self) -> None:
        """Close the active variant, if there is one."""
        runner, self.runner = self.runner, None
        if runner is not None and runner is not self._inherited:
            try:
                runner.close()
            except Exception as problem:  # it is no longer needed
                pass_on(problem)
                log().warning("%s did not close: %s", self.active.engine, problem)
