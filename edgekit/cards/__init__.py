"""Cards: how pictures become inputs and outputs predictions, alike on host and device."""

from __future__ import annotations

from edgekit.cards.card import Card, load_card

__all__ = ["Card", "load_card"]
