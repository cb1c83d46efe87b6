"""Measurement of a bundle's variants by node, on this machine: time and accuracy loss.

time      the engine's own profiler on the golden vector: what each node takes, once the engine has merged
          what it merges; named by the source model's nodes
accuracy  every value that the variant shares with its fp32 variant, on the same vector: its ratio of signal
          to quantization noise (SQNR), and what the node adds to the noise that comes in. The SNR of a report
          is another figure: of the outputs, against the source model, on the samples of the build

The evidence of the build is shown too: what was tried, what stays in float and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.causes import cause_texts, left_out, price
from edgekit.bundle.kept_variants import kept_variants
from edgekit.bundle.report import checked_evidence, lowest_snr, notes, render_bundle
from edgekit.bundle.source_names import SourceNames, SourceNode, read_source_names
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.run_bundle import golden_inputs
from edgekit.errors import ProfileError, UsageError, install_line, reason_of
from edgekit.runtime.loading import unpacked_files
from edgekit.system.cpu import allowed_threads
from edgekit.system.progress import counted
from edgekit.target import registry
from edgekit.target.node_reports import NodeReports, NodeTimes, NodeValue
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Array

RUNS = 20
"""Of each, the least counts."""


class Named(TypedDict):
    """Source node of a row; None, "" and [] if the bundle does not record it."""

    source: str | None
    """Name of the node, as the model's author knows it."""
    source_op: str
    scope: str
    """The module that the node was called in, e.g. ``backbone.stem.conv``."""
    merged: list[str]
    """The other source nodes that run with it."""


class NodeFact(Named):
    """Time of one node that the engine runs."""

    node: str
    """The engine's name."""
    op: str
    ms: float


class ValueFact(Named):
    """Noise of one value against the fp32 variant's."""

    node: str
    op: str
    value: str
    finite: bool
    snr_db: float | None
    adds_db: float | None


class CostFact(Named):
    """Device and cycles of one node, estimated by the target's own tool, not measured."""

    node: str
    op: str
    device: str
    cycles: int | None
    why: str
    """Reason why the node is not on the accelerator; "" if it is."""


class Explanation(TypedDict):
    """Time, accuracy and evidence of one variant."""

    variant: str
    status: str
    snr: str
    """SNR of the outputs, measured at the build."""
    threads: int
    run_ms: float | None
    """Time of a whole run in ms, measured with the nodes; None if there are no times."""
    nodes_ms: float | None
    """The sum over ``nodes``."""
    outside_ms: float | None
    """``run_ms`` less ``nodes_ms``: engine time outside of nodes. Negative if the nodes sum to more."""
    parts: dict[str, float]
    """Measured parts of ``outside_ms``, in ms, e.g. ``arrays in and out``."""
    how: str
    """Note on how the times were measured; "" for an engine's own profiler."""
    nodes: list[NodeFact]
    """The slowest first."""
    no_times: str
    """Reason why there are no times."""
    estimated_by: str
    """The tool that estimated ``costs``; "" if none did."""
    costs: list[CostFact]
    """Nodes that are not on the accelerator first, then by cost, highest first."""
    against: str | None
    values: list[ValueFact]
    """Values by the noise that their node adds to its inputs' noise, highest first."""
    no_values: str
    causes: list[dict[str, str]]
    """Causes of accuracy loss (``edgekit.bundle.causes.CauseText``) from the build, the worst first."""
    price: str
    """Accuracy of plain int8 without the repairs, and the cost of the repairs; "" if it is unknown."""
    notes: list[str]


def explain(
    bundle: Bundle, name: str | None = None, *, variant: str | None = None, threads: int = 1
) -> list[Explanation]:
    """Measure every variant that has files.

    Args:
        name: A target, a profile or a variant; None for all.
        variant: A variant, also if a profile has the same name; None for all.
        threads: Number of threads of the engine while it is timed.

    Returns:
        One explanation per variant. ``adds_db`` of a value is the SNR that its node's own noise would leave.
        ``snr_db`` and ``adds_db`` are None if there is no noise, or if the value is not finite.

    Raises:
        UsageError: nothing in the bundle has that name, or ``threads`` is not from 1 to 1024.
        BundleError: there is no golden vector, an entry is damaged, or the evidence does not have a build's
            format.
        NoVariantError: the build rejected every variant.
    """
    allowed_threads(threads)
    feeds = golden_inputs(bundle)
    render_bundle(
        bundle.name, bundle.manifest, bundle.variants
    )  # refuses evidence that is not what a build writes
    chosen = chosen_variants(bundle, name if variant is None else variant, exact=variant is not None)
    names = read_source_names(bundle)
    each_in_turn = counted(chosen, "variants", name="explaining", describe=lambda variant: variant.name)
    return [_explained(bundle, selected, feeds, threads, names) for selected in each_in_turn]


