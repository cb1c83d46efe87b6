"""Makes one quantized model after another for a target, and measures what each is worth.

    place -> optimise -> emit -> compile -> run on the samples for choosing -> time against the float parent

Where the target's engine is not here, the Q/DQ graph is run instead, and nothing is compiled or timed.

What was measured is remembered on the disk by all that it depends on: a search that was cut short goes on
where it stopped, and a rebuild finds what the first build found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import EdgeKitError, reason_of
from edgekit.evaluate.fidelity import Evaluator, Fidelity, Score, worst_snr_db
from edgekit.evaluate.relative_time import RelativeTimer
from edgekit.evaluate.samples import Sample
from edgekit.evaluate.verify import refuse_wrong_answers, write_files
from edgekit.model.reference import Reference, reference_version
from edgekit.model.rewriting import array_of
from edgekit.quantize.numerics import channel_noise, dequantize
from edgekit.quantize.observe.observers import Observation
from edgekit.quantize.placement.kernels import Kernel, find_kernels, node_name, rule_of
from edgekit.quantize.placement.placement_presets import floats_of, rules_of
from edgekit.quantize.placement.qdq_graph import emit
from edgekit.quantize.placement.qdq_placement import RangeCache as Ranges
from edgekit.quantize.placement.qdq_placement import place
from edgekit.quantize.placement.rewrites import rewritten
from edgekit.quantize.recipe import QuantizationPlan
from edgekit.quantize.search import measurement_cache
from edgekit.quantize.search.sensitivity import Block, find_blocks, float_regions
from edgekit.quantize.search.strategy import DEFAULT, PLAIN, CandidateConfig, Measurement
from edgekit.quantize.weights.optimize_weights import optimize
from edgekit.quantize.weights.value_digests import WeightCache
from edgekit.system.cpu import default_threads
from edgekit.target import registry
from edgekit.target.contract import Artifact, Runner
from edgekit.target.quant_rules import Rules
from edgekit.target.registry import open_ready
from edgekit.tensors import Array, Json, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.target.profile import Profile

KEPT = 3
"""So many compiled candidates stay in memory: a search ends with the best, the plainest and one more."""
DAMAGE_SAMPLES = 2
"""Samples that the damage of each block is measured on: it is compared between blocks, not reported."""
SUSPECTS = 32
"""At most so many blocks are looked at: those whose inputs and weights change most when they are stored."""


@dataclass(frozen=True, eq=False)
class SearchContext:
    """What every candidate for a build is made from and measured with.

    Attributes:
        model: The canonical float graph.
        inputs: The source model's.
        outputs: The source model's.
        observations: Of every value of ``model``.
        fit: Samples that weights are fitted on.
        choose: Samples that decide between candidates.
        judge: Scores outputs for ``choose``.
        digest: Of the model, the samples and the judge's card: what measurements are remembered by.
        memo: What the weights of earlier candidates share with those of later ones.
        ranges: The same of ranges that were chosen.
    """

    model: ir.Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    observations: Mapping[str, Observation]
    fit: Sequence[Sample]
    choose: Sequence[Sample]
    judge: Evaluator
    digest: str
    memo: WeightCache
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CompiledCandidate:
    """One candidate, compiled.

    Attributes:
        choice: What it is.
        rules: Of the target.
        plan: What is quantized, with weights.
        model: The canonical graph with Q/DQ pairs.
        artifact: What the target's compiler made of it.
        floats: Blocks with weights that the target could compute on integers, and that stay float here.
    """

    choice: CandidateConfig
    rules: Rules
    plan: QuantizationPlan
    model: ir.Model
    artifact: Artifact
    floats: list[str]


@dataclass(frozen=True, eq=False)
class _Quantized:
    """One candidate before it is compiled: the part of :class:`CompiledCandidate` that needs no engine."""

    rules: Rules
    plan: QuantizationPlan
    model: ir.Model
    floats: list[str]


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A rewritten graph, and what was observed of its values."""

    model: ir.Model
    observations: Mapping[str, Observation]


