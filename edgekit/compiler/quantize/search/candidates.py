"""Compiles and measures the quantized candidates of a target.

    place -> optimize -> emit -> compile -> run on the validation set -> time against the float parent

If the target's engine is not installed, the Q/DQ graph is run instead, and nothing is compiled or timed.

Measurements are cached on disk under everything they depend on: an interrupted search resumes where it
stopped, and a rebuild repeats none.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.relative_time import RelativeTimer
from edgekit.compiler.evaluate.verify import check_output_form, write_files
from edgekit.compiler.model.reference import reference_version
from edgekit.compiler.quantize.causes import LossCause, int8_causes, remedy
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.placement_presets import floats_of, rules_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.placement.rewrites import rewritten
from edgekit.compiler.quantize.recipe import QuantizationPlan
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.measurement import CandidateConfig, Measurement
from edgekit.compiler.quantize.search.part_noise import measure_part_noise
from edgekit.compiler.quantize.search.search_context import PreparedGraph, SearchContext, run_qdq_graph
from edgekit.compiler.quantize.search.sensitivity import find_blocks, float_regions, float_share_of
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.errors import EdgeKitError, EngineError, reason_of
from edgekit.system import breadcrumbs
from edgekit.system.memory import release_unused
from edgekit.system.progress import Notify, counted, unwatched
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact, Runner
from edgekit.target.quant_rules import Rules
from edgekit.target.registry import open_ready
from edgekit.tensor_spec import Array

KEPT = 3
"""Rewritten graphs, and compiled candidates, kept in memory: a search ends with the best one, its baseline
and another recipe."""


@dataclass(frozen=True, eq=False)
class QuantizedCandidate:
    """Q/DQ graph of a candidate; ``floats``: blocks with weights that could be int8, but stay float."""

    config: CandidateConfig
    rules: Rules
    plan: QuantizationPlan
    model: ir.Model
    floats: list[str]


@dataclass(frozen=True, eq=False)
class CompiledCandidate(QuantizedCandidate):
    artifact: Artifact


class Candidates:
    """Candidates of one target. Use as a context manager: the parent stays loaded for timing.

    Args:
        parent: The float variant's artifact, or None if it does not run on this machine.
        version: Version of the engine that runs the candidates; "" to run their Q/DQ graphs without one.
        measurements: Measurements of an earlier search of this build, which are not repeated.

    Attributes:
        report: Called with a progress message, e.g. ``rounding weights``, and counts.
        deaths: Reasons that earlier processes of this build ended, by the candidate being measured.
    """

    def __init__(
        self,
        context: SearchContext,
        target: BuildTarget,
        rules: Rules,
        parent: Artifact | None,
        version: str,
        measurements: Iterable[Measurement] = (),
    ) -> None:
        self.report: Notify = unwatched
        self.deaths: dict[CandidateConfig, str] = {}
        self._measurements = {measurement.config: measurement for measurement in measurements}
        self._context, self.target, self.rules, self.version = context, target, rules, version
        self._prepared: dict[frozenset[str], PreparedGraph] = {}
        self._kernels = find_kernels(context.model, rules)
        self._blocks = find_blocks(context.model, self._kernels)
        self._floats: dict[str, frozenset[str]] = {}
        self._ratios: dict[tuple[str, frozenset[str], float], float] = {}
        self._compiled_cache: dict[CandidateConfig, CompiledCandidate] = {}
        self._opened = 0
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-")))
        self._timer = None
        if parent is not None:
            runner = self._stack.enter_context(closing(self._open(parent, 1)))
            self._timer = RelativeTimer(runner, context.validation[0])

    @property
    def timed(self) -> bool:
        """Return whether candidates are timed against the float parent."""
        return self._timer is not None

    @property
    def parent_ms(self) -> float | None:
        """Return the float parent's fastest run so far in ms, on one thread; None if it was not timed."""
        best_s = self._timer.best_s if self._timer is not None else math.inf
        return 1000 * best_s if best_s < math.inf else None

    @property
    def placements(self) -> tuple[str, ...]:
        """Return the target's placements, without those that equal an earlier one for this model."""
        distinct: dict[object, str] = {}
        for name in self.rules.placements:
            rules = rules_of(name, self.rules)
            distinct.setdefault((self.floats_of(name), rules.centred, rules.activations), name)
        return tuple(distinct.values())

    def floats_of(self, placement: str) -> frozenset[str]:
        """Return the names of the nodes that stay float in a placement."""
        if placement not in self._floats:  # a search asks hundreds of times
            self._floats[placement] = floats_of(placement, self._kernels)
        return self._floats[placement]

    def under(self, rules: Rules) -> Candidates:
        """Return candidates by other rules, which are timed against the same parent, while this is open."""
        other = Candidates(self._context, self.target, rules, None, self.version)
        other._timer = self._timer
        return other

    def __enter__(self) -> Candidates:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compile(self, config: CandidateConfig) -> CompiledCandidate:
        """Quantize and compile. The last few results are kept: the winner is often one of them.

        Raises:
            EdgeKitError: the target cannot compile it, or ended an earlier process with it.
        """
        if config in self.deaths:
            raise EngineError(self.deaths[config])
        return self._compiled_cache.get(config) or self._compiled(self._quantized(config))

    def _quantized(self, config: CandidateConfig) -> QuantizedCandidate:
        context, rules = self._context, rules_of(config.placement, self.rules)
        floats = config.floats | self.floats_of(config.placement)
        graph = self._prepare(floats)
        plan = place(graph.model, rules, graph.observations, config.recipe, floats, context.range_cache)
        plan = optimize(
            graph.model,
            plan,
            rules,
            context.calibration,
            config.recipe,
            context.weight_cache,
            lambda done, total: self.report("rounding weights", done, total, "steps"),
        )
        float_blocks = [block.name for block in self._blocks if block.name not in plan.nodes]
        return QuantizedCandidate(config, rules, plan, emit(graph.model, plan, rules), float_blocks)

    def _compiled(self, quantized: QuantizedCandidate) -> CompiledCandidate:
        target, precision = self.target, self.target.compiled_as("int8")
        artifact = target.compiler.compile_model(quantized.model, target.profile, precision)
        compiled = CompiledCandidate(**vars(quantized), artifact=artifact)
        self._compiled_cache[quantized.config] = compiled
        if len(self._compiled_cache) > KEPT:
            del self._compiled_cache[next(iter(self._compiled_cache))]
        return compiled

    def causes(self, config: CandidateConfig) -> list[tuple[LossCause, str, float | None]]:
        """Return the causes of plain int8's accuracy loss, the worst first, each with the candidate's remedy
        and the remaining noise / signal, None in float."""
        context, plan = self._context, self.compile(config).plan
        prepared = self._prepare(config.floats | self.floats_of(config.placement))
        losses = int8_causes(context.model, context.observations, self.rules)
        return [(c, *remedy(c, context.observations, prepared.observations, plan)) for c in losses]

    def measure(self, config: CandidateConfig) -> Measurement:
        """Compile a candidate, run it on the validation set, and time it against the parent."""
        if not self.is_known(config):
            try:
                with breadcrumbs.at_risk(f"{config} ({self._key(config)[:8]})"):
                    measurement = self._measured(config)
                measurement_cache.record(self._key(config), Measurement, measurement)
            except EngineError as problem:  # not cached: a limit may be wider next time
                measurement = Measurement(config, None, None, reason_of(problem, for_bundles=True))
                self.deaths[config] = measurement.failure
            self._measurements[config] = measurement
        measurement = self._measurements[config]
        if measurement.ratio is not None:
            self._ratios.setdefault(
                (config.placement, config.floats, measurement.float_share), measurement.ratio
            )
        return measurement

    def is_known(self, config: CandidateConfig) -> bool:
        """Return whether a measurement is cached, from this or an earlier build: it is not repeated."""
        if config not in self._measurements:
            measurement = measurement_cache.recall(self._key(config), Measurement)
            if measurement is None:
                return False
            self._measurements[config] = measurement
        return True

    def _key(self, config: CandidateConfig) -> str:
        return measurement_cache.key(
            self._context.digest,
            repr(self.rules),
            self.target.profile.as_json(),
            self.version or f"Q/DQ graph, {reference_version()}",
            config.as_json(),
            self.timed,
        )

    def _measured(self, config: CandidateConfig) -> Measurement:
        validation, ratio = self._context.validation, None
        release_unused()  # the graphs of the last candidate
        try:
            quantized = self._quantized(config)
            float_share = float_share_of(self._blocks, quantized.floats)
            if not quantized.plan.nodes:
                return Measurement(config, None, None, "no node would be left to run on integers")
            if self.version:
                self.report("compiling")
                compiled = self._compiled(quantized)
                with closing(self._open(compiled.artifact, 1)) as runner:
                    self.report("running")
                    outputs, ratio = self._run(config, float_share, runner)
            else:
                self.report("running")
                outputs = run_qdq_graph(quantized.model, validation)
            check_output_form(outputs, self._context.outputs)
        except EdgeKitError as problem:
            return Measurement(config, None, None, reason_of(problem, for_bundles=True))
        fidelity = self._context.evaluator.evaluate(outputs)
        return Measurement(config, fidelity, ratio, float_share=float_share)

    def _run(
        self, config: CandidateConfig, float_share: float, runner: Runner
    ) -> tuple[Sequence[Mapping[str, Array]], float | None]:
        """Run a candidate on the validation samples, and return its outputs and its latency relative to the
        parent, timed once for all recipes with the same float share.

        A recipe changes which layers are float only by its ranges, which decide which channels cannot share a
        scale (``place``); otherwise it only changes constants.
        """
        structure, validation = (config.placement, config.floats, float_share), self._context.validation
        if self._timer is None or structure in self._ratios:
            outputs = keep_outputs(map(runner.run, counted(validation, "samples")))
            return outputs, self._ratios.get(structure)
        outputs, self._ratios[structure] = self._timer.run(runner, validation)
        return outputs, self._ratios[structure]

    def float_share(self, config: CandidateConfig) -> float:
        """Return the least share (0 to 1) of MACs that stay float with this placement and float nodes."""
        floats = config.floats | self.floats_of(config.placement)
        return float_share_of(self._blocks, [block.name for block in self._blocks if block.nodes <= floats])

    def find_float_regions(
        self, config: CandidateConfig, min_noise_share: float = 0.0
    ) -> tuple[Sequence[frozenset[str]], dict[str, float]]:
        """Return sets of nodes to keep in float, and the SNR in dB with each block's part alone quantized.

        Each set removes at least ``min_noise_share`` (0 to 1) of the placement's quantization noise.
        """
        names = tuple(block.name for block in self._blocks)
        if not names:
            return [], {}
        if names not in (known := self._context.noise):
            graph = self._prepare(frozenset())
            known[names] = measure_part_noise(self._context, graph, self.rules, self._blocks, self.report)
        noise, floats = known[names], self.floats_of(config.placement)
        regions = float_regions(self._context.model, self._blocks, noise, floats, min_noise_share)
        snr_db = {
            name: -10 * math.log10(noise[part]) if noise[part] > 0 else math.inf
            for part in noise
            for name in names[slice(*part)]
        }
        return regions, snr_db

    def _prepare(self, floats: frozenset[str]) -> PreparedGraph:
        """Return the graph that a plan with these float nodes applies to: these are not rewritten."""
        if floats not in self._prepared:
            context = self._context
            self._prepared[floats] = PreparedGraph(
                *rewritten(context.model, context.observations, self.rules, floats)
            )
            if len(self._prepared) > KEPT:
                del self._prepared[next(iter(self._prepared))]
        return self._prepared[floats]

    def _open(self, artifact: Artifact, threads: int) -> Runner:
        self._opened += 1
        folder = self._folder / str(self._opened)
        folder.mkdir()
        files = write_files(artifact, folder)
        context = self._context
        engine = self.target.executor()
        return open_ready(engine, files, context.inputs, context.outputs, artifact.options, threads)
