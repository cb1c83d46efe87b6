"""Memory plan of a language model, computed before it is loaded. Pure but for reading the free memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edgekit.errors import EngineError, UsageError
from edgekit.generate.device.decoder import EXTRA_BYTES, DecoderShape
from edgekit.system.memory import free_memory_bytes
from edgekit.tensor_spec import Json

CONTEXT = 2048
"""Tokens of a text where nothing is said, or those of the model where it has fewer."""
WORK_BYTES = 64 << 20
"""An engine's own code and what a step needs besides weights and caches; 40 to 60 MB were measured."""
LEAST_CONTEXT = 16


class MemoryPlan(NamedTuple):
    """Memory that a variant will need.

    Attributes:
        weights_bytes: Size of its files, and of what the engine holds twice, in bytes.
        cache_bytes: Size of one cache, in bytes.
        kept_bytes: Maximum size of saved caches, in bytes.
        capacity: Tokens of one cache.
    """

    weights_bytes: int
    cache_bytes: int
    conversations: int
    kept_bytes: int
    capacity: int

    @property
    def own_bytes(self) -> int:
        """Return bytes of weights and caches: what a draft needs beside the model, in the same engine."""
        return self.weights_bytes + self.cache_bytes * self.conversations

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes * self.conversations + self.kept_bytes + WORK_BYTES

    def __str__(self) -> str:
        caches = f"{self.conversations} caches" if self.conversations > 1 else "a cache"
        saved = f", saved caches {_mb(self.kept_bytes)}" if self.kept_bytes else ""
        return (
            f"weights {_mb(self.weights_bytes)}, {caches} of {self.capacity} tokens "
            f"{_mb(self.cache_bytes * self.conversations)}{saved}, work {_mb(WORK_BYTES)}"
        )


def plan_memory(
    options: Mapping[str, Json], weights_bytes: int, context: int | None, conversations: int, kept_bytes: int
) -> MemoryPlan:
    """Compute the memory that a variant will need.

    Args:
        options: The variant's options, with its ``DecoderShape``.
        context: Maximum tokens of a text; None: CONTEXT, or the model's own limit if that is less.

    Raises:
        UsageError: the model has no positions for so many tokens.
    """
    shape = DecoderShape.from_options(options)
    capacity = min(CONTEXT, shape.context) if context is None else context
    if not LEAST_CONTEXT <= capacity <= shape.context and capacity != shape.context:
        raise UsageError(
            f"context must be a whole number from {LEAST_CONTEXT} to {shape.context}, the model's, "
            f"not {context!r}"
        )
    weights_bytes += options.get(EXTRA_BYTES, 0)
    return MemoryPlan(weights_bytes, shape.cache_bytes(capacity), conversations, kept_bytes, capacity)


def check_memory(
    name: str,
    options: Mapping[str, Json],
    weights_bytes: int,
    context: int | None,
    conversations: int,
    kept_bytes: int,
) -> tuple[MemoryPlan, int]:
    """Refuse a variant for which there is not enough memory.

    Returns:
        What it needs, and how many bytes are free beside it.

    Raises:
        UsageError: as ``plan_memory``.
        EngineError: it needs more memory than there is; the text has the figures.
    """
    plan = plan_memory(options, weights_bytes, context, conversations, kept_bytes)
    free_bytes = free_memory_bytes()
    if plan.total_bytes > free_bytes:
        error = EngineError(
            f"{name} needs {_mb(plan.total_bytes)} of memory and {_mb(free_bytes)} are free: {plan}; give a "
            "smaller context, or build a smaller precision"
        )
        error.blame = "machine"
        raise error
    return plan, free_bytes - plan.total_bytes


def check_draft_memory(name: str, plan: MemoryPlan, spare_bytes: int) -> None:
    """Refuse a draft for which there is not enough memory beside the model.

    Args:
        plan: Memory that it needs; no caches are kept.
        spare_bytes: Memory that the model leaves, from ``check_memory``.

    Raises:
        EngineError: it needs more; the text has the figures.
    """
    if plan.own_bytes > spare_bytes:
        error = EngineError(
            f"the draft {name} needs {_mb(plan.own_bytes)} of memory and {_mb(spare_bytes)} are free beside"
            " the model"
        )
        error.blame = "machine"
        raise error


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MB"
