"""Which variants of a session failed, and which of them cool down. Nothing is opened or closed here.

A variant that failed while it ran has a trial. As long as it must not serve it has a failure too, and its
trial no ``back_s``; one without a failure may serve. Whatever happens in whatever order, this stays so.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.runtime.fallback.policy import Cooldown, Failure, after_failure


class VariantHealth:
    """The failures and trials by variant name. ``now_s`` is always on one clock of the caller's."""

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}
        self.trials: dict[str, Cooldown] = {}

    def fails(self, name: str, failure: Failure, now_s: float) -> None:
        """A variant does not load, cannot stand by, or is slower. One that served again after it had failed
        cools down again."""
        trial = self.trials.get(name)
        if trial is not None and trial.back_s is not None:
            self.trials[name] = after_failure(trial, now_s)
        self.failures[name] = failure

    def fails_running(self, name: str, failure: Failure, now_s: float) -> None:
        """It failed at a request, or in its trial: it may be tried again after a cool-down."""
        self.trials[name] = after_failure(self.trials.get(name), now_s)
        self.failures[name] = failure

    def may_serve(self, name: str, now_s: float) -> None:
        """Whatever it did, it may serve from now on."""
        self.failures.pop(name, None)
        trial = self.trials.get(name)
        if trial is not None and trial.back_s is None:
            self.trials[name] = trial._replace(back_s=now_s)

    def back_to(self, failures: Mapping[str, Failure], trials: Mapping[str, Cooldown]) -> None:
        """What was known before a request that no variant answered: its input is to blame. Who hangs since
        then hangs."""
        stuck = {name: failure for name, failure in self.failures.items() if failure.stuck}
        self.trials = {**trials, **{name: self.trials[name] for name in stuck if name in self.trials}}
        self.failures = {**failures, **stuck}

    def mend(self, now_s: float) -> None:
        """After an interrupt between two steps: a failure without its trial's cool-down begins one, and a
        trial without its failure is over."""
        for name, trial in list(self.trials.items()):
            if name not in self.failures:
                self.may_serve(name, now_s)
            elif trial.back_s is not None:
                self.trials[name] = after_failure(trial, now_s)
