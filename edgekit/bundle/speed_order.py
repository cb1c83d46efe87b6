"""The order of variants by speed: the one that a session tries first is the one that a report advises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant

EQUAL_RATIO = 1.03
"""Times within this ratio of the fastest count as equal, and the order in the bundle decides: measurements
vary by more than a percent, and the choice must not."""


def fastest_first(variants: Sequence[Variant], times_ms: Mapping[str, float]) -> list[Variant]:
    """Sort variants by time, fastest first, with equal times in bundle order. Untimed ones follow, the
    smallest first: they met their limits of accuracy, and a run reads all weights.
    """
    left = [v for v in variants if v.name in times_ms]
    ordered = []
    while left:
        limit_ms = min(times_ms[v.name] for v in left) * EQUAL_RATIO
        ordered.append(next(v for v in left if times_ms[v.name] <= limit_ms))
        left.remove(ordered[-1])
    return ordered + sorted((v for v in variants if v.name not in times_ms), key=_size_bytes)


def _size_bytes(variant: Variant) -> float:
    """Size of a variant's files; infinite if the bundle does not state it (evidence is unvalidated JSON)."""
    size = variant.evidence.get("size_bytes")
    return size if isinstance(size, int | float) and not isinstance(size, bool) else math.inf