def chosen_variants(bundle: Bundle, name: str | None, *, exact: bool = False) -> list[Variant]:
    """Return the variants of this name, or (but for ``exact``) of a profile or target of this name."""
    variants = kept_variants(bundle)
    chosen = [
        v for v in variants if name is None or name == v.name or (not exact and name in (v.profile, v.target))
    ]
    if chosen:
        return chosen
    rejected = next((v for v in bundle.variants if name == v.name), None)
    if rejected is not None:
        raise UsageError(f"{name} has no files in {bundle.name}: {rejected.status}")
    available = dict.fromkeys(
        label for v in variants for label in ((v.name,) if exact else (v.profile, v.name))
    )
    kind = "variant" if exact else "target or variant"
    raise UsageError(f"unknown {kind} {name!r}; available: {', '.join(available)}")


def _explained(
    bundle: Bundle, variant: Variant, feeds: Mapping[str, Array], threads: int, names: SourceNames
) -> Explanation:
    times, no_times = _times(bundle, variant, feeds, threads)
    parent = _parent(bundle, variant)
    rows, no_values = _values(bundle, variant, parent, feeds, names)
    nodes_ms = sum(node.ms for node in times.nodes) if times else None
    with checked_evidence(bundle.name):
        causes = cause_texts(variant, names.called)
        cost = price(variant, bundle.variants)
        others = [f"causes: {more}"] if (more := left_out(variant)) else []
        tool, costs = _costs(variant, names)
    return {
        "variant": variant.name,
        "status": variant.status,
        "snr": lowest_snr(variant),
        "threads": threads,
        "run_ms": times.run_ms if times else None,
        "nodes_ms": nodes_ms,
        "outside_ms": times.run_ms - nodes_ms if times and nodes_ms is not None else None,
        "parts": {name: round(ms, 4) for name, ms in times.parts} if times else {},
        "how": times.how if times else "",
        "nodes": _node_facts(times, names) if times else [],
        "no_times": no_times,
        "estimated_by": tool,
        "costs": costs,
        "against": parent.name if parent is not None and rows else None,
        "values": rows,
        "no_values": no_values,
        "causes": [text._asdict() for text in causes],
        "price": cost,
        "notes": [*others, *notes(variant), *variant.evidence.get("quantization", {}).get("because", [])],
    }


def _node_facts(times: NodeTimes, names: SourceNames) -> list[NodeFact]:
    called = [(*node.nodes, node.node) for node in times.nodes]
    source_nodes = names.of_each(
        [label if names.know(label) else node.serves for label, node in zip(called, times.nodes, strict=True)]
    )
    facts: list[NodeFact] = [
        {**named_by(nodes), "node": time.node, "op": time.op, "ms": round(time.ms, 4)}
        for time, nodes in zip(times.nodes, source_nodes, strict=True)
    ]
    return sorted(facts, key=lambda fact: -fact["ms"])


def _costs(variant: Variant, names: SourceNames) -> tuple[str, list[CostFact]]:
    """Return the estimating tool and its nodes; "" and an empty list without an estimate."""
    estimate = variant.evidence.get("cost", {})
    nodes = estimate.get("nodes", [])
    named = names.of_each([(str(node["node"]),) for node in nodes])
    costs: list[CostFact] = [
        {**named_by(sources), **{key: node[key] for key in ("node", "op", "device", "cycles", "why")}}  # type: ignore[typeddict-item]
        for sources, node in zip(named, nodes, strict=True)
    ]
    costs.sort(key=lambda cost: (not cost["why"], -(cost["cycles"] or 0)))
    return str(estimate.get("tool", "")), costs


def named_by(nodes: Sequence[SourceNode]) -> Named:
    """Return the names of a row from its source nodes, the one to name it by first."""
    if not nodes:
        return {"source": None, "source_op": "", "scope": "", "merged": []}
    first, *others = nodes
    merged = [node.name for node in others]
    return {"source": first.name, "source_op": first.op, "scope": first.scope, "merged": merged}


def _parent(bundle: Bundle, variant: Variant) -> Variant | None:
    """Return the fp32 variant of the same model for the same profile, or else for the same target."""
    peers = [v for v in bundle.variants if v.target == variant.target and v.files]
    peers = [v for v in peers if v.precision == FULL_PRECISION and v.smaller_by == variant.smaller_by]
    return next((v for v in peers if v.profile == variant.profile), peers[0] if peers else None)


