"""The decoders of a text session: the one that is loaded, and the next one where it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgekit.errors import EngineError, NonFiniteOutputError, NoVariantError, UsageError, reason_of
from edgekit.generate.device import decoder_registry
from edgekit.generate.device.adapter import NO_MATRICES, Matrices, adapters_of, inputs_bytes, read_adapter
from edgekit.generate.device.adapter import OPTION as ADAPTERS
from edgekit.generate.device.draft_model import DraftModel, draft_for
from edgekit.generate.device.memory_plan import MemoryPlan, check_memory
from edgekit.runtime import local_timings
from edgekit.runtime.chain import Chain
from edgekit.runtime.loading import unpacked_files
from edgekit.runtime.loading.load_variant import VariantLoader
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.runtime.session_state import Active, SessionOptions, States, log

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.generate.device.decoder import DecoderRunner
    from edgekit.runtime.fallback.policy import Fallback, RankedVariant


class OneDecoder:
    """A decoder that was loaded elsewhere: there is no other one.

    Attributes:
        identity: Identity of the model to which its caches belong; "" keeps none on disk.
    """

    def __init__(self, runner: DecoderRunner, name: str = "decoder", identity: str = "") -> None:
        self.runner: DecoderRunner | None = runner
        self.active = Active(name, name, runner.device, runner.precision)
        self.fallbacks: tuple[Fallback, ...] = ()
        self.history: tuple[Fallback, ...] = ()
        self.identity = identity
        self.adapters: tuple[str, ...] = ()

    def load(self) -> DecoderRunner:
        """Return the decoder. Raises EngineError: it is closed."""
        if self.runner is None:
            raise EngineError("the decoder is closed")
        return self.runner

    def failed(self, problem: Exception) -> DecoderRunner:
        """Raise EngineError: there is no other decoder."""
        kind = NonFiniteOutputError if isinstance(problem, NonFiniteOutputError) else EngineError
        raise kind(f"{self.active.variant} does not run: {reason_of(problem)}") from problem

    def is_input_at_fault(self, problem: Exception, run_known: Callable[[], object]) -> bool:
        """Return False: there is no other decoder."""
        return False

    def recovers(self) -> bool:
        """Return False: there is no other variant."""
        return False

    def draft(self) -> DraftModel | None:
        """Return None: there is no draft."""
        return None

    def matrices_of(self, adapter: str) -> Matrices:
        """Return no matrices: there are no adapters."""
        return NO_MATRICES

    def close(self) -> None:
        """Free the decoder."""
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.close()


class DecoderChain(Chain["DecoderRunner"]):
    """The decoders of a bundle.

    A variant that failed while it ran is tried again after a cooldown, before a text begins and while no
    other goes on: two decoders rarely fit into memory together.

    Args:
        context: Maximum tokens of a text; None: the default of memory_plan.py.
        conversations: Maximum number of caches, for the memory plan.
        kept_bytes: Memory of saved caches, for the plan.

    Raises:
        UsageError, NoVariantError, MissingDependency, EngineError: as a Session.
        BundleError: the adapters are malformed.
    """

    _not_a_variants_fault = (UsageError,)

    def __init__(
        self,
        bundle: Bundle,
        options: SessionOptions,
        context: int | None,
        conversations: int,
        kept_bytes: int,
        states: States,
    ) -> None:
        super().__init__(bundle, options, states)
        self.identity = ""
        self._adapters = adapters_of(bundle)
        self.adapters = tuple(self._adapters)
        self._matrices: dict[str, Matrices] = {"": NO_MATRICES}
        self._context, self._conversations, self._kept_bytes = context, conversations, kept_bytes
        self._loader = VariantLoader(bundle, options, OutputChecks(bundle.outputs, ()), None)
        self._plan: tuple[MemoryPlan, int]
        self.load()

    def load(self) -> DecoderRunner:
        """Return the decoder; load the best one that works if none is loaded."""
        if self.runner is None:
            try:
                self._load_next()
            except NoVariantError as error:
                failures = self._health.failures
                ran = [name for name in failures if name in self._health.cooldowns]
                error = self._no_variant(error, ran)
                # The next text may fare better: an engine that is not installed stays out.
                self._health.restore({name: f for name, f in failures.items() if f.missing}, {})
                raise error from None
        assert self.runner is not None
        return self.runner

    def failed(self, problem: Exception) -> DecoderRunner:
        """Load the next variant after ``problem`` of the loaded one.

        Raises:
            NoVariantError: none is left.
            EngineError: strict.
        """
        self._fail_running(problem)
        runner = self.load()
        log().warning("fell back: %s", self.history[-1] if self.history else "")
        return runner

    def is_input_at_fault(self, problem: Exception, run_known: Callable[[], object]) -> bool:
        """Return whether the input causes ``problem``: the loaded decoder still computes a known input."""
        return self._is_input_at_fault(problem, run_known)

    def recovers(self) -> bool:
        """Free the decoder and return True if a better variant is due; failing again doubles its cooldown."""
        due = self._health.due_for_retry(self.load_order, self._active_name())
        if due is None:
            return False
        self._health.recovered(due.variant.name)
        self.drop_runner()
        return True

    def draft(self) -> DraftModel | None:
        """Return the draft of the loaded decoder, or None. Raises BundleError: it is malformed."""
        plan, spare_bytes = self._plan
        version, probe = self.active.engine, self._loader.probe if self._options.probe else None
        return draft_for(
            self._bundle, self.candidate.variant, plan, spare_bytes, self._options, version, probe
        )

    def matrices_of(self, adapter: str) -> Matrices:
        """Read the matrices of an adapter; "": none. Raises BundleError: they are damaged."""
        if adapter not in self._matrices:
            self._matrices[adapter] = read_adapter(self._bundle, self._adapters[adapter])
        return self._matrices[adapter]

    def close(self) -> None:
        """Free what is loaded."""
        self.drop_runner()

    def _admit(self, variant: Variant) -> None:
        size_bytes = sum(self._bundle.size_bytes(entry) for entry in variant.files.values())
        sites = variant.options.get(ADAPTERS, {})
        size_bytes += sum(inputs_bytes(sites, entry.matrices) for entry in self._adapters.values())
        self._plan = check_memory(
            variant.name, variant.options, size_bytes, self._context, self._conversations, self._kept_bytes
        )
        if self._options.probe:
            self._loader.probe(variant, self._states.enter)

    def _open(self, variant: Variant) -> DecoderRunner:
        self._states.enter("verifying", variant.name)
        unpacked = unpacked_files.unpack_noted(self._bundle, variant)
        self._states.enter("loading", variant.name)
        return decoder_registry.open_decoder(
            variant.target, unpacked.files, variant.options, self._options.threads, self._plan[0].capacity
        )

    def _activate(self, candidate: RankedVariant) -> None:
        artifact = local_timings.artifact(self._bundle, candidate.variant)
        self.identity = f"{artifact} {self.active.engine}"
        super()._activate(candidate)
