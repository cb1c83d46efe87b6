"""Failures and cooldowns of a session's variants. Nothing is opened or closed here.

Invariant: a variant that failed while running has a cooldown. As long as it is unusable it also has a
failure, and its cooldown no ``recovered_s``. A variant without a failure is usable.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.errors import MissingDependency
from edgekit.runtime.fallback.policy import Cooldown, Failure, LoadOrder, after_failure


class VariantHealth:
    """Failures and cooldowns by variant name. Every ``now_s`` is on the same clock."""

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}
        self.cooldowns: dict[str, Cooldown] = {}

    def failed_loading(self, name: str, failure: Failure, now_s: float) -> None:
        """A variant does not load, cannot be the standby, or is slower. If it had recovered from an earlier
        failure, its cooldown starts again."""
        cooldown = self.cooldowns.get(name)
        if cooldown is not None and cooldown.recovered_s is not None:
            self.cooldowns[name] = after_failure(cooldown, now_s)
        self.failures[name] = failure

    def engine_missing(self, order: LoadOrder, target: str, problem: Exception, now_s: float) -> None:
        """No variant of a target loads: its engine is not installed, or does not know its profile."""
        install = f" ({problem.install})" if isinstance(problem, MissingDependency) else ""
        failure = Failure(f"{target} is not installed{install}", missing=True)
        for candidate in order.candidates:
            if candidate.variant.target == target:
                self.failed_loading(candidate.variant.name, failure, now_s)

    def failed_running(self, name: str, failure: Failure, now_s: float) -> None:
        """It failed at a request, or at a retry: it may be retried after a cooldown."""
        self.cooldowns[name] = after_failure(self.cooldowns.get(name), now_s)
        self.failures[name] = failure

    def recovered(self, name: str, now_s: float) -> None:
        """It is usable from now on."""
        self.failures.pop(name, None)
        cooldown = self.cooldowns.get(name)
        if cooldown is not None and cooldown.recovered_s is None:
            self.cooldowns[name] = cooldown._replace(recovered_s=now_s)

    def restore(self, failures: Mapping[str, Failure], cooldowns: Mapping[str, Cooldown]) -> None:
        """Back to the state before a request on which every variant failed: the input is at fault. Variants
        that hung meanwhile stay failed."""
        stuck = {name: failure for name, failure in self.failures.items() if failure.stuck}
        self.cooldowns = {
            **cooldowns,
            **{name: self.cooldowns[name] for name in stuck if name in self.cooldowns},
        }
        self.failures = {**failures, **stuck}

    def repair(self, now_s: float) -> None:
        """Restore the invariant after an interrupt: a failure whose cooldown says recovered starts a new
        cooldown, and a cooldown without a failure has recovered."""
        for name, cooldown in list(self.cooldowns.items()):
            if name not in self.failures:
                self.recovered(name, now_s)
            elif cooldown.recovered_s is not None:
                self.cooldowns[name] = after_failure(cooldown, now_s)
