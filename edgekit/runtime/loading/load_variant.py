"""From a variant in a bundle to a runner that is ready: probed, unpacked, loaded, run once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import EngineError
from edgekit.runtime.loading import golden_check, unpacked_files
from edgekit.runtime.session_state import Tell, in_silence
from edgekit.target import registry
from edgekit.target.contract import Runner

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.deadline.deadline import Deadline
    from edgekit.runtime.loading.output_checks import OutputChecks


class SessionOptions(NamedTuple):
    """What a session was asked for; Session says what each means."""

    engine: str | None = None
    strict: bool = False
    threads: int = 1
    probe: bool = False
    warm: bool = False


class VariantLoader:
    """Opens the variants of one bundle.

    Attributes:
        notes: What is worth knowing of it, e.g. a cache that cannot be used.
    """

    def __init__(
        self, bundle: Bundle, wishes: SessionOptions, soundness: OutputChecks, deadline: Deadline | None
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._bundle, self._wishes, self._soundness, self._deadline = bundle, wishes, soundness, deadline
        self._probed: set[str] = set()

    def probe(self, variant: Variant, tell: Tell = in_silence) -> None:
        """Try a variant in a child process, once a machine and engine version.

        Raises:
            EngineError: it must not be loaded in this one.
        """
        if variant.name in self._probed:
            return
        from edgekit.runtime.loading import probe  # here: most sessions ask for none

        tell("verifying", variant.name)
        probed = probe.probed(self._bundle, variant, self._wishes.threads)
        self._note(probed.note)
        if probed.why:
            error = EngineError(probed.why)
            error.blame = probed.blame
            raise error
        self._probed.add(variant.name)

    def open(self, variant: Variant, tell: Tell = in_silence) -> Runner:
        """Probe where that is wished, unpack, load, warm. An engine may raise anything."""
        if self._wishes.probe:  # also what stands by, or is made ready in the background
            self.probe(variant, tell)
        tell("verifying", variant.name)
        bundle, wishes = self._bundle, self._wishes
        engine = registry.engine(variant.target)
        unpacked = unpacked_files.unpack_noted(bundle, variant)
        self._note(unpacked.note)
        tell("loading", variant.name)
        load: Callable[[], Runner] = partial(
            engine.open_runner, unpacked.files, bundle.inputs, bundle.outputs, variant.options, wishes.threads
        )
        if self._deadline is not None:
            load = partial(self._deadline.watch, variant.name, load, tell)
        runner = registry.once_built(load) if wishes.strict else load()
        if wishes.warm and self._deadline is None:  # a deadline warms too
            tell("warming", variant.name)
            try:
                runner.run({spec.name: spec.zeros() for spec in bundle.inputs})
            except BaseException:
                runner.close()
                raise
        return runner

    def open_proven(self, variant: Variant) -> Runner:
        """Open a variant that failed before, and hold it to the golden vectors."""
        runner = self.open(variant)
        try:
            limits_db = golden_check.garbage_limits_db(
                variant.evidence, [s.name for s in self._bundle.outputs]
            )
            golden_check.check_golden(runner, self._bundle.golden, self._soundness, limits_db)
        except BaseException:
            runner.close()
            raise
        return runner

    def _note(self, note: str) -> None:
        if note and note not in self.notes:
            self.notes += (note,)
