"""From a variant in a bundle to a ready runner: probe, unpack, load, warm up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from edgekit.errors import EngineError
from edgekit.runtime.fallback.load_order import why_emulated
from edgekit.runtime.loading import golden_check, unpacked_files
from edgekit.runtime.session_state import SessionOptions, StateCallback, ignore_state
from edgekit.system.forked import leave_to_parent
from edgekit.target import registry
from edgekit.target.contract import KEPT_IN

if TYPE_CHECKING:
    from pathlib import Path

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
        self._checked: set[str] = set()

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
            open_files,
            bundle,
            variant,
            unpacked.files,
            _with_kept(variant, engine, unpacked),
            options.threads,
            self._output_checks,
        )
        if self._deadline is not None:
            load = partial(self._deadline.watch, variant.name, load, on_state)
        runner = registry.once_built(load) if options.strict else load()
        if options.strict and not options.allow_split and registry.ACCELERATOR in variant.options:
            _refuse_split(runner)
        if registry.ACCELERATOR in variant.options:
            self._look_at_copy(variant, runner.facts())
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

    def forget(self, variant: Variant) -> None:
        """Drop the verdict about a copy that failed while running, if it is one that must be checked: it is
        probed again before it is loaded again."""
        if variant.name in self._checked:
            from edgekit.runtime.loading import probe

            self._probed.discard(variant.name)
            probe.forget(self._bundle, variant)

    def _look_at_copy(self, variant: Variant, facts: Mapping[str, Json]) -> None:
        """Warn of a requested copy that is slower than the CPU; with device="auto" it is not taken."""
        if "run_ms" not in facts:  # it is not checked
            return
        self._checked.add(variant.name)
        run_ms, cpu_ms = facts["run_ms"], facts.get("cpu_run_ms", 0.0)
        if self._options.device != "auto" and run_ms > cpu_ms > 0:
            self._note(f"{variant.name} is right, but takes {run_ms:.3g} ms for {cpu_ms:.3g} on the CPU")

    def _note(self, note: str) -> None:
        if note and note not in self.notes:
            self.notes += (note,)


def open_files(
    bundle: Bundle,
    variant: Variant,
    files: Mapping[str, Path],
    options: Mapping[str, Json],
    threads: int,
    output_checks: OutputChecks,
) -> Runner:
    """Open a variant's unpacked files in this process, or in one of its own if its accelerator needs that."""
    isolation = registry.isolation_of(variant.target, options)
    if isolation == "worker":
        from edgekit.runtime.loading.worker import WorkerRunner  # here: few sessions have one

        return leave_to_parent(WorkerRunner(bundle, variant, threads))
    engine = registry.engine(variant.target)
    open_runner = partial(registry.open_runner, engine, files, bundle.inputs, bundle.outputs, threads=threads)
    runner = open_runner(options=options)
    if not isolation:
        return runner
    from edgekit.runtime.loading.checked_runner import checked

    try:
        limits_db = golden_check.limits_db(variant, [spec.name for spec in bundle.outputs])
        return checked(runner, open_runner, options, bundle.golden_of(variant), output_checks, limits_db)
    except BaseException:
        runner.close()
        raise


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