class Candidates:
    """Candidates for one target. Use as a context manager: the parent stays loaded for timing.

    Args:
        bench: What they are made from.
        profile: Of the target.
        rules: Of the target.
        parent: The float variant's artifact, or None where it does not run here.
        version: Of the engine that candidates are run on; "": there is none, their Q/DQ graphs are run.
    """

    def __init__(
        self, bench: SearchContext, profile: Profile, rules: Rules, parent: Artifact | None, version: str
    ) -> None:
        self._bench, self._profile, self._rules, self._version = bench, profile, rules, version
        self._prepared: dict[frozenset[str], _Prepared] = {}
        self._blocks = find_blocks(bench.model, find_kernels(bench.model, rules))
        self._ratios: dict[tuple[str, frozenset[str], float], float] = {}
        self._damage: dict[str, dict[str, float]] = {}
        self._made: dict[CandidateConfig, CompiledCandidate] = {}
        self._opened = 0
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-")))
        self._pace = None
        if parent is not None:
            runner = self._stack.enter_context(closing(self._open(parent, 1)))
            self._pace = RelativeTimer(runner, bench.choose[0])

    @property
    def timed(self) -> bool:
        """Whether there is a parent to time against."""
        return self._pace is not None

    def __enter__(self) -> Candidates:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def make(self, choice: CandidateConfig) -> CompiledCandidate:
        """Quantize and compile; the last few are kept, for what wins is often one of them.

        Raises:
            EdgeKitError: the target can't express it.
        """
        return (
            self._compiled(choice, self._quantized(choice))
            if choice not in self._made
            else self._made[choice]
        )

    def _quantized(self, choice: CandidateConfig) -> _Quantized:
        bench, rules = self._bench, rules_of(choice.placement, self._rules)
        floats = choice.floats | floats_of(choice.placement, bench.model, rules)
        graph = self._prepare(floats)
        plan = place(graph.model, rules, graph.observations, choice.recipe, floats, bench.ranges)
        plan = optimize(graph.model, plan, rules, bench.fit, choice.recipe, bench.memo)
        kept = [block.name for block in self._blocks if block.name not in plan.nodes]
        return _Quantized(rules, plan, emit(graph.model, plan, rules), kept)

    def _compiled(self, choice: CandidateConfig, given: _Quantized) -> CompiledCandidate:
        compiler = registry.compiler(self._profile.target)
        precision = "int8" if "int8" in compiler.TARGET.precisions else "fp32"  # the pairs say what is int8
        artifact = compiler.compile_model(given.model, self._profile, precision)
        made = CompiledCandidate(choice, given.rules, given.plan, given.model, artifact, given.floats)
        self._made[choice] = made
        if len(self._made) > KEPT:
            del self._made[next(iter(self._made))]
        return made

    def measure(self, choice: CandidateConfig) -> Measurement:
        """Make a candidate, run it on the samples for choosing, and time it against the parent."""
        key = measurement_cache.key(
            self._bench.digest,
            repr(self._rules),
            self._profile.as_json(),
            self._version or f"Q/DQ graph, {reference_version()}",
            choice.as_json(),
            self.timed,
        )
        known = measurement_cache.recall(key)
        tried = parsed(choice, known) if known is not None else None
        if tried is None:
            tried = self._measured(choice)
            measurement_cache.record(key, recorded(tried))
        if tried.ratio is not None:
            self._ratios.setdefault((choice.placement, choice.floats, tried.share), tried.ratio)
        return tried

    def _measured(self, choice: CandidateConfig) -> Measurement:
        choose, ratio = self._bench.choose, None
        try:
            given = self._quantized(choice)
            share = share_of(self._blocks, given.floats)
            if not given.plan.nodes:
                return Measurement(choice, None, None, "nothing is left that computes on integers")
            if self._version:
                made = self._compiled(choice, given)
                with closing(self._open(made.artifact, 1)) as runner:
                    answers = [runner.run(sample) for sample in choose]
                    ratio = self._ratio(choice, share, runner)
            else:
                answers = emulated(given.model, choose)
            refuse_wrong_answers(answers, self._bench.outputs)
        except EdgeKitError as problem:
            return Measurement(choice, None, None, reason_of(problem))
        found = self._bench.judge.judge(answers)
        return Measurement(choice, found, ratio, share=share)

    def _ratio(self, choice: CandidateConfig, share: float, runner: Runner) -> float | None:
        """Time over the parent's. One timing is enough for all recipes that leave as much in float: by its
        ranges a recipe decides which channels can't share a scale (``place``), and else changes numbers only.
        """
        structure = (choice.placement, choice.floats, share)
        if self._pace is None:
            return None
        if structure not in self._ratios:
            self._ratios[structure] = self._pace.ratio(runner)
        return self._ratios[structure]

    def share(self, choice: CandidateConfig) -> float:
        """Part (0 to 1) of the products that stay float in a placement with these float nodes, at least."""
        floats = choice.floats | floats_of(choice.placement, self._bench.model, self._rules)
        return share_of(self._blocks, [block.name for block in self._blocks if block.nodes <= floats])

    def islands(
        self, choice: CandidateConfig, in_time: Callable[[], bool], least: float = 0.0
    ) -> tuple[Sequence[frozenset[str]], dict[str, float]]:
        """Sets of nodes that might stay float, the most promising first, and the damage of each block.

        Only what takes away at least a part (0 to 1) of the damage of what the placement leaves on integers.

        The damage is the SNR in dB with that block alone quantized. It is emulated by the reference: so it
        needs no engine, and is the same for every one that follows the same rules.
        """
        # What each placement leaves out is no matter where it is timed: the first one's damage tells enough.
        key = "" if self.timed else choice.placement
        if key not in self._damage:
            self._damage[key] = self._damages(key, in_time)
        floats = floats_of(choice.placement, self._bench.model, self._rules)
        blocks = [block for block in self._blocks if not block.nodes <= floats]
        known = self._damage[key]
        noise = {b.name: 10 ** (-known[b.name] / 10) for b in blocks if b.name in known}
        return float_regions(self._bench.model, blocks, noise, least), known

    def _damages(self, placement: str, in_time: Callable[[], bool]) -> dict[str, float]:
        bench = self._bench
        rules = rules_of(placement, self._rules) if placement else self._rules
        floats = floats_of(placement, bench.model, rules) if placement else frozenset[str]()
        graph = self._prepare(floats)
        plan = place(graph.model, rules, graph.observations, DEFAULT, floats, bench.ranges)
        plan = optimize(graph.model, plan, rules, bench.fit, PLAIN)
        kernels = {kernel.name: kernel for kernel in find_kernels(graph.model, rules, floats)}
        samples = bench.choose[:DAMAGE_SAMPLES]
        expected = bench.judge.expected[:DAMAGE_SAMPLES]
        found = {}
        for name in self._suspects(graph, plan):
            if not in_time():
                break
            one = emit(graph.model, only(plan, kernels[name]), rules)
            found[name] = worst_snr_db(expected, emulated(one, samples))
        return found

    def _suspects(self, graph: _Prepared, plan: QuantizationPlan) -> list[str]:
        """The blocks to look at, worst first by what storing their inputs and weights alone changes."""
        nodes = {node_name(node): node for node in graph.model.graph}

        def noise(name: str) -> float:
            node = nodes[name]
            rule = rule_of(node, self._rules)
            stored = [v for v in node.inputs if v is not None and v.name in plan.activations]
            noises = [
                channel_noise(graph.observations[str(v.name)], plan.activations[str(v.name)])
                for v in stored
                if str(v.name) in graph.observations
            ]
            weights, by = plan.weights[name].stored, plan.weights[name].affine
            real = (
                array_of(node.inputs[rule.weight]) if rule is not None and rule.weight is not None else None
            )
            if real is not None:
                error = dequantize(weights, by) - real
                noises.append(float((error**2).sum() / max(float((real**2).sum()), 1e-30)))
            return sum(noises)

        return sorted(plan.weights, key=noise, reverse=True)[:SUSPECTS]

    def _prepare(self, floats: frozenset[str]) -> _Prepared:
        """The graph that a plan with these float nodes is made for: what stays float is not rewritten."""
        if floats not in self._prepared:
            bench = self._bench
            self._prepared[floats] = _Prepared(
                *rewritten(bench.model, bench.observations, self._rules, floats)
            )
        return self._prepared[floats]

    def _open(self, artifact: Artifact, threads: int) -> Runner:
        self._opened += 1
        folder = self._folder / str(self._opened)
        folder.mkdir()
        files = write_files(artifact, folder)
        bench = self._bench
        engine = registry.available(self._profile.target)
        return open_ready(engine, files, bench.inputs, bench.outputs, artifact.options, threads)


