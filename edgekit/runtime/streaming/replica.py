"""A second loaded copy of a variant next to a session: for another worker or a faster variant.

    replica = Replica(session, "ort-fp32", threads=1)
    replica.run(feeds)        # does not take the session's lock

If it fails, the session runs the request, with its usual fallbacks. Where the session has a deadline, a
replica that hangs is abandoned early enough for the session to answer within it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from edgekit.errors import UsageError, reason_of
from edgekit.runtime.deadline.watchdog import Watched, cutoff_s
from edgekit.runtime.loading import unpacked_files
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.target.tensor_checks import fitted
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.predictor import SessionProtocol
    from edgekit.target.contract import Runner


class Replica:
    """One loaded variant. One call at a time, as with any runner.

    Args:
        session: Runs requests if this fails; it must outlive this.
        variant: Name of one of the bundle's variants.
        threads: Threads of one run.

    Attributes:
        failed: Why the session is used instead; "" while it is not.

    Raises:
        UsageError: there is no such variant, it has no files, or the session is closed.
        MissingDependency: its engine is not installed.
        EngineError: it did not load, or, where the session has a deadline, it hangs.
    """

    def __init__(self, session: SessionProtocol, variant: str, threads: int) -> None:
        found = variant_of(session, variant)
        active = session.runner
        bundle = session.bundle
        self.variant = found
        self.failed = ""
        self._session = session
        self._check = OutputChecks(session.outputs, lambda: bundle.golden).check
        files = unpacked_files.unpack(bundle, found)
        engine = registry.engine(found.target)
        opened = partial(
            registry.open_runner, engine, files, session.inputs, session.outputs, found.options, threads
        )
        self._runner: Runner | None = (
            _watched(session, active, opened) if isinstance(active, Watched) else opened()
        )

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """As ``Session.run``."""
        if self._runner is None:
            return self._session.run(feeds)
        fitting = fitted(feeds, self._session.inputs)
        try:
            outputs = self._runner.run(fitting)
            self._check(outputs)
        except Exception as problem:  # an engine may throw anything
            pass_on(problem)
            self.failed = reason_of(problem)
            self.close()
            return self._session.run(feeds)
        return outputs

    def close(self) -> None:
        """Free the engine; from then on the session runs all requests. Closing twice is fine."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


def _watched(session: SessionProtocol, active: Watched, open_runner: Callable[[], Runner]) -> Watched:
    """A runner that leaves a session, whose active one has a timeout, the time to answer instead of it."""
    from edgekit.runtime.deadline.deadline import FIRST_RUN_S, LOAD_S  # here: most sessions have no deadline

    zeros = {spec.name: spec.zeros() for spec in session.inputs}
    watched = Watched(open_runner, max(FIRST_RUN_S, active.limit_s))
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
    """A usable variant of the session's bundle.

    Raises:
        UsageError: there is none of that name.
    """
    usable = {variant.name: variant for variant in session.bundle.variants if variant.usable}
    if name not in usable:
        raise UsageError(
            f"{session.bundle.name} has no usable variant {name!r}; it has {', '.join(usable) or 'none'}"
        )
    return usable[name]
