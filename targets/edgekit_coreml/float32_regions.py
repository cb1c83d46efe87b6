"""Float32 regions of an fp16 program: nodes that must compute in float32, found with samples.

    trace     the fp16 program next to the fp32 program: SNR and headroom of each ONNX node's values
    overflow  a value near the end of float16's range: its maker and its readers compute in float32
    noise     an output below ENOUGH_DB: what each node's rounding does to it, and float32 for the worst

What a node's rounding does to the outputs is measured: the fp32 program runs with that node alone as a fp16
program has it (operands, weights and results rounded). Such noises add up: YOLOX-nano, sixteen parts of 16
operators, measured one by one, sum to 37.9 dB; all together are at 38.6. 88 % of it is the stem's.

First parts of the graph are measured, then the nodes of the worst parts, until the rest is accurate enough:
at most SEGMENTS + OPENED * nodes / SEGMENTS runs, independent of the machine's speed, so that the bytes are
the same everywhere.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit.tensor_spec import Array, Json
from edgekit_coreml.interpreter.execute import Executor
from edgekit_coreml.interpreter.one_node import converted
from edgekit_coreml.interpreter.program import Op, find_in_package, read_package
from edgekit_coreml.package import FORMAT_OF_IOS, MANIFEST, package_files
from edgekit_coreml.program import Lowered, lower_model
from edgekit_coreml.rounding import rounded_kernels
from edgekit_coreml.values import HALF_LIMIT, MASK_LIMIT

ENOUGH_DB = 40.0
"""Minimum SNR of every output of an fp16 package, as in compiler/evaluate/verify.py for fp16 arithmetic."""
MARGIN_DB = 1.0
"""Aimed at so much more: the search sees some of the samples."""
HEADROOM = 1.5
"""A value beyond float16's range divided by this is taken to overflow: other inputs have other values. A mask
(MASK_LIMIT) is within it."""
SEGMENTS, OPENED, ROUNDS = 16, 4, 3
"""Parts of the graph, how many of them are measured node by node, how often the choice is corrected."""
NAMED = 8
"""How many nodes of the lowest SNR and of the least headroom are reported."""
KEPT_BYTES = 256 << 20
"""What is before the node that is measured is not run again, as long as all values together are no more."""
LAST_SAMPLES = 2
"""Samples that are looked at."""

Noise = Mapping[str, float]
"""Output -> power of the noise over the power of the signal."""


@dataclass(frozen=True)
class NodeAccuracy:
    """Accuracy and range of one ONNX node's values in the fp16 program.

    Attributes:
        snr_db: SNR against the fp32 program in dB, including all earlier noise; None if they are equal.
        headroom_db: Distance of the largest magnitude from the end of float16, 20 log10(65504 / |x|), in dB.
    """

    node: str
    op: str
    snr_db: float | None
    headroom_db: float

    def as_json(self) -> Json:
        figures = {"snr_db": self.snr_db, "headroom_db": self.headroom_db}
        finite = {key: v if v is not None and math.isfinite(v) else None for key, v in figures.items()}
        return {"node": self.node, "op": self.op, **finite}


@dataclass
class Float32Regions:
    """Nodes that must compute in float32, and the trace that shows why.

    Attributes:
        visited: The trace of the fp16 program, in the order of the graph.
        lowered: The program with these nodes in float32; None if there are no such nodes.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    visited: list[NodeAccuracy] = field(default_factory=list)
    lowered: Lowered | None = None

    def facts(self) -> Json:
        """Return the nodes of the lowest SNR and of the least headroom, for the report."""
        noisy = sorted((s for s in self.visited if s.snr_db is not None), key=lambda s: s.snr_db or 0.0)
        near = sorted(self.visited, key=lambda s: s.headroom_db)
        return {
            "lowest_snr": [s.as_json() for s in noisy[:NAMED]],
            "least_headroom": [s.as_json() for s in near[:NAMED]],
        }


