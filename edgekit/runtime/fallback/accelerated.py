"""Accelerated copies of variants: the same files on a GPU or an NPU, beside the variants themselves.

A copy counts as failed until it has been opened in the background. For that it must have reproduced the
golden vectors within the variant's whole limit, in a child process, and be faster here than the active
variant; one that was requested need not be faster than the CPU. From then on fallbacks, cooldowns and
deadlines treat it like any variant.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.bundle.variant import Variant
from edgekit.errors import UsageError
from edgekit.runtime.fallback.policy import LoadOrder, RankedVariant
from edgekit.runtime.session_state import SessionOptions
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.target.accelerators import KINDS, Interface, named
from edgekit.target.precisions import precision_of

DEVICES = ("cpu", "auto", *KINDS)
"""Values of ``Session(device=...)``, beside the names of interfaces."""


def with_copies(order: LoadOrder, options: SessionOptions) -> LoadOrder:
    """Return the load order with accelerated copies, at most one per engine and kind. A requested variant or
    engine is the only one that gets any. Copies of a requested device come first: the CPU is their fallback.

    A GPU gets the best variant that computes in floats, because GPUs are slower with int8. An NPU gets the
    best one.

    Raises:
        UsageError: the requested device is unknown.
    """
    variants = [c.variant for c in order.candidates]
    variants = [
        v for v in variants if options.variant in (None, v.name) and options.engine in (None, v.target)
    ]
    able = [v for v in variants if can_be_accelerated(v)]
    refuse_unknown(options.device, able)
    copies = []
    for device in KINDS if options.device == "auto" else (options.device,):
        for target in dict.fromkeys(variant.target for variant in able):
            interfaces = named(interfaces_of(target), device)
            if not interfaces and device not in KINDS:  # without a GPU the copy is refused with the reason
                continue
            peers = [variant for variant in able if variant.target == target]
            if (interfaces[0].kind if interfaces else device) == "gpu":
                peers = [variant for variant in peers if precision_of(variant.precision).is_float] or peers
            if interfaces and interfaces[0].takes:
                peers = [variant for variant in peers if variant.precision in interfaces[0].takes] or peers
            copies.append(RankedVariant(accelerated_copy(peers[0], device), None))
    groups = (order.candidates, copies) if options.device == "auto" else (copies, order.candidates)
    return order._replace(candidates=(*groups[0], *groups[1]))


def refuse_unknown(device: str, variants: Sequence[Variant]) -> None:
    """Refuse a device that is neither a kind nor an interface of the engines of these variants.

    Raises:
        UsageError: it is unknown.
    """
    interfaces = [
        interface
        for target in dict.fromkeys(variant.target for variant in variants)
        for interface in interfaces_of(target)
    ]
    if device not in DEVICES and not named(interfaces, device):
        names = dict.fromkeys(interface.name for interface in interfaces)
        raise UsageError(f"device is {device!r}; it must be one of {', '.join((*DEVICES, *names))}")


def interfaces_of(target: str) -> Sequence[Interface]:
    """Return the interfaces of a target's engine; none if it runs on the CPU only."""
    engine = registry.engine(target)
    return registry.accelerators_of(engine).INTERFACES if engine.ENGINE.accelerators else ()


def can_be_accelerated(variant: Variant) -> bool:
    """Return whether the variant's engine runs it on accelerators."""
    if variant.has_shapes:  # each shape would need a probe
        return False
    try:
        return bool(registry.engine(variant.target).ENGINE.accelerators)
    except Exception as problem:  # unknown target, or its module does not import
        pass_on(problem)
        return False


def accelerated_copy(variant: Variant, device: str) -> Variant:
    """Return the copy on an accelerator, e.g. ``ort-fp32@gpu``."""
    options = {**variant.options, registry.ACCELERATOR: device}
    return variant._replace(name=f"{variant.name}@{device}", options=options)
