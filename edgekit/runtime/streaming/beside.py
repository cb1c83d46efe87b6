"""A variant loaded once more beside a session: for a second worker, or for a faster variant on trial.

    beside = Beside(session, "ort-fp32", threads=1)
    beside.run(feeds)        # not behind the session's lock

Whatever fails here, the session answers, as it always does: with its next variants, explained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit import target
from edgekit.errors import UsageError
from edgekit.runtime import cache
from edgekit.runtime.fallback import reason_of
from edgekit.runtime.feeds import fitted
from edgekit.runtime.guard.watchdog import Watched
from edgekit.runtime.soundness import Soundness
from edgekit.target import Array, Runner

if TYPE_CHECKING:
    from edgekit.bundle import Variant
    from edgekit.runtime.session import Session


class Beside:
    """One loaded variant. One call at a time, as with any runner.

    Args:
        session: Answers where this does not; it must outlive this.
        variant: Name of one of the bundle's variants.
        threads: Threads of one run.

    Attributes:
        failed: Why the session answers instead; "" while it does not.

    Raises:
        UsageError: there is no such variant, it has no files, or the session is closed or has a deadline.
        MissingDependency: its engine is not installed.
        EngineError: it did not load.
    """

    def __init__(self, session: Session, variant: str, threads: int) -> None:
        found = variant_of(session, variant)
        if isinstance(session.runner, Watched):
            raise UsageError(
                "a session with a deadline runs one variant at a time: others would not be watched"
            )
        bundle = session.bundle
        self.variant = found
        self.failed = ""
        self._session = session
        self._check = Soundness(session.outputs, lambda: bundle.golden).check
        files = cache.unpack(bundle, found)
        engine = target.engine(found.target)
        self._runner: Runner | None = engine.open_runner(
            files, session.inputs, session.outputs, found.options, threads
        )

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """As ``Session.run``."""
        if self._runner is None:
            return self._session.run(feeds)
        fitting = fitted(feeds, self._session.inputs)
        try:
            answers = self._runner.run(fitting)
            self._check(answers)
        except Exception as problem:  # an engine may throw anything
            self.failed = reason_of(problem)
            self.close()
            return self._session.run(feeds)
        return answers

    def close(self) -> None:
        """Free the engine; from then on the session answers. Closing twice is fine."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


def variant_of(session: Session, name: str) -> Variant:
    """A variant of the session's bundle that may run.

    Raises:
        UsageError: there is none of that name.
    """
    usable = {variant.name: variant for variant in session.bundle.variants if variant.usable}
    if name not in usable:
        raise UsageError(
            f"{session.bundle.name} has no variant {name!r} to run; it has {', '.join(usable) or 'none'}"
        )
    return usable[name]
