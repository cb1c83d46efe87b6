"""The draft of a bundle for the decoder that is loaded: which variant, and how it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edgekit.bundle.draft_entry import DraftEntry, draft_of
from edgekit.errors import EngineError
from edgekit.runtime import local_timings
from edgekit.runtime.generate.draft_model import DraftModel
from edgekit.runtime.generate.memory_plan import MemoryPlan, check_draft_memory, plan_memory
from edgekit.runtime.loading import unpacked_files
from edgekit.system.cpu import lacking
from edgekit.system.timings import milliseconds_of
from edgekit.target import registry
from edgekit.target.decoder import DecoderShape

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.session_state import SessionOptions
    from edgekit.target.decoder import DecoderRunner

Probe = Callable[["Variant"], None]


def draft_for(
    bundle: Bundle,
    variant: Variant,
    plan: MemoryPlan,
    spare_bytes: int,
    options: SessionOptions,
    version: str,
    probe: Probe | None,
) -> DraftModel | None:
    """Return the draft for a variant that is loaded; its own decoder is loaded when it is asked for.

    Args:
        bundle: Has the variant.
        variant: The one that is loaded.
        plan: Its memory.
        spare_bytes: What is free beside it.
        options: Of the session.
        version: Of the engine.
        probe: Loads a variant once in a child process, and raises EngineError; None: that was not asked for.

    Returns:
        None: the bundle has no draft.

    Raises:
        BundleError: the draft is malformed.
    """
    entry = draft_of(bundle.name, bundle.manifest)
    if entry is None:
        return None
    chosen = _best(bundle, entry, variant)
    if chosen is None:
        return DraftModel(partial(_none_for, variant.target), entry.agreement)
    identity = f"{local_timings.artifact(bundle, chosen)} {version}"

    def load() -> DecoderRunner:
        shape, own = DecoderShape.of(chosen.options), DecoderShape.of(variant.options)
        if shape.vocabulary != own.vocabulary:
            raise EngineError(f"it has {shape.vocabulary} tokens and the model {own.vocabulary}")
        size_bytes = sum(bundle.size_bytes(name) for name in chosen.files.values())
        capacity = min(plan.capacity, shape.context)
        needed = plan_memory(chosen.options, size_bytes, capacity, plan.conversations, 0)
        check_draft_memory(chosen.name, needed, spare_bytes)
        if probe is not None:
            probe(chosen)
        files = unpacked_files.unpack_noted(bundle, chosen).files
        return registry.open_decoder(chosen.target, files, chosen.options, options.threads, capacity)

    return DraftModel(load, entry.agreement, identity, plan.conversations)


def _best(bundle: Bundle, entry: DraftEntry, variant: Variant) -> Variant | None:
    """Choose the draft variant of the same engine: the fastest where times are known, else the smallest."""
    able = [v for v in entry.variants if v.usable and v.target == variant.target and not lacking(v.options)]

    def cost(each: Variant) -> tuple[bool, float, int]:
        time_ms = milliseconds_of(each.evidence.get("timing"))
        size_bytes = sum(bundle.size_bytes(name) for name in each.files.values())
        return each.profile != variant.profile, float("inf") if time_ms is None else time_ms, size_bytes

    return min(able, key=cost, default=None)


def _none_for(target: str) -> DecoderRunner:
    raise EngineError(f"the bundle's draft has no variant for {target}")
