"""The shape at which a bundle of several shapes predicts for an image or a recording.

- An image: the smallest shape that does not scale it down, else the largest. A line of text (``fit-height``)
  has a fixed height: the smallest shape that does not compress it.
- A recording: the shortest window that holds it, else the longest.
- A text: arrays of the largest shape; the runner drops padding (edgekit/target/shapes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import CardError, UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Signature

if TYPE_CHECKING:
    from edgekit.processing.card import Input


def cards_at(card: Card, shapes: Sequence[Signature]) -> list[Card]:
    """Return a bundle's card at each of its shapes that it can describe; a batch of images is skipped.

    Args:
        card: Card at the largest shape.
        shapes: The bundle's shapes, smallest first.
    """
    return [*filter(None, (_card_at(card, signature) for signature in shapes[:-1])), card]


def card_for(cards: Sequence[Card], item: Any, rate: int | None, order: str = "rgb") -> Card:
    """Return the card at the shape that fits an item.

    Args:
        cards: Result of ``cards_at``.
        item: Image, recording or text, in the forms of ``processing.prepare``; any other gets the largest
            shape.
        rate: Sample rate of a recording in Hz. None means the card's.
        order: Order of an image's channels.
    """
    is_array = isinstance(item, np.ndarray) and item.size > 0
    return next((c for c in cards[:-1] if is_array and _holds(c.sources()[0], item, rate, order)), cards[-1])


def _holds(source: Input, item: np.ndarray[Any, Any], rate: int | None, order: str) -> bool:
    if isinstance(source, ImageInput):
        from edgekit.processing.image_preparation import frame_size, place_image

        try:
            width, height = frame_size(item, order)
        except UsageError:  # ``prepare`` raises it
            return False
        placed = place_image(source, width, height)
        if source.resize == "fit-height":
            return bool(placed.scale_x >= source.height / height)
        return min(placed.scale_x, placed.scale_y) >= 1
    if source.kind == "audio":
        from edgekit.processing.inputs.audio import AudioInput

        assert isinstance(source, AudioInput)
        needed: int = -(-len(item) * source.rate // (rate or source.rate))
        return needed <= source.window - source.context
    return False


def _card_at(card: Card, signature: Signature) -> Card | None:
    """Return the card with the inputs of another shape, or None."""
    table = card.as_json()
    for spec in signature.inputs:
        entry = table["inputs"].get(spec.name)
        if entry is not None and entry["shape"] != list(spec.shape):
            entry["shape"] = list(spec.shape)
            for key in ("window", "hop") if entry["kind"] == "audio" else ():
                del entry[key]  # follow from the shape
    try:
        return replace(parse_card(table, *signature), files=card.files)
    except CardError:
        return None
