"""The bundle: one file with every variant of a model, its evidence and its golden vectors."""

from __future__ import annotations

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Status, Variant

__all__ = ["Bundle", "Status", "Variant"]
