"""From a variant in a bundle to a ready runner: probe, unpack, load, warm up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from edgekit.errors import EngineError
from edgekit.runtime.fallback.load_order import why_emulated
from edgekit.runtime.loading import golden_check, unpacked_files
from edgekit.runtime.session_state import SessionOptions, StateCallback, ignore_state
from edgekit.target import registry
from edgekit.target.contract import KEPT_IN

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.deadline.deadline import Deadline
    from edgekit.runtime.loading.output_checks import OutputChecks
    from edgekit.target.contract import Engine, Runner
    from edgekit.tensor_spec import Json


class VariantLoader:
    """Opens the variants of one bundle."""

    def __init__(
        self, bundle: Bundle, options: SessionOptions, output_checks: OutputChecks, deadline: Deadline | None
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._bundle, self._options = bundle, options
        self._output_checks, self._deadline = output_checks, deadline
        self._probed: set[str] = set()

    def probe(self, variant: Variant, on_state: StateCallback = ignore_state) -> None:
        """Load a variant in a child process, once per machine and engine version.

        Raises:
            EngineError: the probe failed, so it must not be loaded in this process.
        """
        if variant.name in self._probed:
            return
        from edgekit.runtime.loading import probe  # here: most sessions do not probe

        on_state("verifying", variant.name)
        probed = probe.probe_once(self._bundle, variant, self._options.threads)
        self._note(probed.note)
        if probed.reason:
            error = EngineError(probed.reason)
            error.blame = probed.blame
            raise error
        self._probed.add(variant.name)

    def open(self, variant: Variant, on_state: StateCallback = ignore_state) -> Runner:
        """Probe if requested, unpack, load, warm up. An engine may raise anything."""
        if reason := why_emulated(variant, self._options):  # as the standby
            raise EngineError(reason)
        # Standby variants and those prepared in the background too.
        if self._options.probe or registry.ACCELERATOR in variant.options:
            self.probe(variant, on_state)
        on_state("verifying", variant.name)
        bundle, options = self._bundle, self._options
        engine = registry.engine(variant.target)
        unpacked = unpacked_files.unpack_noted(bundle, variant)
        self._note(unpacked.note)
        on_state("loading", variant.name)
        load: Callable[[], Runner] = partial(
            registry.open_runner,
            engine,
            unpacked.files,
            bundle.inputs,
            bundle.outputs,
            _with_kept(variant, engine, unpacked),
            options.threads,
        )
        if self._deadline is not None:
            load = partial(self._deadline.watch, variant.name, load, on_state)
        runner = registry.once_built(load) if options.strict else load()
        if options.strict and not options.allow_split and registry.ACCELERATOR in variant.options:
            _refuse_split(runner)
        if options.warm and self._deadline is None:  # a deadline warms up too
            on_state("warming", variant.name)
            try:
                for inputs, _ in bundle.shapes:
                    runner.run({spec.name: spec.zeros() for spec in inputs})
            except BaseException:
                runner.close()
                raise
        return runner

    def open_checked(self, variant: Variant) -> Runner:
        """Open a variant that failed before, and compare it with the golden vectors."""
        runner = self.open(variant)
        try:
            limits_db = golden_check.limits_db(variant, [s.name for s in self._bundle.outputs])
            golden = self._bundle.golden_of(variant)
            golden_check.check_golden(runner, golden, self._output_checks, limits_db)
        except BaseException:
            runner.close()
            raise
        return runner

    def _note(self, note: str) -> None:
        if note and note not in self.notes:
            self.notes += (note,)


def _with_kept(variant: Variant, engine: Engine, unpacked: unpacked_files.Unpacked) -> Mapping[str, Json]:
    """Return the variant's options, and the folder in which its engine keeps what it compiles."""
    options = {name: value for name, value in variant.options.items() if name != KEPT_IN}
    plain = options.keys().isdisjoint((registry.ACCELERATOR, *registry.FORMS))
    if engine.ENGINE.keeps_compiled and plain and unpacked.folder is not None:
        options[KEPT_IN] = str(unpacked.folder / "compiled")
    return options


def _refuse_split(runner: Runner) -> None:
    """Close a runner whose engine runs nodes on the CPU, and raise EngineError."""
    left: Any = runner.facts().get("nodes_on_cpu")
    if not left:
        return
    device = runner.device
    runner.close()
    raise EngineError(
        f"{device}: strict allows no node on the CPU, which would run {', '.join(map(str, left))}; "
        "pass allow_split=True to allow it"
    )
