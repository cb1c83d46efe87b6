"""A second loaded copy of a variant next to a session: for another worker or a faster variant.

    replica = Replica(session, "ort-fp32", threads=1)
    replica.run(feeds)        # does not take the session's lock

If it fails, the session runs the request, with its usual fallbacks. The replica is loaded again in the
background after a cooldown, as a variant of a session is, and used once it passes the golden vectors. Where
the session has a deadline, a replica that hangs is abandoned early enough for the session to answer within
it; it is not loaded again before that run has returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from edgekit.errors import UsageError, reason_of
from edgekit.runtime.background import Preparation
from edgekit.runtime.deadline.watchdog import WatchedRunner, cutoff_s
from edgekit.runtime.fallback.policy import Cooldown, after_failure
from edgekit.runtime.loading import golden_check, unpacked_files
from edgekit.runtime.loading.load_variant import open_files
from edgekit.runtime.loading.output_checks import OutputChecks, error_of_inputs
from edgekit.system.interrupts import pass_on
from edgekit.target.tensor_checks import fitted
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.predictor import SessionProtocol
    from edgekit.target.contract import Runner


class Replica:
    """One loaded variant. One call at a time, as with any runner.

    Attributes:
        failed: Why the session is used instead; "" while it is not.

    Raises:
        UsageError: there is no such variant, it has no files, or the session is closed.
        MissingDependency: its engine is not installed.
        EngineError: it did not load, or, if the session has a deadline, it hangs.
    """

    def __init__(self, session: SessionProtocol, variant: str, threads: int) -> None:
        selected = variant_of(session, variant)
        active = session.runner
        bundle = session.bundle
        self.variant = selected
        self.failed = ""
        self._session = session
        self._checks = OutputChecks(session.outputs, lambda: bundle.golden, bundle.shapes)
        self._threads = threads
        self._limit = active if isinstance(active, WatchedRunner) else None
        self._cooldown: Cooldown | None = None
        self._retry: Preparation | None = None
        self._hung: WatchedRunner | None = None
        self._runner: Runner | None = self._open()

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run like ``Session.run``, on this replica if it works."""
        if self._runner is None and self._cooldown is not None:
            self._retry_cooled_down()
        runner = self._runner
        if runner is None:
            return self._session.run(feeds)
        fitting = fitted(feeds, self._session.bundle.shapes)
        try:
            outputs = runner.run(fitting)
            self._checks.check(outputs)
        except Exception as problem:  # an engine may throw anything
            pass_on(problem)
            if (error := error_of_inputs(self.variant.name, problem, fitting)) is not None:
                raise error from None
            self._hung = runner if isinstance(runner, WatchedRunner) else None
            self._runner = None
            runner.close()
            self._fail(reason_of(problem))
            return self._session.run(feeds)
        return outputs

    def close(self) -> None:
        """Free the engine; from then on the session runs all requests. Closing twice is fine."""
        self._cooldown = None
        retry, self._retry = self._retry, None
        if retry is not None:
            retry.cancel()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _open(self) -> Runner:
        session, variant = self._session, self.variant
        files = unpacked_files.unpack(session.bundle, variant)
        opened = partial(
            open_files, session.bundle, variant, files, variant.options, self._threads, self._checks
        )
        return opened() if self._limit is None else _watched(session, self._limit, opened)

    def _open_checked(self) -> Runner:
        runner, bundle = self._open(), self._session.bundle
        try:
            limits_db = golden_check.limits_db(self.variant, [spec.name for spec in self._session.outputs])
            golden = bundle.golden_of(self.variant)
            checks = OutputChecks(self._session.outputs, golden, bundle.shapes)
            golden_check.check_golden(runner, golden, checks, limits_db)
        except BaseException:
            runner.close()
            raise
        return runner

    def _fail(self, reason: str) -> None:
        self.failed = reason
        self._cooldown = after_failure(self._cooldown, monotonic())

    def _retry_cooled_down(self) -> None:
        """Begin to load it again once its cooldown is over; use it once it is loaded and checked."""
        assert self._cooldown is not None
        if self._retry is None:
            is_hung = self._hung is not None and self._hung.is_stuck
            if monotonic() >= self._cooldown.until_s and not is_hung:
                self._retry = Preparation(self._open_checked)
        elif self._retry.done:
            retry, self._retry = self._retry, None
            self._runner = retry.take()
            if self._runner is None:
                self._fail(retry.reason)
            else:
                self.failed = ""
                self._cooldown = self._cooldown._replace(recovered_s=monotonic())


def _watched(
    session: SessionProtocol, active: WatchedRunner, open_runner: Callable[[], Runner]
) -> WatchedRunner:
    """Return a runner that leaves a session, whose active one has a timeout, the time to answer instead of
    it."""
    from edgekit.runtime.deadline.deadline import FIRST_RUN_S, LOAD_S  # here: most sessions have no deadline

    zeros = {spec.name: spec.zeros() for spec in session.inputs}
    watched = WatchedRunner(open_runner, max(FIRST_RUN_S, active.limit_s))
    try:
        watched.load(max(LOAD_S, active.limit_s))
        watched.run(zeros)
        began_s = time.monotonic()
        session.run(zeros)
    except BaseException:
        watched.close()
        raise
    watched.limit_s = cutoff_s(active.limit_s, time.monotonic() - began_s)
    return watched


def variant_of(session: SessionProtocol, name: str) -> Variant:
    """Return a usable variant of the session's bundle, or its accelerated copy.

    Raises:
        UsageError: there is none of that name.
    """
    usable = {variant.name: variant for variant in session.bundle.variants if variant.usable}
    if name not in usable:
        base, _, kind = name.partition("@")
        if base in usable:
            from edgekit.runtime.fallback.accelerated import accelerated_copy  # here: few sessions have one

            return accelerated_copy(usable[base], kind)
        raise UsageError(
            f"{session.bundle.name} has no usable variant {name!r}; it has {', '.join(usable) or 'none'}"
        )
    return usable[name]
