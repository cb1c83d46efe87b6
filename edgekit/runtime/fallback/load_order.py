"""The order in which a session loads the variants of its bundle, from the times known on this device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.bundle.device_evidence import times_of_this_processor
from edgekit.errors import UsageError
from edgekit.runtime.fallback.policy import (
    LoadOrder,
    built_for_instructions,
    built_for_processor,
    estimates,
    rank,
)
from edgekit.system import cpu, timings
from edgekit.target import registry

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.session_state import SessionOptions


def rank_variants(
    bundle: Bundle, options: SessionOptions, local_times: Mapping[str, tuple[float, str]]
) -> LoadOrder:
    """Return the load order of a session.

    Args:
        local_times: Times that sessions measured on this device: variant -> (ms, engine).

    Raises:
        UsageError: the bundle has no such variant, or none for the engine.
    """
    variants, requested, name = bundle.variants, options.engine, options.variant
    if name is not None:
        named = next((variant for variant in variants if variant.name == name), None)
        if named is None:
            have = ", ".join(variant.name for variant in variants) or "none at all"
            raise UsageError(f"{bundle.name} has no variant {name!r}; it has {have}")
        if requested not in (None, named.target):
            raise UsageError(f"variant {name} is for engine {named.target}, not for {requested}; give one")
    targets = sorted({variant.target for variant in variants})
    if requested is not None and requested not in targets:
        raise UsageError(
            f"{bundle.name} has no variant for engine {requested!r}; "
            f"it has {', '.join(targets) or 'none at all'}"
        )
    built = {v.name: timings.milliseconds_of(v.evidence.get("timing")) for v in variants}
    # Next to times of this machine stand those of a device with the same processor.
    local_ms = times_of_this_processor(bundle.manifest, options.threads)
    local_ms |= {name: time_ms for name, (time_ms, _) in local_times.items()}
    built_ms = {name: time_ms for name, time_ms in built.items() if time_ms is not None}
    profiles, kind = bundle.manifest["profiles"], cpu.processor_kind()
    unsuited = {v.name: reason for v in variants if (reason := cpu.lacking(v.options))}
    forged = (v.name for v in variants if registry.ACCELERATOR in v.options)
    unsuited |= dict.fromkeys(forged, f"its option {registry.ACCELERATOR} is for a session to set")
    preferred: frozenset[str] = frozenset()
    if not local_ms:
        suited = [v for v in variants if v.name not in unsuited]
        preferred = built_for_processor(variants, profiles, kind) or built_for_instructions(suited, profiles)
    order = rank(variants, estimates(built_ms, local_ms), requested, preferred, name, unsuited)
    if options.device == "cpu":
        return order
    from edgekit.runtime.fallback.accelerated import with_copies  # here: most sessions run on the CPU

    return with_copies(order, options)


def why_emulated(variant: Variant, options: SessionOptions) -> str:
    """Return the reason that a session must not run a variant, or "" if it may. The reason is that its engine
    only emulates the device, and neither of them was requested. The target's module ``run`` is imported.

    Raises:
        ProfileError: no such target.
    """
    stands_in_for = registry.engine(variant.target).ENGINE.stands_in_for
    if stands_in_for is None or variant.target == options.engine or variant.name == options.variant:
        return ""
    device = stands_in_for()
    return f"needs {device}; engine={variant.target!r} runs an emulation of it here" if device else ""