@dataclass(frozen=True)
class _LoadedProgram:
    """A lowered model that runs; ``nodes``: the ONNX node of each operator in order, "" for none."""

    lowered: Lowered
    executor: Executor
    nodes: tuple[str, ...]

    def feeds(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        return {
            entry["mil"]: np.asarray(sample[entry["name"]]).astype(entry["dtype"]).reshape(entry["shape"])
            for entry in self.lowered.inputs
        }

    def run(self, sample: Mapping[str, Array], **options: Any) -> dict[str, Array]:
        """Run a sample and return the outputs by their ONNX names, float64."""
        outputs = self.executor.run(self.feeds(sample), **options)
        return {entry["name"]: outputs[entry["mil"]].astype(np.float64) for entry in self.lowered.outputs}


def find_float32_regions(
    model: ir.Model, ios: int, samples: Sequence[Mapping[str, Array]], fixed: Collection[str]
) -> Float32Regions:
    """Find the nodes that must compute in float32 for every output to reach ENOUGH_DB, and no others.

    Args:
        samples: Inputs; the first LAST_SAMPLES are used.
    """
    samples = samples[:LAST_SAMPLES]
    full, fp16 = _load(model, "fp32", ios, frozenset()), _load(model, "fp16", ios, frozenset(fixed))
    nodes, exact, noises = _compared(model, full, fp16, samples)
    regions = Float32Regions(visited=nodes)
    near = {s.node for s in nodes if s.headroom_db < 20 * math.log10(HEADROOM)}
    regions.reasons = {
        name: cause for name, cause in _overflows(model, near, nodes).items() if name not in fixed
    }
    if regions.reasons:
        regions.lowered, noises = _measured(model, ios, frozenset({*fixed, *regions.reasons}), samples, exact)
    if _db(noises[_worst(noises)]) >= ENOUGH_DB:
        return regions
    in_float32, worst = {*fixed, *regions.reasons}, _worst(noises)
    costs = _costs(full, samples[worst], exact[worst], [n for n in _order(full) if n not in in_float32])
    goal = 10 ** (-(ENOUGH_DB + MARGIN_DB) / 10)
    for _ in range(ROUNDS):
        picked = _picked(costs, goal)
        regions.lowered, noises = _measured(model, ios, frozenset({*in_float32, *picked}), samples, exact)
        reached = _db(noises[_worst(noises)])
        if reached >= ENOUGH_DB:
            break
        goal *= min(10 ** ((reached - ENOUGH_DB - MARGIN_DB) / 10), 0.5)
    regions.reasons |= {name: _noise_reason(name, costs[name]) for name in _order(full) if name in picked}
    return regions


def _load(model: ir.Model, precision: str, ios: int, full: frozenset[str]) -> _LoadedProgram:
    lowered = lower_model(model, precision, ios, full)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        for name, content in package_files(lowered.program, FORMAT_OF_IOS[ios], {}).items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        executor = Executor(read_package(*find_in_package(Path(folder) / MANIFEST)))
    makers = {str(o.name): node_name(node) for node in model.graph for o in node.outputs}
    nodes = []
    for op in executor.steps:
        name = op.outputs[0][0]
        nodes.append(makers.get(lowered.names.get(name, ""), "") or lowered.origins.get(name, ""))
    return _LoadedProgram(lowered, executor, tuple(nodes))


def _order(loaded: _LoadedProgram) -> list[str]:
    return [name for name in dict.fromkeys(loaded.nodes) if name]


def _measured(
    model: ir.Model,
    ios: int,
    full: frozenset[str],
    samples: Sequence[Mapping[str, Array]],
    exact: Sequence[Mapping[str, Array]],
) -> tuple[Lowered, list[Noise]]:
    """Build the fp16 program with ``full`` in float32; measure its output noise for each sample."""
    fp16 = _load(model, "fp16", ios, full)
    noises = [_noise(right, fp16.run(sample)) for right, sample in zip(exact, samples, strict=True)]
    return fp16.lowered, noises


def _worst(noises: Sequence[Noise]) -> int:
    return min(range(len(noises)), key=lambda i: _db(noises[i]))


def _noise(exact: Mapping[str, Array], outputs: Mapping[str, Array]) -> Noise:
    noise = {}
    for name, right in exact.items():
        with np.errstate(all="ignore"):
            wrong = float(np.square(outputs[name] - right)[np.isfinite(right)].sum())
            signal = float(np.square(right[np.isfinite(right)]).sum())
        noise[name] = (wrong / signal if signal else math.inf) if wrong else 0.0
        if math.isnan(noise[name]):
            noise[name] = math.inf
    return noise


def _db(noise: Noise) -> float:
    worst = max(noise.values(), default=0.0)
    return math.inf if worst == 0 else -10 * math.log10(worst) if math.isfinite(worst) else -math.inf


def _compared(
    model: ir.Model, full: _LoadedProgram, fp16: _LoadedProgram, samples: Sequence[Mapping[str, Array]]
) -> tuple[list[NodeAccuracy], list[dict[str, Array]], list[Noise]]:
    """Return each node's SNR and headroom over the samples, and each sample's exact outputs and noise.

    No value after an overflow is finite, so there the magnitude is the fp32 program's.
    """
    ops = {node_name(node): node.op_type for node in model.graph}
    wrong: dict[str, float] = {}
    signal: dict[str, float] = {}
    exactly: dict[str, float] = {}
    outputs: list[dict[str, Array]] = []
    noises: list[Noise] = []
    by_step = dict(zip((op.outputs[0][0] for op in fp16.executor.steps), fp16.nodes, strict=True))
    for sample in samples:
        right: dict[str, Array] = {}

        def keep(op: Op, name: str, array: Array, right: dict[str, Array] = right) -> None:
            if name in full.lowered.names and array.dtype == np.float32:
                right[full.lowered.names[name]] = array

        def compare(op: Op, name: str, array: Array, right: Mapping[str, Array] = right) -> None:
            exact = right.get(fp16.lowered.names.get(name, ""))
            node = by_step.get(op.outputs[0][0], "")
            if exact is not None and exact.shape == array.shape and node:
                finite = np.isfinite(exact)
                mask = slice(None) if finite.all() else finite.ravel()
                wide = exact.ravel()[mask].astype(np.float64)
                apart = converted(array, "float32").ravel()[mask] - wide
                wrong[node] = wrong.get(node, 0.0) + float(apart @ apart)
                signal[node] = signal.get(node, 0.0) + float(wide @ wide)
                exactly[node] = max(exactly.get(node, 0.0), float(np.abs(wide).max(initial=0.0)))

        outputs.append(full.run(sample, trace=keep))
        noises.append(_noise(outputs[-1], fp16.run(sample, trace=compare)))
    largest: dict[str, float] = {}
    for name, size in fp16.executor.extremes.items():
        node = by_step.get(name, "")
        magnitude = size if size <= HALF_LIMIT else exactly.get(node, size)
        largest[node] = max(largest.get(node, 0.0), magnitude)
    accuracies = [
        NodeAccuracy(
            name,
            ops[name],
            _rounded(_ratio_db(signal.get(name, 0.0), wrong.get(name, 0.0))),
            _rounded(20 * math.log10(HALF_LIMIT / largest[name])) or 0.0,
        )
        for name in _order(fp16)
        if name in ops and largest.get(name, 0.0) > 0
    ]
    return accuracies, outputs, noises


def _ratio_db(signal: float, wrong: float) -> float | None:
    if wrong == 0.0:
        return None
    return 10 * math.log10(signal / wrong) if signal and math.isfinite(wrong) else -math.inf


def _rounded(value: float | None) -> float | None:
    return value if value is None or not math.isfinite(value) else round(value, 1)


def _overflows(model: ir.Model, near: set[str], nodes: Sequence[NodeAccuracy]) -> dict[str, str]:
    """Return the nodes whose values leave float16's range, and their readers, with the reasons."""
    reasons = {}
    headroom_db = {s.node: s.headroom_db for s in nodes}
    for node in model.graph:
        name = node_name(node)
        if name in near:
            size = HALF_LIMIT / 10 ** (headroom_db[name] / 20)
            reasons[name] = f"its values reach {size:.4g}, and float16 ends at {HALF_LIMIT:g}"
            for output in node.outputs:
                for use in output.uses():
                    reads = f"it reads {output.name}, which reaches {size:.4g}"
                    reasons.setdefault(node_name(use.node), f"{reads}; float16 ends at {HALF_LIMIT:g}")
    return reasons


def _costs(
    full: _LoadedProgram, sample: Mapping[str, Array], exact: Mapping[str, Array], nodes: Sequence[str]
) -> dict[str, Noise]:
    """Measure the output noise of one node in float16, for each node of the worst parts.

    The entry "" is the total noise of all other nodes.
    """
    values = _float32_values(full, sample)
    rounded: dict[int, tuple[Any, Array]] = {}  # with the array itself: a key by id() holds while it lives
    node_of = dict(zip((op.outputs[0][0] for op in full.executor.steps), full.nodes, strict=True))

    def only(chosen: Collection[str]) -> Noise:
        selected = frozenset(chosen)

        def narrow(op: Op, key: str, operand: Any) -> Any:
            return _as_fp16(key, operand, rounded) if node_of[op.outputs[0][0]] in selected else operand

        before = full.nodes.index(next(n for n in full.nodes if n in selected)) if values else 0
        return _noise(exact, full.run(sample, narrow=narrow, before=before, computed=values))

    count = min(SEGMENTS, len(nodes))
    bounds = [len(nodes) * k // count for k in range(count + 1)] if count else []
    parts = [nodes[a:b] for a, b in pairwise(bounds)]
    measured = [only(part) for part in parts]
    left = sorted(range(len(parts)), key=lambda k: -_db(measured[k]))
    opened: list[int] = []
    while left and (len(opened) < OPENED or _db(measured[left[-1]]) == -math.inf):
        if _db(_sum([measured[k] for k in left])) >= ENOUGH_DB + 2 * MARGIN_DB:
            break
        opened.append(left.pop())
    costs = {name: only([name]) for k in sorted(opened) for name in parts[k]}
    costs[""] = _sum([measured[k] for k in left])
    return costs


def _float32_values(full: _LoadedProgram, sample: Mapping[str, Array]) -> dict[str, Array]:
    """Return every value of the float32 run, or none if they exceed KEPT_BYTES."""
    values: dict[str, Array] = {}
    left_bytes = KEPT_BYTES

    def keep(op: Op, name: str, array: Array) -> None:
        nonlocal left_bytes
        left_bytes -= array.nbytes
        if left_bytes < 0:
            values.clear()
        else:
            values[name] = array

    full.run(sample, trace=keep)
    return values


def _as_fp16(key: str, operand: Any, rounded: dict[int, tuple[Any, Array]]) -> Any:
    """Round a float32 operand or result as the fp16 program does; weights as the compiler rounds them."""
    if isinstance(operand, list):
        return [_as_fp16(key, one, rounded) for one in operand]
    if not isinstance(operand, np.ndarray) or operand.dtype != np.float32 or not operand.ndim:
        return operand
    if key != "weight" or operand.ndim < 3:
        beyond = np.isfinite(operand) & (np.abs(operand) > HALF_LIMIT) if key else False
        limited = np.where(beyond, np.sign(operand) * MASK_LIMIT, operand) if np.any(beyond) else operand
        return converted(converted(limited, "float16"), "float32")
    if id(operand) not in rounded:
        rounded[id(operand)] = operand, rounded_kernels(operand).astype(np.float32)
    return rounded[id(operand)][1]


def _sum(noises: Sequence[Noise]) -> Noise:
    names = {name for noise in noises for name in noise}
    return {name: sum(noise[name] for noise in noises) for name in names}


def _picked(costs: Mapping[str, Noise], goal: float) -> set[str]:
    """Pick the fewest nodes, worst first, without which every output's noise is at most ``goal``."""
    left = dict(costs)
    picked: set[str] = set()
    while len(left) > 1:
        total = _sum(list(left.values()))
        output = max(total, key=lambda name: total[name])
        if total[output] <= goal:
            break
        worst = max((n for n in left if n), key=lambda n: left[n][output])
        picked.add(worst)
        del left[worst]
    return picked


def _noise_reason(name: str, noise: Noise) -> str:
    output = max(noise, key=lambda one: noise[one])
    if not math.isfinite(noise[output]):
        return f"in float16 it makes output {output} infinite"
    return f"in float16 its rounding alone leaves output {output} at {_db(noise):.1f} dB"
