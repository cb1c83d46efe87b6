"""The chain of a session: requests with arrays, deadlines, engines built on the device, retries beside the
active variant. Not thread-safe: the Session holds a lock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from edgekit.errors import (
    EngineError,
    NonFiniteOutputError,
    NoVariantError,
    RejectedInputError,
    blame_of,
    reason_of,
)
from edgekit.runtime import background, local_timings
from edgekit.runtime.chain import Chain
from edgekit.runtime.fallback import policy
from edgekit.runtime.fallback.load_order import likely, opens_sooner, rank_variants
from edgekit.runtime.fallback.policy import PENDING, Cooldown, Failure, RankedVariant, best_candidate
from edgekit.runtime.loading.load_variant import VariantLoader
from edgekit.runtime.loading.output_checks import OutputChecks, error_of_inputs, non_finite_inputs
from edgekit.runtime.session_state import SessionOptions, States, log
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.deadline.deadline import Deadline
    from edgekit.target.contract import Runner


class SessionChain(Chain["Runner"]):
    """The variants of a session.

    Attributes:
        deadline: The session's, or None.
        changes_pending: Whether anything may change before the next request; if so, ``between_requests`` is
            called.
    """

    def __init__(
        self, bundle: Bundle, options: SessionOptions, states: States, deadline: Deadline | None = None
    ) -> None:
        super().__init__(bundle, options, states)
        self.changes_pending = False
        self.output_checks = OutputChecks(bundle.outputs, lambda: bundle.golden, bundle.shapes)
        self.preparations = background.Preparations()
        self._retries = background.Preparations()
        self.deadline = deadline
        self._loader = VariantLoader(bundle, options, self.output_checks, deadline)
        self._measurement: local_timings.VariantTiming | None = None
        for name in self._copies():
            self._health.failed_loading(name, PENDING)
        best: RankedVariant | None = None
        if self._is_free and deadline is None and (sooner := opens_sooner(self.load_order, options)):
            best = self.load_order.candidates[0]
            _, self.load_order = policy.move_to_front(self.load_order, sooner.variant.name)
        self._load_next()
        self._prepare()
        self._prepare_better(best)
        self._measure()
        self._end_change()
        if deadline is not None:
            while (failed := deadline.wait_for_standby()) is not None:
                self._standby_failed(*failed)

    # --- running -----------------------------------------------------------------------------------------

    def run_on_next(self, feeds: Mapping[str, Array], problem: Exception | None) -> dict[str, Array]:
        """Run on the next variant that works. Raises NoVariantError if all fail, EngineError if strict."""
        if problem is not None:
            self._raise_if_input_at_fault(problem, feeds)
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
                    self._raise_if_input_at_fault(problem, feeds)
                    self._fail_running(problem, rejected=self._rejects(feeds, problem))
                if self.runner is None:
                    self._load_next_or_retry(failures, cooldowns, tried)
                assert self.runner is not None
                try:
                    answered = self.runner.run(feeds)
                    self.output_checks.check(answered)
                except Exception as second:  # an engine may throw anything
                    pass_on(second)
                    problem = second
                else:
                    outputs = answered
            if deadline is not None:
                deadline.note_if_late(began_s)
            self._end_change()
            if self.history != history:
                log().warning("fell back: %s", self.history[-1])
            return outputs
        except (NonFiniteOutputError, RejectedInputError):  # the input's fault, or strict
            self._end_change()
            raise
        except NoVariantError as error:
            error.args = ("\n  ".join([str(error), *_causes(feeds)]),)
            error = self._no_variant(error, tried)
            self._health.restore(failures, cooldowns)
            self.history = history
            self.drop_runner()
            self._states.enter("loading")
            self._end_change()
            raise error from None
        except EngineError:
            self._end_change()
            raise

    def _raise_if_input_at_fault(self, problem: Exception, feeds: Mapping[str, Array]) -> None:
        """Raise the error of this request alone if its input is the cause. Every variant stays as it is."""
        name = self.candidate.variant.name
        if (error := error_of_inputs(name, problem, feeds)) is not None:
            raise error from None
        if not self._is_input_at_fault(problem, self._run_known):
            return
        explanation = "it works on other inputs, so this input is at fault"
        text = f"{name}: {problem}\n  {explanation}"
        if isinstance(problem, NonFiniteOutputError):
            raise NonFiniteOutputError(text) from None
        raise RejectedInputError("\n  ".join([text, *_causes(feeds)])) from None

    def _late_answer(
        self, feeds: Mapping[str, Array], problem: Exception, tried: set[str]
    ) -> tuple[dict[str, Array] | None, Exception]:
        """Return the first late result of the active variant or its standby, or None and the error."""
        if self.deadline is None or self._options.strict:
            return None, problem
        others = len(self.load_order.candidates) > 1
        result = self.deadline.late_answer(self.runner, problem, feeds, self.output_checks.check, others)
        if result.failed is not None:
            name, failure = result.failed
            tried.add(name)
            self._health.failed_running(name, failure)
        if result.standby:
            last, history = self.candidate.variant.name, self.history
            self._fail_running(result.problem)
            self._health.recovered(result.standby)
            candidate = next(c for c in self.load_order.candidates if c.variant.name == result.standby)
            self._load(candidate)
            self._activate(candidate)
            if self.history == history:  # the standby is the better variant
                self._record(policy.promotion(self.load_order, last, candidate, reason_of(result.problem)))
        return result.outputs, result.problem

    def between_requests(self) -> None:
        """Activate prepared variants and retry cooled-down ones, between two requests."""
        if self._changing:
            self._recover_from_interrupt()
        self._begin_change()
        self._rank_by_measurement()
        self._switch_to_prepared()
        self._retry_cooled_down()
        if self.deadline is not None and (failed := self.deadline.poll_standby()) is not None:
            self._standby_failed(*failed)
        self._end_change()

    def _begin_change(self) -> None:
        """Mark the chain as changing until ``_end_change``. If an interrupt prevents that, the next request
        detects it and recovers."""
        self._changing = self.changes_pending = True

    def _recover_from_interrupt(self) -> None:
        """Unload everything after an interrupt, and make the health records consistent again."""
        self._retries.cancel()
        if self.deadline is not None:
            self.deadline.drop_standby()
        self.drop_runner()
        self._health.repair()
        self._prepare()

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings, e.g. an unusable cache or a hung variant."""
        return self._loader.notes + (() if self.deadline is None else self.deadline.notes)

    def forked(self) -> None:
        """Drop background work in a forked process."""
        self.preparations, self._retries = background.Preparations(), background.Preparations()
        self._measurement = None
        self.changes_pending = True

    def close(self) -> None:
        self.preparations.cancel()
        self._retries.cancel()
        if self._measurement is not None:
            self._measurement.cancel()
        if self.deadline is not None:
            self.deadline.drop_standby()
        self.drop_runner()
        self.changes_pending = False

    # --- loading -----------------------------------------------------------------------------------------

    def _take_standby(self, variant: Variant) -> Runner | None:
        return None if self.deadline is None else self.deadline.take_standby(variant.name)

    def _admit(self, variant: Variant) -> None:
        if self._options.probe:
            self._loader.probe(variant, self._states.enter)

    def _open(self, variant: Variant) -> Runner:
        return self._loader.open(variant, self._states.enter)

    def _known_feeds(self) -> Mapping[str, Array]:
        golden = self._bundle.golden
        return golden[0][0] if golden else {spec.name: spec.zeros() for spec in self._bundle.inputs}

    def _may_be_the_input(self, problem: Exception) -> bool:
        if self._options.strict or blame_of(problem) == "machine":
            return False
        return self.deadline is None or not self.deadline.timed_out(problem)

    def _rejects(self, feeds: Mapping[str, Array], problem: Exception) -> bool:
        """Return whether the active variant, which failed on these feeds, fails on them again and computes a
        known input."""
        if self.runner is None or not self._may_be_the_input(problem):
            return False
        try:
            self._run_known()
        except Exception as wrong:  # an engine may throw anything
            pass_on(wrong)
            return False
        try:
            self.output_checks.check(self.runner.run(feeds))
        except Exception as second:
            pass_on(second)
            return self._may_be_the_input(second)
        return False

    def _run_known(self) -> None:
        """Run the loaded variant on an input that it can compute. Raises what is wrong."""
        assert self.runner is not None
        self.output_checks.check(self.runner.run(self._known_feeds()))

    def _load_next_or_retry(
        self, failures: Mapping[str, Failure], cooldowns: Mapping[str, Cooldown], tried: set[str]
    ) -> None:
        """``_load_next``; if nothing is left, retry what failed at earlier requests, once a request."""
        try:
            self._load_next()
        except NoVariantError:
            hanging = [] if self.deadline is None else self.deadline.hanging_variants
            retried = policy.retry_candidates(failures, cooldowns, tried, hanging)
            if not retried:
                raise
            tried.update(retried)
            for name in retried:
                self._health.recovered(name)
            last = self.candidate.variant.name
            self._load_next()
            if (failure := self._health.failures.get(last)) is not None:
                self._record(policy.promotion(self.load_order, last, self.candidate, failure.reason))

    # --- changing ----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        failed, variants = self._health.failures, () if self._options.strict else self._bundle.variants
        out = {v.target for v in variants if v.name in failed and failed[v.name].missing}
        out.add(self.candidate.variant.target)
        for variant in background.variants_to_prepare(variants, out, self._options):
            if variant.name not in self.preparations.states():
                self.preparations.begin(variant.name, partial(self._loader.open, variant))
        for name, variant in self._copies().items():  # one after the other: each would slow down the others
            if failed.get(name) is PENDING and not self.preparations.waiting:
                self.preparations.begin(name, partial(self._loader.open, variant), self._known_feeds())

    @property
    def _is_free(self) -> bool:
        """Return whether the variant is the session's choice, among those that run on the CPU."""
        options = self._options
        return not (options.engine or options.variant or options.strict or options.device != "cpu")

    def _prepare_better(self, best: RankedVariant | None) -> None:
        """Open the best variant in the background. It becomes active once it passes the golden vectors."""
        if best is None or best.variant.name in (self._active_name(), *self.preparations.waiting):
            return
        if best.variant.name not in self._health.failures and self.deadline is None:
            opening = partial(self._loader.open_checked, best.variant)
            self.preparations.begin(best.variant.name, opening, known_faster=True)

    def _measure(self) -> None:
        """Measure the likely variants in the background, unless that has been done on this machine."""
        names = [candidate.variant.name for candidate in likely(self.load_order)]
        if not (self._is_free and self._options.measure and len(names) > 1) or self.local_times:
            return
        if not local_timings.why_unmeasured(self._bundle):
            self._measurement = local_timings.VariantTiming(self._bundle, names, self._note_change)

    def _note_change(self) -> None:
        self.changes_pending = True

    def _rank_by_measurement(self) -> None:
        if self._measurement is None or not self._measurement.done:
            return
        self._measurement = None
        self.local_times = local_timings.recalled(self._bundle)
        if self.local_times:
            self.load_order = rank_variants(self._bundle, self._options, self.local_times)
            self._prepare_better(best_candidate(self.load_order, self._health.failures))
            self._update_fallbacks()

    @property
    def reason(self) -> str:
        """Return why the active variant runs."""
        name, options = self.candidate.variant.name, self._options
        if self.fallbacks:
            return f"{self.fallbacks[-1].from_} does not run: {self.fallbacks[-1].reason}"
        if name == options.variant or self.candidate.variant.target == options.engine:
            return "it was requested"
        if waiting := list(self.preparations.waiting):
            return f"{', '.join(waiting)} is being prepared"
        if name in self.local_times:
            row = sorted((time_ms, other) for other, (time_ms, _) in self.local_times.items())
            listed = ", ".join(f"{other} {time_ms:.3g}" for time_ms, other in row)
            return f"the fastest here within 3 %, in ms of CPU time on one thread: {listed}"
        if self._measurement is not None:
            return "the fastest at the build; this machine is being measured"
        unmeasured = local_timings.why_unmeasured(self._bundle) if options.measure else "measure is off"
        return "the first of the bundle's order" + (f"; {unmeasured}" if unmeasured else "")

    def _copies(self) -> dict[str, Variant]:
        """Return the accelerated copies to prepare. A strict session that asks for one loads it at once."""
        if self._options.device == "cpu" or (self._options.strict and self._options.device != "auto"):
            return {}
        return {
            c.variant.name: c.variant
            for c in self.load_order.candidates
            if registry.ACCELERATOR in c.variant.options
        }

    def _switch_to_prepared(self) -> None:
        if not self.preparations.any_done():
            return
        # Not the caller's feeds: if every variant fails on those, the prepared one is not at fault.
        feeds = self._known_feeds()
        options = self._options
        forced = bool(options.engine or options.variant)
        if copies := self._copies():
            forced = options.device != "auto" and self._active_name() not in copies
        for name, runner, reason in self.preparations.poll_finished(None if forced else self.runner, feeds):
            if name == self._active_name():  # activated meanwhile, from an engine that was built already
                background.close_quietly(runner)
                continue
            if runner is None:
                self._health.failed_loading(name, Failure(reason))
                self._update_fallbacks()
                continue
            candidate, self.load_order = policy.move_to_front(self.load_order, name)
            self._replace(candidate, runner, "its preparation finished")
        if copies:
            self._prepare()

    def _retry_cooled_down(self) -> None:
        health = self._health
        for name, runner, reason in self._retries.poll_finished(None, {}):
            failure = health.failures.get(name)
            if runner is None:
                if failure is not None:  # else it was retried at a request meanwhile, and is active
                    health.failed_running(name, failure._replace(reason=reason))
                    self._update_fallbacks()
                continue
            health.recovered(name)
            returned = best_candidate(self.load_order, health.failures)
            if failure is not None and returned is not None and returned.variant.name == name:
                self._replace(returned, runner, f"it works again, after: {failure.reason}")
            else:
                background.close_quietly(runner)  # it is active already, or a better one is
        if not self._retries.waiting:
            candidate = health.due_for_retry(self.load_order, self._active_name())
            if candidate is not None and self._may_retry(candidate.variant.name):
                self._retries.begin(
                    candidate.variant.name, partial(self._loader.open_checked, candidate.variant)
                )

    def _may_retry(self, name: str) -> bool:
        hung = self._health.failures[name].still_running
        return not hung or self.deadline is None or self.deadline.may_retry_hung

    def _replace(self, candidate: RankedVariant, runner: Runner, reason: str) -> None:
        self._record(policy.promotion(self.load_order, self.active.variant, candidate, reason))
        self.drop_runner()
        self._health.recovered(candidate.variant.name)
        self.runner, self.active = runner, self._describe(candidate.variant, runner)
        self._activate(candidate)

    def _activate(self, candidate: RankedVariant) -> None:
        if self.deadline is not None:
            self.deadline.set_active(self.runner)
        super()._activate(candidate)

    def _fail_running(self, problem: Exception, timed_out: bool = False, rejected: bool = False) -> None:
        name, deadline = self.candidate.variant.name, self.deadline
        timed_out = deadline is not None and deadline.note_if_hung(name, self.runner)
        self._loader.forget(self.candidate.variant)
        super()._fail_running(problem, timed_out, rejected)

    def _end_change(self) -> None:
        """Load the standby after a request, and record whether anything may change before the next one."""
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
        if self._measurement is not None and self._measurement.done:  # after the line above: else it is lost
            self.changes_pending = True

    def _standby_failed(self, name: str, reason: str) -> None:
        if name != self._active_name():
            self._health.failed_loading(name, Failure(reason))
        self._end_change()


def _causes(feeds: Mapping[str, Array]) -> list[str]:
    return [f"{line}, which may be the cause" for line in non_finite_inputs(feeds)]
