"""Filters of the template: what a table's cell holds, with its unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgekit.bundle.causes import CauseText
from edgekit.compiler.explain.accelerated import SUFFIX, AcceleratedExplanation, placement_words, verdict
from edgekit.compiler.explain.explain import Explanation, ValueFact
from edgekit.compiler.explain.text import called, in_decibels
from edgekit.report.facts import SearchCandidate
from edgekit.system.formats.plain_text import milliseconds, shortened

NODES = 20
"""So many nodes of a variant are listed, the slowest or those that add the most noise."""
Row = tuple[str, ...]


def capitalize_first(text: str) -> str:
    """Capitalize the first letter of a text. The rest is unchanged.

    >>> capitalize_first("int8 on ONNX")
    'Int8 on ONNX'
    """
    return text[:1].upper() + text[1:]


def cause_row(cause: CauseText) -> Row:
    """layer, cause, magnitudes, SNR in plain int8, SNR as it is stored, what was done"""
    return cause.layer, cause.kind, cause.reach, cause.plain, cause.left, cause.done


def candidate_row(candidate: SearchCandidate) -> Row:
    """choice, accuracy, SNR, time over the float parent's, result"""
    accuracy, snr_db, ratio = candidate.accuracy, candidate.snr_db, candidate.ratio
    return (
        candidate.choice,
        "-" if accuracy is None else f"{accuracy:.3f}",
        "-" if snr_db is None else f"{snr_db:.1f} dB",
        "-" if ratio is None else f"{ratio:.2f}x",
        candidate.lost or "chosen",
    )


def damage_row(damage: tuple[str, float, bool, str]) -> Row:
    """block, SNR with it alone in int8, int8 or float, classes of cause"""
    name, snr_db, repaired, kinds = damage
    return name, f"{snr_db:.1f} dB", "float" if repaired else "int8", kinds or "-"


def time_rows(explanation: Explanation) -> list[Row]:
    """node, op, time, share of the whole"""
    total = explanation["nodes_ms"]
    assert total is not None
    return [
        (shortened(called(n, n["node"])), n["op"], milliseconds(n["ms"]), f"{n['ms'] / total:.1%}")
        for n in explanation["nodes"][:NODES]
    ]


def value_rows(explanation: Explanation) -> list[Row]:
    """node, op, SQNR that it alone would leave, SQNR of its value"""
    return _value_rows([v for v in explanation["values"] if v["adds_db"] is not None or not v["finite"]])


def wrong_rows(explanation: AcceleratedExplanation) -> list[Row]:
    """node, op, own SQNR, total SQNR of the wrong nodes"""
    return _value_rows(explanation["wrong"])


def _value_rows(values: Sequence[ValueFact]) -> list[Row]:
    return [
        (
            shortened(called(v, v["node"])),
            v["op"],
            in_decibels(v, v["adds_db"]),
            in_decibels(v, v["snr_db"]),
        )
        for v in values[:NODES]
    ]


def provider_rows(explanation: AcceleratedExplanation) -> list[Row]:
    """execution provider, nodes, operators with their number"""
    ops: dict[str, Counter[str]] = {}
    for node in explanation["placement"]:
        ops.setdefault(node["provider"], Counter())[node["op"]] += 1
    return [
        (
            provider.removesuffix(SUFFIX),
            str(count.total()),
            ", ".join(f"{op} {number}" for op, number in count.most_common()),
        )
        for provider, count in ops.items()
    ]


def fallback_rows(explanation: AcceleratedExplanation) -> list[Row]:
    """node, operator, reason why it runs on the CPU"""
    left = [node for node in explanation["placement"] if node["reason"]]
    return [(shortened(called(node, node["node"])), node["op"], node["reason"]) for node in left]


def reason_rows(reasons: Mapping[str, int]) -> list[Row]:
    """number of nodes, reason"""
    return [(str(count), reason) for reason, count in reasons.items()]


def placement_summary(explanation: AcceleratedExplanation) -> str:
    """Return how many nodes ran where, as a sentence."""
    if explanation["nodes"]:
        return f"{placement_words(explanation['nodes'], explanation['copies'])}."
    return explanation["device"] and f"{explanation['device']} runs the whole graph."


FILTERS: Mapping[str, Callable[..., Any]] = {
    "candidate_row": candidate_row,
    "cause_row": cause_row,
    "capitalize_first": capitalize_first,
    "damage_row": damage_row,
    "fallback_rows": fallback_rows,
    "milliseconds": milliseconds,
    "placement_summary": placement_summary,
    "provider_rows": provider_rows,
    "reason_rows": reason_rows,
    "time_rows": time_rows,
    "value_rows": value_rows,
    "verdict": verdict,
    "wrong_rows": wrong_rows,
}
