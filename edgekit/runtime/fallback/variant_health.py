"""Failures and cooldowns of a session's variants. Nothing is opened or closed here.

Invariant: a variant that failed while running has a cooldown. As long as it is unusable it also has a
failure, and its cooldown no ``recovered_s``. A variant without a failure is usable.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

from edgekit.errors import MissingDependency
from edgekit.runtime.fallback.policy import (
    Cooldown,
    Failure,
    LoadOrder,
    RankedVariant,
    after_failure,
    due_for_retry,
)


class VariantHealth:
    """Failures and cooldowns by variant name.

    Attributes:
        bad_input: Backoff since the last input that no variant could compute. None means there was none.
    """

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}
        self.cooldowns: dict[str, Cooldown] = {}
        self.bad_input: Cooldown | None = None

    def failed_loading(self, name: str, failure: Failure) -> None:
        """Record that a variant does not load, cannot be the standby, or is slower. If it had recovered from
        an earlier failure, its cooldown starts again."""
        cooldown = self.cooldowns.get(name)
        if cooldown is not None and cooldown.recovered_s is not None:
            self.cooldowns[name] = after_failure(cooldown, monotonic())
        self.failures[name] = failure

    def engine_missing(self, order: LoadOrder, target: str, problem: Exception) -> None:
        """Mark a target's variants as failed: its engine is not installed, or does not know its profile."""
        install = f" ({problem.install})" if isinstance(problem, MissingDependency) else ""
        failure = Failure(f"{target} is not installed{install}", missing=True)
        for candidate in order.candidates:
            if candidate.variant.target == target:
                self.failed_loading(candidate.variant.name, failure)

    def failed_running(self, name: str, failure: Failure) -> None:
        """Record a failure at a request or at a retry. The variant may be retried after a cooldown."""
        self.cooldowns[name] = after_failure(self.cooldowns.get(name), monotonic())
        self.failures[name] = failure

    def recovered(self, name: str) -> None:
        """Record that a variant is usable again."""
        self.failures.pop(name, None)
        cooldown = self.cooldowns.get(name)
        if cooldown is not None and cooldown.recovered_s is None:
            self.cooldowns[name] = cooldown._replace(recovered_s=monotonic())

    def due_for_retry(self, order: LoadOrder, active: str | None) -> RankedVariant | None:
        """Return the best variant that ranks before the active one and whose cooldown is over, or None."""
        return due_for_retry(order, self.cooldowns, active, monotonic())

    def input_failed(self) -> None:
        """Record an input that no variant could compute. This begins an interval, twice as long as the last
        one: such inputs then unload no variant that still computes a known input."""
        began = after_failure(self.bad_input, monotonic())
        self.bad_input = began._replace(recovered_s=began.until_s)

    @property
    def expects_bad_inputs(self) -> bool:
        """Return whether the interval of ``input_failed`` is running."""
        return self.bad_input is not None and monotonic() < self.bad_input.until_s

    def restore(self, failures: Mapping[str, Failure], cooldowns: Mapping[str, Cooldown]) -> None:
        """Restore the state before a request on which every variant failed: the input is at fault. Variants
        that hung meanwhile stay failed."""
        hung = {name: failure for name, failure in self.failures.items() if failure.still_running}
        self.cooldowns = {
            **cooldowns,
            **{name: self.cooldowns[name] for name in hung if name in self.cooldowns},
        }
        self.failures = {**failures, **hung}

    def repair(self) -> None:
        """Restore the invariant after an interrupt: a failure whose cooldown says recovered starts a new
        cooldown, and a cooldown without a failure has recovered."""
        for name, cooldown in list(self.cooldowns.items()):
            if name not in self.failures:
                self.recovered(name)
            elif cooldown.recovered_s is not None:
                self.cooldowns[name] = after_failure(cooldown, monotonic())
