"""Accelerated copies of a bundle's variants on this machine: verdict, placement and wrong nodes.

The float values of every node are computed on the accelerator and on the CPU, from the same golden vector.
A wrong node is one whose value is below the variant's SNR limit though all values that it reads are above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.source_names import SourceNames, read_source_names
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.run_bundle import golden_inputs
from edgekit.compiler.explain.explain import (
    Named,
    ValueFact,
    chosen_variants,
    compared,
    named_by,
    supported_reports,
)
from edgekit.compiler.explain.text import NAMED, called, in_decibels, value_rows
from edgekit.errors import UsageError, reason_of
from edgekit.runtime.fallback.accelerated import (
    accelerated_copy,
    can_be_accelerated,
    interfaces_of,
    refuse_unknown,
)
from edgekit.runtime.loading import golden_check, probe, unpacked_files
from edgekit.runtime.loading.load_variant import open_files
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.target.accelerators import KINDS, PlacedNode, named
from edgekit.target.contract import Runner
from edgekit.target.node_reports import NodeValue

SUFFIX = "ExecutionProvider"
"""End of the names of ONNX Runtime's providers."""


class PlacementFact(Named):
    """The execution provider that ran a node."""

    node: str
    op: str
    provider: str
    reason: str
    """Why the accelerator did not run it; "" if it did."""


class AcceleratedExplanation(TypedDict):
    """One accelerated copy on this machine."""

    variant: str
    """Name of the copy, e.g. ``ort-fp32@gpu``."""
    device: str
    """The accelerator as ``session.active`` names it; "" if the copy did not load."""
    refused: str
    """Reason why a session does not use it; "" if it does."""
    nodes: dict[str, int]
    """Number of nodes by execution provider, from the engine's profile; empty without one."""
    copies: int
    """Number of copies between the processors in a run."""
    placement: list[PlacementFact]
    """All nodes in the order in which they ran; empty if the engine runs the whole graph or refuses it."""
    fallback_reasons: dict[str, int]
    """Reason why the accelerator did not run a node -> number of such nodes, most first."""
    limit_db: float | None
    """The highest SNR limit of the variant's outputs."""
    wrong: list[ValueFact]
    """Values of wrong nodes, in the order of the graph."""
    values: list[ValueFact]
    """Values against those of the CPU, by the noise that their node adds, highest first."""
    no_values: str


def explain_accelerated(
    bundle: Bundle, device: str, name: str | None = None, *, variant: str | None = None, threads: int = 1
) -> list[AcceleratedExplanation]:
    """Verify and compare the accelerated copies of a bundle's variants.

    Args:
        device: ``gpu``, ``npu`` or the name of an interface (``edgekit doctor``).
        name: A target, a profile or a variant; None for all.
        variant: A variant, also if a profile has the same name; None for all.
        threads: Number of threads of the engine for nodes on the CPU.

    Raises:
        UsageError: nothing in the bundle has that name, or none of its engines has that device.
        BundleError: there is no golden vector.
        NoVariantError: the build rejected every variant.
    """
    golden_inputs(bundle)  # refuses a bundle without any
    chosen = chosen_variants(bundle, name if variant is None else variant, exact=variant is not None)
    able = [original for original in chosen if can_be_accelerated(original)]
    if not able:
        raise UsageError(f"{', '.join(v.name for v in chosen)}: this engine runs on the CPU only")
    refuse_unknown(device, able)
    names = read_source_names(bundle)
    reached = [v for v in able if device in KINDS or named(interfaces_of(v.target), device)]
    return [_explained(bundle, original, device, threads, names) for original in reached]


def _explained(
    bundle: Bundle, variant: Variant, device: str, threads: int, names: SourceNames
) -> AcceleratedExplanation:
    copy = accelerated_copy(variant, device)
    report: AcceleratedExplanation = {
        "variant": copy.name,
        "device": "",
        "refused": _reason(bundle, copy, threads),
        "nodes": {},
        "copies": 0,
        "placement": [],
        "fallback_reasons": {},
        "limit_db": _limit_db(bundle, variant),
        "wrong": [],
        "values": [],
        "no_values": "",
    }
    if report["refused"] and not report["refused"].startswith("output "):  # it did not load, or crashed
        report["no_values"] = "it does not run there"
        return report
    try:
        runner = _opened(bundle, copy, threads)
        try:
            facts, report["device"] = runner.facts(), runner.device
            placed: Sequence[PlacedNode] = getattr(runner, "placement", ())
        finally:
            runner.close()
        report["nodes"] = facts.get("nodes_by_provider", {})
        report["copies"] = facts.get("copies_between_processors", 0)
        report["placement"] = _placement(placed, names)
        report["fallback_reasons"] = dict(Counter(n.reason for n in placed if n.reason).most_common())
        _add_values(report, bundle, variant, copy, names)
    except Exception as problem:  # an engine may throw anything
        report["no_values"] = reason_of(problem)
    return report


