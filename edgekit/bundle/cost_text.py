"""The estimated cost of a variant in words (edgekit/target/cost_estimate.py): never called measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from edgekit.bundle.variant import Variant
from edgekit.system.formats.plain_text import kibibytes, milliseconds
from edgekit.tensor_spec import Json

NAMED = 3
"""So many nodes of a reason are named."""


def device_notes(variant: Variant) -> Iterator[str]:
    """Yield sentences about a variant's time, cost and memory on its device.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the evidence is not what a build writes.
    """
    timing = variant.evidence.get("timing")
    if timing and timing.get("elsewhere"):
        measured = f"{milliseconds(timing['p50_ms'])} on the machine of the build, {timing['cpu']}"
        yield (
            f"{measured}, whose processor is of another kind: edgekit bench --device measures it on the "
            "device"
        )
    yield from cost_notes(variant)
    yield from memory_notes(variant)


def cost_notes(variant: Variant) -> Iterator[str]:
    """Yield sentences about a variant's cost estimate; none if its target has no estimate.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the evidence is not what a build writes.
    """
    cost = variant.evidence.get("cost")
    if not cost:
        return
    if "failed" in cost:
        yield f"its cost was not estimated: {cost['failed']}"
        return
    parts = []
    if cost["cycles"] is not None:
        parts.append(f"{cost['cycles']:,} cycles")
    if cost["latency_ms"] is not None:
        parts.append(milliseconds(cost["latency_ms"]))
    parts += [f"{name} {kibibytes(used)}" for name, used in cost["memory_bytes"].items()]
    if cost["nodes"]:
        parts.append(placed(cost["nodes"]))
    figures = ", ".join(parts) or "nothing told"
    yield f"estimated by {cost['tool']} ({cost['configuration']}), not measured: {figures}"
    yield from left_to_others(cost["nodes"])
    yield from map(str, cost["notes"])


def memory_notes(variant: Variant) -> Iterator[str]:
    """Yield a sentence about the memories of its device that a variant takes, if that is known."""
    parts = []
    for name, use in variant.evidence.get("memory", {}).items():
        limit = f" of {kibibytes(use['limit_bytes'])}" if use["limit_bytes"] is not None else ""
        parts.append(f"{name} {kibibytes(use['bytes'])}{limit} ({use['by']})")
    if parts:
        yield f"takes {', '.join(parts)}"


def placed(nodes: Json) -> str:
    """Return in words how many nodes each device has.

    >>> placed([{"device": "NPU"}, {"device": "NPU"}, {"device": "CPU"}])
    '2 of 3 nodes on NPU, 1 on CPU'
    """
    (first, node_count), *others = Counter(str(node["device"]) for node in nodes).most_common()
    rest = "".join(f", {count} on {device}" for device, count in others)
    return f"{node_count} of {len(nodes)} nodes on {first}{rest}"


def left_to_others(nodes: Json) -> Iterator[str]:
    """Yield the nodes that the accelerator does not take, by reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if node["why"]:
            by_reason.setdefault((node["device"], node["why"]), []).append(f"{node['op']} {node['node']}")
    for (device, reason), names in by_reason.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"on {device}: {', '.join(names[:NAMED])}{more}: {reason}"