def _times(
    bundle: Bundle, variant: Variant, feeds: Mapping[str, Array], threads: int
) -> tuple[NodeTimes | None, str]:
    executed = variant.evidence.get("executed")
    absent = executed.get("stands_in_for") if isinstance(executed, dict) else None
    if absent:
        return None, f"not measured: it ran on a reference executor, not {absent}"
    reports, reason = supported_reports(variant)
    measure = reports.node_times
    if measure is None:
        return None, reason or "this engine does not report the time of each node"
    try:
        files = unpacked_files.unpack(bundle, variant)
        return measure(files, bundle.inputs, bundle.outputs, variant.options, feeds, threads, RUNS), ""
    except ModuleNotFoundError as problem:
        return None, _needs(problem)
    except Exception as problem:  # as a Session does: an engine may throw anything at a file from elsewhere
        return None, reason_of(problem)


def _values(
    bundle: Bundle,
    variant: Variant,
    parent: Variant | None,
    feeds: Mapping[str, Array],
    names: SourceNames,
) -> tuple[list[ValueFact], str]:
    if variant.precision == FULL_PRECISION:
        return [], "fp32 is the reference for the other variants"
    reports, reason = supported_reports(variant)
    look = reports.node_values
    if look is None:
        return [], reason or "this engine does not return intermediate values"
    if parent is None:
        return [], "the bundle has no fp32 variant of this target to compare with"
    try:
        values, right = (
            look(
                unpacked_files.unpack(bundle, subject), bundle.inputs, bundle.outputs, subject.options, feeds
            )
            for subject in (variant, parent)
        )
    except ModuleNotFoundError as problem:
        return [], _needs(problem)
    except Exception as problem:  # see _times
        return [], reason_of(problem)
    placement = str(variant.evidence.get("quantization", {}).get("placement", ""))
    rescaled = {
        name for row in variant.evidence.get("equalized", []) if not row["undone"] for name in row["values"]
    }
    values = [value for value in values if value.value not in rescaled]
    rows = compared(values, right, names, centred="centred" in placement)
    return rows, "" if rows else f"no intermediate values in common with {parent.name}"


def supported_reports(variant: Variant) -> tuple[NodeReports, str]:
    """Return the reports that the variant's target supports, or none and the reason if it can't be loaded."""
    try:
        return registry.node_reports(variant.target), ""
    except ModuleNotFoundError as problem:
        return NodeReports(), _needs(problem)
    except ProfileError as problem:  # the bundle was built where more targets are installed
        return NodeReports(), str(problem)


def _needs(problem: ModuleNotFoundError) -> str:
    return f"this needs {problem.name}: {install_line('build')}"


def compared(
    values: Sequence[NodeValue],
    right: Sequence[NodeValue],
    names: SourceNames | None = None,
    *,
    centred: bool = False,
) -> list[ValueFact]:
    """Compare the values that both variants have with the same shape; the node that adds most noise is first.

    Noise is a power relative to the signal's. A node adds the noise of its value beyond that of the noisiest
    value that it reads, in the graph of ``right``, which has no pairs of QuantizeLinear and DequantizeLinear.

    Args:
        right: Values of its fp32 variant.
        centred: Whether some values are stored less a constant (zero_centring.py), which is not noise.
    """
    # The first of a name: behind it a .tflite has what moves it into another layout.
    exact = {value.value: value for value in reversed(right)}
    noise: dict[str, float] = {}
    for value in values:
        reference = exact.get(value.value)
        if reference is None or value.value in noise:
            continue
        if reference.array.shape == value.array.shape and np.any(reference.array):
            noise[value.value] = _noise(value.array, reference.array, centred)
    rows = []
    for name, noise_share in noise.items():
        node = exact[name]
        before = max((noise[read] for read in node.inputs if read in noise), default=0.0)
        rows.append((0.0 if math.isinf(before) else noise_share - before, node, noise_share))
    rows.sort(key=lambda row: -row[0])
    called = (names or SourceNames([])).of_each([(node.value,) for _, node, _ in rows])
    return [
        {
            **named_by(nodes),
            "node": node.node,
            "op": node.op,
            "value": node.value,
            "finite": math.isfinite(noise_share),
            "snr_db": _db(noise_share),
            "adds_db": _db(added),
        }
        for nodes, (added, node, noise_share) in zip(called, rows, strict=True)
    ]


def _noise(array: Array, right: Array, centred: bool) -> float:
    with np.errstate(all="ignore"):
        exact = right.astype(np.float64)
        apart = array - exact
        wrong = np.square(apart - apart.mean() if centred else apart).mean()
        share = float(wrong / np.square(exact).mean()) if wrong else 0.0
    return share if math.isfinite(share) else math.inf


def _db(noise: float) -> float | None:
    """Return decibels; None without noise, or if the value is not finite."""
    return round(-10 * math.log10(noise), 1) if 0 < noise < math.inf else None