def _placement(placed: Sequence[PlacedNode], names: SourceNames) -> list[PlacementFact]:
    sources = names.of_each([(node.node,) for node in placed])
    return [
        {
            **named_by(source),
            "node": node.node,
            "op": node.op,
            "provider": node.provider,
            "reason": node.reason,
        }
        for node, source in zip(placed, sources, strict=True)
    ]


def _reason(bundle: Bundle, copy: Variant, threads: int) -> str:
    try:
        return probe.probe_once(bundle, copy, threads).reason
    except Exception as problem:  # an engine may throw anything
        return reason_of(problem)


def _limit_db(bundle: Bundle, variant: Variant) -> float | None:
    limits = [golden_check.evidence_limit_db(variant.evidence, spec.name) for spec in bundle.outputs]
    return max((limit for limit in limits if limit is not None), default=None)


def _opened(bundle: Bundle, copy: Variant, threads: int) -> Runner:
    files, checks = unpacked_files.unpack(bundle, copy), OutputChecks(bundle.outputs, bundle.golden)
    return open_files(bundle, copy, files, copy.options, threads, checks)


def _add_values(
    explanation: AcceleratedExplanation, bundle: Bundle, variant: Variant, copy: Variant, names: SourceNames
) -> None:
    reports, reason = supported_reports(variant)
    look = reports.node_values
    if look is None or not reports.on_accelerators:
        explanation["no_values"] = (
            reason or "this engine does not return intermediate values from an accelerator"
        )
        return
    feeds, _ = bundle.golden_of(variant)[0]
    values, right = (
        look(unpacked_files.unpack(bundle, subject), bundle.inputs, bundle.outputs, subject.options, feeds)
        for subject in (copy, variant)
    )
    explanation["values"] = compared(values, right, names)
    limit_db = explanation["limit_db"]
    # In a verified copy, values near 0 can be below the limit too: the CPU's own error there, for one.
    if limit_db is not None and explanation["refused"]:
        explanation["wrong"] = wrong_values(explanation["values"], right, limit_db)


def wrong_values(values: Sequence[ValueFact], graph: Sequence[NodeValue], limit_db: float) -> list[ValueFact]:
    """Return the values below a limit whose nodes read none that is, in the order of the graph.

    Args:
        graph: All values in the order of the graph, with what their nodes read.
    """
    low = {
        value["value"]: value
        for value in values
        if not value["finite"] or (value["snr_db"] is not None and value["snr_db"] < limit_db)
    }
    return [low[n.value] for n in graph if n.value in low and not any(read in low for read in n.inputs)]


def placement_words(nodes: Mapping[str, int], copies: int) -> str:
    """Return how many nodes each execution provider ran, in words."""
    counts = ", ".join(f"{provider.removesuffix(SUFFIX)} {count}" for provider, count in nodes.items())
    between = f"; {copies} copies between the processors" if copies else ""
    return f"{sum(nodes.values())} nodes: {counts}{between}"


def verdict(explanation: AcceleratedExplanation) -> str:
    """Return whether a session uses the copy, in words."""
    return f"refused: {explanation['refused']}" if explanation["refused"] else "verified: a session uses it"


def render_accelerated(explanations: Iterable[AcceleratedExplanation]) -> str:
    return "\n\n".join("\n".join(_lines(explanation)) for explanation in explanations)


def _lines(explanation: AcceleratedExplanation) -> list[str]:
    head = f"  {explanation['variant']}  {explanation['device']}".rstrip()
    lines = [f"{head}  {verdict(explanation)}"]
    if explanation["nodes"]:
        lines.append(f"  placement {placement_words(explanation['nodes'], explanation['copies'])}")
    lines += [f"  on CPU    {count} x {reason}" for reason, count in explanation["fallback_reasons"].items()]
    if not explanation["values"]:
        return [*lines, f"  accuracy  {explanation['no_values'] or 'every value is equal'}"]
    lines += [
        f"  wrong     {_named(fact)}: {in_decibels(fact, fact['snr_db'])}" for fact in explanation["wrong"]
    ]
    lines.append(f"  accuracy  {len(explanation['values'])} values compared with those on the CPU, by SQNR")
    return [*lines, *value_rows(explanation["values"][:NAMED])]


def _named(value: ValueFact) -> str:
    return f"{called(value, value['node'])} ({value['op']})"
