"""The variants of one bundle: the best one that works is loaded, and the next one when it fails.

fallback.py decides; this opens, runs and closes. It is not safe between threads: a Session holds a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from edgekit.errors import EngineError, MissingDependency, NoVariantError, ProfileError, reason_of
from edgekit.runtime.fallback import strict_errors
from edgekit.runtime.fallback.load_order import rank_variants
from edgekit.runtime.fallback.policy import (
    Candidate,
    Cooldown,
    Failure,
    Fallback,
    blame_of,
    due,
    first,
    hops,
    is_cooling,
    nothing_works,
    put_first,
    second_chance,
    taken_over,
)
from edgekit.runtime.fallback.variant_health import VariantHealth
from edgekit.runtime.loading import background, local_timings
from edgekit.runtime.loading.load_variant import SessionOptions, VariantLoader
from edgekit.runtime.loading.output_checks import OutputChecks, doubtful
from edgekit.runtime.session_state import Active, States, log
from edgekit.target import registry
from edgekit.target.contract import Runner
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.deadline.deadline import Deadline

HISTORY_LIMIT = 100
"""Hops that are remembered; a variant that comes and goes for months must not fill the memory."""


class Chain:
    """The variants in their order, and the one that is loaded.

    Attributes:
        runner: The loaded variant; None while there is none.
        active: What ``runner`` is, or was.
        awaiting: Whether something may change between two requests; then ``between`` is called.
        fallbacks: How the active variant came to serve, each hop explained.
        history: Every change of the variant that serves, the newest last.
    """

    def __init__(
        self, bundle: Bundle, wishes: SessionOptions, states: States, deadline: Deadline | None = None
    ) -> None:
        self.runner: Runner | None = None
        self.active: Active
        self.awaiting = False
        self.fallbacks: tuple[Fallback, ...] = ()
        self.history: tuple[Fallback, ...] = ()
        self.soundness = OutputChecks(bundle.outputs, lambda: bundle.golden)
        self.times_here = local_timings.recalled(bundle, wishes.threads)
        self.preparations = background.Preparations()
        self._returning = background.Preparations()
        self._bundle, self._wishes, self._states, self._deadline = bundle, wishes, states, deadline
        self._opening = VariantLoader(bundle, wishes, self.soundness, deadline)
        self.plan = rank_variants(self._bundle, self._wishes.engine, self.times_here)
        self._standing = VariantHealth()
        self._halfway = False
        self._inherited: Runner | None = None
        self.candidate: Candidate
        self._settle()
        self._prepare()
        self._look_ahead()
        if deadline is not None:
            while (failed := deadline.wait()) is not None:
                self._cannot_stand_by(*failed)

    # --- answering ---------------------------------------------------------------------------------------

    def run_on_next(self, feeds: Mapping[str, Array], problem: Exception | None) -> dict[str, Array]:
        """Run on the next variant that works, after ``problem`` of the active one.

        Raises:
            NoVariantError: every variant failed on this input; the next request begins where this one did.
            EngineError: strict, and the variant failed.
        """
        self._begins()
        failures, trials = dict(self._standing.failures), dict(self._standing.trials)
        history = self.history
        tried: set[str] = set()
        try:
            while True:
                if problem is not None:
                    tried.add(self.candidate.variant.name)
                    self._fail_running(problem)
                if self.runner is None:
                    self._settle_again(failures, trials, tried)
                assert self.runner is not None
                try:
                    answers = self.runner.run(feeds)
                    self.soundness.check(answers)
                except Exception as again:  # an engine may throw anything
                    problem = again
                    continue
                self._look_ahead()
                if self.history != history:
                    log().warning("fell back: %s", self.history[-1])
                return answers
        except NoVariantError as error:
            error.args = ("\n  ".join([str(error), *doubtful(feeds)]),)
            self._standing.back_to(failures, trials)
            self.history = history
            self.drop_runner()
            self._states.enter("loading")
            self._look_ahead()
            raise
        except EngineError:
            self._look_ahead()
            raise

    def between(self) -> None:
        """Between two requests: what is ready now serves from here on; what cooled down is tried again."""
        if self._halfway:
            self._start_over()
        self._begins()
        self._take_over()
        self._take_back()
        if self._deadline is not None and (failed := self._deadline.look()) is not None:
            self._cannot_stand_by(*failed)
        self._look_ahead()

    def _begins(self) -> None:
        """What follows changes the variant that serves, and ends with ``_look_ahead``. What does not come to
        its end, for Ctrl-C, is found by the next request."""
        self._halfway = self.awaiting = True

    def _start_over(self) -> None:
        """After an interrupt: nothing is loaded, and what is known of the variants fits together again."""
        self._returning.give_up()
        if self._deadline is not None:
            self._deadline.give_up()
        self.drop_runner()
        self._standing.mend(monotonic())
        self._prepare()

    @property
    def notes(self) -> tuple[str, ...]:
        """What else is worth knowing."""
        return self._opening.notes + (() if self._deadline is None else self._deadline.notes)

    @property
    def hanging(self) -> int:
        """Runs that were left behind and have not come back."""
        return 0 if self._deadline is None else self._deadline.hanging

    @property
    def watches(self) -> bool:
        """Whether runs have a deadline, and a thread that keeps it."""
        return self._deadline is not None

    def forked(self) -> Runner | None:
        """In a forked process: what is on its way never comes, for its threads are not here. What is loaded
        is never closed: an engine may wait for threads of its own. Returns it."""
        self.preparations, self._returning = background.Preparations(), background.Preparations()
        self._inherited = self.runner
        self.awaiting = True
        return self.runner

    def close(self) -> None:
        """Close everything that is loaded or on its way."""
        self.preparations.give_up()
        self._returning.give_up()
        if self._deadline is not None:
            self._deadline.give_up()
        self.drop_runner()
        self.awaiting = False

    # --- choosing ----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Load the best candidate that has not failed; its hops are recorded."""
        if self._wishes.strict and self.plan.asked_in_vain is not None:
            raise strict_errors.asked_in_vain(self.plan, self._wishes.engine)
        while True:
            candidate = first(self.plan, self._standing.failures)
            if candidate is None:
                raise nothing_works(self._bundle.name, self.plan, self._standing.failures)
            try:
                if not self._load(candidate):
                    continue
            except (MissingDependency, ProfileError) as problem:
                self._fail_missing(candidate, problem)
            except Exception as problem:  # an engine may throw anything
                self._fail(candidate, problem)
            else:
                self._now_serves(candidate)
                return

    def _settle_again(
        self, failures: Mapping[str, Failure], trials: Mapping[str, Cooldown], tried: set[str]
    ) -> None:
        """Settle; when nothing is left, on what failed at earlier requests only, each once a request."""
        try:
            self._settle()
        except NoVariantError:
            again = second_chance(failures, trials, tried)
            if not again:
                raise
            tried.update(again)
            for name in again:
                self._standing.may_serve(name, monotonic())
            last = self.candidate.variant.name
            self._settle()
            if (failure := self._standing.failures.get(last)) is not None:
                self._remember(taken_over(self.plan, last, self.candidate, failure.reason))

    def _load(self, candidate: Candidate) -> bool:
        """Load a candidate. False: its recorded time was of another engine version, and the order is new."""
        variant = candidate.variant
        self.runner = self._deadline.take(variant.name) if self._deadline is not None else None
        if self.runner is not None:
            self.active = self._described(variant, self.runner)
            return True
        engine = registry.engine(variant.target)
        if self._wishes.probe:
            self._opening.probe(variant, self._states.enter)  # before its engine is so much as imported
        version = engine.engine_version()
        if self.times_here.get(variant.name, (0.0, version))[1] != version:
            del self.times_here[variant.name]
            self.plan = rank_variants(self._bundle, self._wishes.engine, self.times_here)
            return False
        self.runner = self._opening.open(variant, self._states.enter)
        self.active = self._described(variant, self.runner)
        return True

    # --- changing ----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begin to make ready, in the background, what is made ready on the device."""
        failed, variants = self._standing.failures, () if self._wishes.strict else self._bundle.variants
        out = {v.target for v in variants if v.name in failed and failed[v.name].missing}
        out.add(self.candidate.variant.target)
        for variant in background.worth_it(variants, out, self._wishes.engine):
            if variant.name not in self.preparations.states():
                self.preparations.begin(variant.name, partial(self._opening.open, variant))

    def _take_over(self) -> None:
        """What was prepared and is faster serves from here on."""
        if not self.preparations.any_done():
            return
        # Not what a caller gives: where every variant fails on that, what was prepared is not to blame.
        golden = self._bundle.golden
        feeds = golden[0][0] if golden else {spec.name: spec.zeros() for spec in self._bundle.inputs}
        active = None if self._wishes.engine else self.runner
        for name, runner, why in self.preparations.settled(active, feeds):
            if name == self._serving():  # it came to serve meanwhile, built already
                background.closed(runner)
                continue
            if runner is None:
                self._standing.fails(name, Failure(why), monotonic())
                self._explain()
                continue
            candidate, self.plan = put_first(self.plan, name)
            self._replace(candidate, runner, "it is ready now")

    def _take_back(self) -> None:
        """What failed and cooled down is tried in the background, and serves again if it is sound."""
        standing, now_s = self._standing, monotonic()
        for name, runner, why in self._returning.settled(None, {}):
            failure = standing.failures.get(name)
            if runner is None:
                if failure is not None:  # else it came to serve meanwhile, as the last that was left
                    standing.fails_running(name, failure._replace(reason=why), now_s)
                    self._explain()
                continue
            standing.may_serve(name, now_s)
            returned = first(self.plan, standing.failures)
            if failure is not None and returned is not None and returned.variant.name == name:
                self._replace(returned, runner, f"it works again, after: {failure.reason}")
            else:
                background.closed(runner)  # meanwhile it serves already, or a better one does
        if not self._returning.waiting:
            candidate = due(self.plan, standing.trials, self._serving(), now_s)
            if candidate is not None and self._may_return(candidate.variant.name):
                self._returning.begin(
                    candidate.variant.name, partial(self._opening.open_proven, candidate.variant)
                )

    def _may_return(self, name: str) -> bool:
        hung = self._standing.failures[name].stuck
        return not hung or self._deadline is None or self._deadline.may_hang_again

    def _explain(self) -> None:
        if self.runner is not None:
            self.fallbacks = hops(self.plan, self._standing.failures, self.candidate)

    def _replace(self, candidate: Candidate, runner: Runner, reason: str) -> None:
        """A better variant serves instead of the active one."""
        self._remember(taken_over(self.plan, self.active.variant, candidate, reason))
        self.drop_runner()
        self._standing.may_serve(candidate.variant.name, monotonic())
        self.runner, self.active = runner, self._described(candidate.variant, runner)
        self._now_serves(candidate)

    def _now_serves(self, candidate: Candidate) -> None:
        known = self.fallbacks
        self.candidate = candidate
        self.fallbacks = hops(self.plan, self._standing.failures, candidate)
        self._remember(*(hop for hop in self.fallbacks if hop not in known))
        if self._deadline is not None:
            self._deadline.serves(self.runner)
        self._states.enter("ready", candidate.variant.name)

    def _look_ahead(self) -> None:
        """After a request: have the next variant stand by; may anything change before the next request?"""
        if self._deadline is not None and not self._wishes.strict:
            serving = {self.candidate.variant.name: Failure("it serves")} if self.runner is not None else {}
            following = first(self.plan, {**self._standing.failures, **serving})
            if following is not None:
                self._deadline.stand_by(
                    following.variant.name, partial(self._opening.open, following.variant)
                )
            else:
                self._deadline.give_up()
        cooling = is_cooling(self.plan, self._standing.trials, self._serving())
        standby = self._deadline is not None and self._deadline.awaiting
        self._halfway = False
        self.awaiting = bool(cooling or standby or self.preparations.waiting or self._returning.waiting)

    def _cannot_stand_by(self, name: str, why: str) -> None:
        if name != self._serving():
            self._standing.fails(name, Failure(why), monotonic())
        self._look_ahead()

    def _serving(self) -> str | None:
        return self.active.variant if self.runner is not None else None

    def _described(self, variant: Variant, runner: Runner) -> Active:
        version = registry.engine(variant.target).engine_version()
        return Active(variant.name, version, runner.device, runner.precision)

    def _remember(self, *changes: Fallback) -> None:
        self.history = (*self.history, *changes)[-HISTORY_LIMIT:]

    # --- failing -----------------------------------------------------------------------------------------

    def _fail_running(self, problem: Exception) -> None:
        """The active variant failed at a request."""
        stuck = self._deadline is not None and self._deadline.left_behind(
            self.candidate.variant.name, self.runner
        )
        if stuck or not self._wishes.strict:
            self.drop_runner()
        self._refuse_fallback(self.candidate, problem)
        failure = Failure(reason_of(problem), stuck=stuck, blame=blame_of(problem))
        self._standing.fails_running(self.candidate.variant.name, failure, monotonic())

    def _fail(self, candidate: Candidate, problem: Exception) -> None:
        """A variant did not load."""
        self._refuse_fallback(candidate, problem)
        failure = Failure(reason_of(problem), blame=blame_of(problem))
        self._standing.fails(candidate.variant.name, failure, monotonic())

    def _refuse_fallback(self, candidate: Candidate, problem: Exception) -> None:
        if self._wishes.strict:
            reason = f"{candidate.variant.name} does not run: {reason_of(problem)}"
            raise EngineError(f"{reason}; strict allows no fallback") from problem

    def _fail_missing(self, candidate: Candidate, problem: MissingDependency | ProfileError) -> None:
        """No variant of a missing engine can be loaded."""
        missing = candidate.variant.target
        if self._wishes.strict:
            raise strict_errors.engine_missing(self.plan, candidate, self._wishes.engine, problem) from None
        install = f" ({problem.install})" if isinstance(problem, MissingDependency) else ""
        for other in self.plan.candidates:
            if other.variant.target == missing:
                why = Failure(f"{missing} is not installed{install}", missing=True)
                self._standing.fails(other.variant.name, why, monotonic())

    def drop_runner(self) -> None:
        """Close the active variant, if there is one."""
        runner, self.runner = self.runner, None
        if runner is not None and runner is not self._inherited:
            try:
                runner.close()
            except Exception as problem:  # it is not needed any more, whatever it says
                log().warning("%s did not close: %s", self.active.engine, problem)
