"""Accelerated copies of variants: the same files on a GPU or an NPU, beside the variants themselves.

A copy counts as failed until it has been opened in the background. For that it must have reproduced the
golden vectors within the variant's whole limit, in a child process, and be faster here than the active
variant; one that was requested need not be faster than the CPU. From then on fallbacks, cooldowns and
deadlines treat it like any variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.runtime.fallback.policy import LoadOrder, RankedVariant
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.target.accelerators import KINDS
from edgekit.target.precisions import precision_of

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.session_state import SessionOptions

DEVICES = ("cpu", "auto", *KINDS)
"""Values of ``Session(device=...)``."""


def with_copies(order: LoadOrder, options: SessionOptions) -> LoadOrder:
    """Return the load order with accelerated copies, at most one per engine and kind. A requested variant or
    engine is the only one that gets any. Copies of a requested kind come first: the CPU is their fallback.

    A GPU gets the best variant that computes in floats, because GPUs are slower with int8. An NPU gets the
    best one.

    Raises:
        UsageError: the requested device is unknown.
    """
    if options.device not in DEVICES:
        raise UsageError(f"device is {options.device!r}; it must be one of {', '.join(DEVICES)}")
    variants = [c.variant for c in order.candidates]
    variants = [
        v for v in variants if options.variant in (None, v.name) and options.engine in (None, v.target)
    ]
    copies = []
    for kind in KINDS if options.device == "auto" else (options.device,):
        for target in dict.fromkeys(variant.target for variant in variants):
            peers = [variant for variant in variants if variant.target == target]
            if kind == "gpu":
                peers = [variant for variant in peers if precision_of(variant.precision).is_float] or peers
            if can_be_accelerated(peers[0]):
                copies.append(RankedVariant(accelerated_copy(peers[0], kind), None))
    groups = (order.candidates, copies) if options.device == "auto" else (copies, order.candidates)
    return order._replace(candidates=(*groups[0], *groups[1]))


def can_be_accelerated(variant: Variant) -> bool:
    """Return whether the variant's engine runs it on accelerators."""
    if variant.has_shapes:  # each shape would need a probe
        return False
    try:
        return bool(registry.engine(variant.target).ENGINE.accelerators)
    except Exception as problem:  # unknown target, or its module does not import
        pass_on(problem)
        return False


def accelerated_copy(variant: Variant, kind: str) -> Variant:
    """Return the copy on an accelerator, e.g. ``ort-fp32@gpu``."""
    options = {**variant.options, registry.ACCELERATOR: kind}
    return variant._replace(name=f"{variant.name}@{kind}", options=options)