def only(plan: QuantizationPlan, kernel: Kernel) -> QuantizationPlan:
    """The part of a plan that is one kernel."""
    ends = {str(value.name) for value in (*kernel.inputs, *kernel.outputs)}
    return QuantizationPlan(
        {name: affine for name, affine in plan.activations.items() if name in ends},
        frozenset(node_name(node) for node in kernel.nodes),
        {name: weights for name, weights in plan.weights.items() if name == kernel.name},
    )


def share_of(blocks: Sequence[Block], floats: Sequence[str]) -> float:
    """Part of the products of all blocks that is in those named."""
    total = sum(block.macs for block in blocks)
    return round(sum(block.macs for block in blocks if block.name in set(floats)) / max(total, 1), 4)


def emulated(model: ir.Model, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """What a candidate answers where no engine of its target runs: its Q/DQ graph in floats, pair by pair."""
    reference = Reference(model, threads=default_threads(), optimize=True)
    return [reference.run(sample) for sample in samples]


def recorded(tried: Measurement) -> dict[str, Json]:
    """What was measured, as JSON: every digit, for it is read again."""
    found = None
    if tried.found is not None:
        task = tried.found.task
        found = {
            "agreement": [
                tried.found.agreement.metric,
                repr(tried.found.agreement.value),
                tried.found.agreement.unit,
            ],
            "snr_db": repr(tried.found.snr_db),
            "task": None if task is None else [task.metric, repr(task.value), task.unit],
        }
    return {"found": found, "ratio": tried.ratio, "refused": tried.refused, "share": tried.share}


def parsed(choice: CandidateConfig, known: Json) -> Measurement | None:
    """What was recorded; None where it is not what :func:`recorded` writes."""
    try:
        found = known["found"]
        if found is not None:
            task = found["task"] and _score(found["task"])
            found = Fidelity(_score(found["agreement"]), float(found["snr_db"]), task)
        ratio = known["ratio"]
        share, refused = float(known["share"]), str(known["refused"])
        return Measurement(choice, found, None if ratio is None else float(ratio), refused, share)
    except (KeyError, TypeError, ValueError):
        return None


def _score(row: Sequence[Json]) -> Score:
    metric, value, unit = row
    return Score(str(metric), float(value), str(unit))
