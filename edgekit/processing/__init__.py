"""Cards: how images become inputs and outputs predictions, alike on host and device.

Its names are loaded when they are first used: a session on arrays reads no card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.processing.card import Card as Card
    from edgekit.processing.card import load_card as load_card

__all__ = ["Card", "load_card"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from edgekit.processing import card

    return getattr(card, name)
